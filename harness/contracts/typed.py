"""Who outside of a class uses its instances, as far as types say whose they are.

Resolved: `x.name` where `x` is a parameter or a variable with a class of the package as its type (`T`, `"T"`,
`T | None`, `Optional[T]`), or was assigned `T(…)` in the same function. Not resolved: what comes out of a container, of
another call or of an attribute.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from harness.contracts.bodies import FunctionNode, dotted
from harness.contracts.hierarchy import Classes
from harness.contracts.model import Place

_PRIVATE_CALL = re.compile(r"(?<!self)(?<!cls)(?<!super\(\))\.(_[a-zA-Z]\w*)\b")


class Typed:
    """Uses through names with a type."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._sources = classes.index.sources

    def called(self, name: str) -> bool:
        """Whether a private method's name is used on something that is neither self nor cls, anywhere."""
        return name in self._private

    @cached_property
    def _private(self) -> frozenset[str]:
        files = self._sources.names
        return frozenset(name for file in files for name in _PRIVATE_CALL.findall(self._sources.text(file)))

    def readers(self, paths: Iterable[str], attribute: str) -> Iterator[Place]:
        """Where an attribute is read on a name whose type is one of these classes, or an ancestor of one."""
        wanted = {one for path in paths for one in self._classes.order(path) if self._classes.get(one)}
        names = {one.rpartition(".")[2] for one in wanted}
        read = re.compile(rf"(?<!\.)\b(?!self\b|cls\b)\w+\.{re.escape(attribute)}\b(?!\s*=[^=])")
        for file in sorted(self._sources.names):
            text = self._sources.text(file)
            if f".{attribute}" in text and read.search(text) and any(name in text for name in names):
                yield from self._in_file(file, attribute, wanted)

    def _in_file(self, file: str, attribute: str, wanted: set[str]) -> Iterator[Place]:
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if self._classes.index.module(module) is None:
            return
        for function in _functions(self._classes.index.tree(module)):
            names = {name for name, word in _types(function) if self._is(module, word, wanted)}
            for node in ast.walk(function) if names else ():
                if _reads(node, attribute, names):
                    yield Place(file=file, line=node.lineno, function=function.name)  # type: ignore[attr-defined]

    def _is(self, module: str, word: str, wanted: set[str]) -> bool:
        return self._classes.index.canonical(f"{module}.{word}") in wanted


def _functions(tree: ast.Module) -> Iterator[FunctionNode]:
    return (node for node in ast.walk(tree) if isinstance(node, FunctionNode))


def _types(function: FunctionNode) -> Iterator[tuple[str, str]]:
    """Names and the words of their types."""
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if each.annotation is not None:
            yield from ((each.arg, word) for word in type_words(each.annotation))
    for node in ast.walk(function):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield from ((node.target.id, word) for word in type_words(node.annotation))
        elif (
            isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name)
        ):
            yield node.targets[0].id, dotted(node.value.func)


def type_words(annotation: ast.expr) -> Iterator[str]:
    """The classes that a plain type names: `T`, `"T"`, `T | None`, `Optional[T]`."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            yield from type_words(ast.parse(annotation.value, mode="eval").body)
        except SyntaxError:  # a text that is no type
            return
    elif isinstance(annotation, ast.BinOp):
        yield from type_words(annotation.left)
        yield from type_words(annotation.right)
    elif isinstance(annotation, ast.Subscript) and dotted(annotation.value).rpartition(".")[2] == "Optional":
        yield from type_words(annotation.slice)
    elif isinstance(annotation, ast.Name | ast.Attribute) and (word := dotted(annotation)):
        yield word


def _reads(node: ast.AST, attribute: str, names: set[str]) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr != attribute or not isinstance(node.ctx, ast.Load):
        return False
    return isinstance(node.value, ast.Name) and node.value.id in names
