"""How many values a method returns, read from its sources: `(a, b)` is 2, `(*base, x)` one more than `base`.

Followed are names, conditions, `+`, calls of functions and methods of the package with what they are given, and where
all that fails a return type such as `tuple[A, B]`. Both branches of a condition count: the answer is a set.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import griffe

from harness.contracts import bodies
from harness.contracts.bodies import FunctionNode, dotted
from harness.contracts.hierarchy import Classes
from harness.contracts.reach import Instance

Lengths = frozenset[int]
Unknown = None
_DEEP = 12
_COPIES = frozenset({"tuple", "list", "sorted", "reversed"})


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Where a function stands: names mean what they mean there."""

    module: str
    owner: str
    """Dotted path of the class whose `cls` or `self` it has; empty for a function of a module."""
    defined_in: str
    """The class in which it is written: super() goes on from there."""


class Lengthen:
    """Evaluates functions of a package."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes

    def of_method(self, path: str, name: str) -> Lengths | None:
        """Of a method as instances of a class have it; None: it cannot be told."""
        return self._method(path, name, {}, after="", depth=0)

    def _method(
        self, path: str, name: str, given: Mapping[str, Lengths | None], *, after: str, depth: int
    ) -> Lengths | None:
        found = Instance(self._classes, path).find(name, after=after)
        if len(found) != 1:
            return None
        where = found[0].klass
        scope = Scope(module=where.module, owner=path, defined_in=where.path)
        return self._function(found[0].method.node, scope, given, depth)

    def _function(
        self, node: FunctionNode, scope: Scope, given: Mapping[str, Lengths | None], depth: int
    ) -> Lengths | None:
        if depth > _DEEP:
            return None
        known: dict[str, Lengths | None] = dict(given)
        returned: list[Lengths | None] = []
        for statement, certain in _flow(node.body):
            if isinstance(statement, ast.Return) and statement.value is not None:
                returned.append(self._value(statement.value, known, scope, depth))
            for name, value in _assigned(statement):
                now = self._value(value, known, scope, depth)
                known[name] = now if certain else _either(known.get(name), now)
        return _all(returned) or _typed(node)

    def _value(self, node: ast.expr, known: Mapping[str, Lengths | None], scope: Scope, depth: int) -> Lengths | None:
        if isinstance(node, ast.Name):
            return known.get(node.id)
        if isinstance(node, ast.Tuple | ast.List):
            return _added(self._element(each, known, scope, depth) for each in node.elts)
        if isinstance(node, ast.IfExp):
            return _all([self._value(each, known, scope, depth) for each in (node.body, node.orelse)])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return _added(self._value(each, known, scope, depth) for each in (node.left, node.right))
        return self._call(node, known, scope, depth) if isinstance(node, ast.Call) else None

    def _element(self, node: ast.expr, known: Mapping[str, Lengths | None], scope: Scope, depth: int) -> Lengths | None:
        return self._value(node.value, known, scope, depth) if isinstance(node, ast.Starred) else frozenset({1})

    def _call(self, node: ast.Call, known: Mapping[str, Lengths | None], scope: Scope, depth: int) -> Lengths | None:
        given = [self._value(each, known, scope, depth) for each in node.args]
        named = {each.arg: self._value(each.value, known, scope, depth) for each in node.keywords if each.arg}
        name = dotted(node.func)
        if name in _COPIES and len(given) == 1:
            return given[0]
        head, _, method = name.rpartition(".")
        if head in ("cls", "self") and scope.owner:
            return self._bound(scope.owner, method, given, named, after="", depth=depth)
        if isinstance(node.func, ast.Attribute) and dotted(getattr(node.func.value, "func", node)) == "super":
            return self._bound(scope.owner, node.func.attr, given, named, after=scope.defined_in, depth=depth)
        return self._elsewhere(f"{scope.module}.{name}", given, named, depth) if name else None

    def _elsewhere(
        self, path: str, given: Sequence[Lengths | None], named: Mapping[str, Lengths | None], depth: int
    ) -> Lengths | None:
        """A function or a method of another class, by its dotted name."""
        parent, _, name = path.rpartition(".")
        owner = self._classes.index.resolve(parent)
        if isinstance(owner, griffe.Class):
            return self._bound(owner.path, name, given, named, after="", depth=depth)
        found = self._classes.index.resolve(path)
        if not isinstance(found, griffe.Function):
            return None
        module = found.module.path
        tree = self._classes.index.tree(module)
        node = next((n for n in tree.body if isinstance(n, FunctionNode) and n.name == found.name), None)
        scope = Scope(module=module, owner="", defined_in="")
        return self._function(node, scope, _bind(node, given, named, skip=0), depth + 1) if node else None

    def _bound(
        self,
        path: str,
        name: str,
        given: Sequence[Lengths | None],
        named: Mapping[str, Lengths | None],
        *,
        after: str,
        depth: int,
    ) -> Lengths | None:
        found = Instance(self._classes, path).find(name, after=after)
        if len(found) != 1:
            return None
        method = found[0].method
        bound = _bind(method.node, given, named, skip=method.kind != "static")
        return self._method(path, name, bound, after=after, depth=depth + 1)


def _bind(
    node: FunctionNode, given: Sequence[Lengths | None], named: Mapping[str, Lengths | None], *, skip: int
) -> dict[str, Lengths | None]:
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)][skip:]
    return {**dict(zip(names, given, strict=False)), **named}


def _flow(body: Sequence[ast.stmt], *, certain: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    """Statements in their order, and whether each of them always runs."""
    for each in body:
        yield each, certain
        if isinstance(each, FunctionNode | ast.ClassDef):
            continue
        always = certain and isinstance(each, ast.With)
        for part in ("body", "orelse", "finalbody"):
            yield from _flow(getattr(each, part, ()), certain=always)
        for handler in getattr(each, "handlers", ()):
            yield from _flow(handler.body, certain=False)


def _assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        yield from ((target.id, node.value) for target in targets if isinstance(target, ast.Name))


def _either(one: Lengths | None, other: Lengths | None) -> Lengths | None:
    return None if one is None or other is None else one | other


def _all(found: Sequence[Lengths | None]) -> Lengths | None:
    """Of several that may be it; None where there is none, or one cannot be told."""
    known = [each for each in found if each is not None]
    return frozenset().union(*known) if known and len(known) == len(found) else None


def _added(parts: Iterator[Lengths | None]) -> Lengths | None:
    found = list(parts)
    known = [each for each in found if each is not None]
    return frozenset(map(sum, product(*known))) if len(known) == len(found) else None


def _typed(node: FunctionNode) -> Lengths | None:
    """By its return type: `tuple[A, B]`."""
    kind = node.returns
    if not isinstance(kind, ast.Subscript) or dotted(kind.value).rpartition(".")[2] not in ("tuple", "Tuple"):
        return None
    parts = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
    open_ended = any(isinstance(each, ast.Constant) and each.value is ... for each in parts)
    return None if open_ended or bodies.is_stub(node) else frozenset({len(parts)})
