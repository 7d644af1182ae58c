"""Rule `declared-count`: two methods of a class that must return as many values as each other.

vllm#54634: a model with RecoverSSM declares two or four states, and functions to copy two. Such a rule stands in
contracts.yaml, and may hold only in builds in which some function asserts it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import griffe

from harness.contracts.bodies import FunctionNode
from harness.contracts.contracts_file import Count, Where
from harness.contracts.hierarchy import Classes, Klass
from harness.contracts.lengths import Lengthen, Lengths
from harness.contracts.model import Finding, Place
from harness.contracts.reach import Instance

RULE: Final = "declared-count"


def applies(classes: Classes, where: Where | None) -> bool:
    """Whether the build has the function, and it asserts the condition."""
    if where is None:
        return True
    found = classes.index.resolve(where.function)
    if not isinstance(found, griffe.Function):
        return False
    wanted = ast.unparse(ast.parse(where.asserts, mode="eval").body)
    nodes = (each for each in ast.walk(classes.index.tree(found.module.path)) if isinstance(each, FunctionNode))
    own = (each for each in nodes if each.name == found.name)
    asserts = (each for node in own for each in ast.walk(node) if isinstance(each, ast.Assert))
    return any(ast.unparse(each.test) == wanted for each in asserts)


def check(classes: Classes, family: list[Klass], count: Count) -> Iterator[Finding]:
    """The findings of one rule, once for each class that defines one of its methods."""
    left, operator, right = count.sides
    lengthen = Lengthen(classes)
    for klass in family:
        if left not in klass.body.methods and right not in klass.body.methods:
            continue  # its parent is told
        one, other = lengthen.of_method(klass.path, left), lengthen.of_method(klass.path, right)
        if one is not None and other is not None and not _agree(one, operator, other):
            yield _finding(classes, klass, count, one, other)


def _agree(one: Lengths, operator: str, other: Lengths) -> bool:
    if operator == "==":
        return one == other
    return max(one) <= max(other) and min(one) <= min(other)


def _finding(classes: Classes, klass: Klass, count: Count, one: Lengths, other: Lengths) -> Finding:
    left, operator, right = count.sides
    at = next(each for name in (left, right) for each in Instance(classes, klass.path).find(name))
    relation = "as many as" if operator == "==" else "no more than"
    return Finding(
        rule=RULE,
        subject=klass.path,
        member=count.name,
        state="live" if count.where else "latent",
        message=f"{klass.name}.{left} must return {relation} {right}: {_words(one)} values and {_words(other)}",
        place=Place(file=at.klass.file, line=at.method.line, function=f"{at.klass.qualified}.{at.method.name}"),
        refs=count.refs,
    )


def _words(lengths: Lengths) -> str:
    return " or ".join(map(str, sorted(lengths)))
