"""What the methods of a class do to `self`: attributes they set and read, methods they call. Pure, one class at a time.

Nested functions count for the method around them; a nested class, and a nested function with a `self` of its own, do
not.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["method", "class", "static", "property"]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    attribute: str
    line: int
    guarded: bool
    """Asked for with hasattr, or an AttributeError is caught: it may be missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """One definition of a method."""

    name: str
    line: int
    kind: Kind
    sets: Mapping[str, int]
    """Attributes of self, and the line of the first time."""
    reads: tuple[Read, ...]
    """Methods that are called are read too."""
    supers: frozenset[str]
    """Methods that it calls through super()."""
    bases: frozenset[tuple[str, str]]
    """Of `Base.__init__(self, …)`: the words `Base`, and the method."""
    hands_self: frozenset[str]
    """Names of functions that are given self, and so may set anything."""
    dynamic: bool
    """It sets attributes whose names are not written down."""
    node: FunctionNode = field(repr=False, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """What stands in one class statement."""

    line: int
    methods: Mapping[str, tuple[Method, ...]]
    """Several where a definition depends on a condition, or a property has a setter."""
    assigned: frozenset[str]
    """Names that the class itself has a value for: defined, assigned, imported."""
    declared: frozenset[str]
    """Names with a type and no value."""
    slots: frozenset[str]
    decorators: tuple[str, ...]
    """As written, without arguments: `dataclasses.dataclass`."""

    @property
    def is_dataclass(self) -> bool:
        return any(_last(name) == "dataclass" or name == "config" for name in self.decorators)

    def every(self) -> Iterator[Method]:
        return (each for several in self.methods.values() for each in several)


def classes(tree: ast.Module) -> dict[str, list[ast.ClassDef]]:
    """The classes of a module by their qualified names, those in functions left out; two of a name: a condition."""
    found: defaultdict[str, list[ast.ClassDef]] = defaultdict(list)
    pending: list[tuple[str, ast.AST]] = [("", node) for node in tree.body]
    while pending:
        prefix, node = pending.pop()
        if isinstance(node, ast.ClassDef):
            found[prefix + node.name].append(node)
            pending += [(f"{prefix}{node.name}.", each) for each in node.body]
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            pending += [(prefix, each) for each in ast.iter_child_nodes(node)]
    return found


def read(node: ast.ClassDef) -> Body:
    """Read one class statement."""
    methods: defaultdict[str, list[Method]] = defaultdict(list)
    assigned, declared = set[str](), set[str]()
    for each in _statements(node.body):
        if isinstance(each, FunctionNode):
            methods[each.name].append(_method(each))
            assigned.add(each.name)
        elif isinstance(each, ast.AnnAssign) and each.value is None:
            declared |= set(_names(each.target))
        else:
            assigned |= set(_bound(each))
    return Body(
        line=node.lineno,
        methods={name: tuple(several) for name, several in methods.items()},
        assigned=frozenset(assigned),
        declared=frozenset(declared),
        slots=frozenset(_slots(node)),
        decorators=tuple(decorator_names(node)),
    )


def decorator_names(node: ast.ClassDef | FunctionNode) -> Iterator[str]:
    return (dotted(each.func if isinstance(each, ast.Call) else each) or "?" for each in node.decorator_list)


def dotted(node: ast.AST) -> str:
    """`a.b.C` of a name or attribute; a subscript is left out; empty for all else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript):
        return dotted(node.value)
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a class, through conditions."""
    for each in body:
        if isinstance(each, ast.If | ast.Try | ast.With | ast.For | ast.While):
            yield from _statements([child for child in _inner(each) if isinstance(child, ast.stmt)])
        yield each


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ExceptHandler):
            yield from child.body
        else:
            yield child


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((each.asname or each.name).partition(".")[0] for each in node.names)
    elif isinstance(node, ast.Assign):
        yield from (name for target in node.targets for name in _names(target))
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For):
        yield from _names(node.target)


def _names(target: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _slots(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.Assign) and any(_is_name(target, "__slots__") for target in each.targets):
            yield from filter(None, map(_text, ast.walk(each.value)))


def _method(node: FunctionNode) -> Method:
    kind = _kind(node)
    look = _Look(_own_name(node, kind), _guards(node))
    for each in node.body:
        look.visit(each)
    return Method(
        name=node.name,
        line=node.lineno,
        kind=kind,
        sets=look.sets,
        reads=tuple(look.reads),
        supers=frozenset(look.supers),
        bases=frozenset(look.bases),
        hands_self=frozenset(look.hands_self),
        dynamic=look.dynamic,
        node=node,
    )


def _kind(node: FunctionNode) -> Kind:
    names = [_last(name) for name in decorator_names(node)]
    if "staticmethod" in names or node.name == "__new__":
        return "static"
    if "classmethod" in names or node.name in ("__init_subclass__", "__class_getitem__"):
        return "class"
    return "property" if any(name.endswith("property") or name in ("setter", "deleter") for name in names) else "method"


def _own_name(node: FunctionNode, kind: Kind) -> str | None:
    if kind == "static":  # a __new__ calls what it makes so
        return "self" if node.name == "__new__" else None
    first = [*node.args.posonlyargs, *node.args.args][:1]
    return first[0].arg if first else None


def _guards(node: FunctionNode) -> frozenset[str]:
    """Attributes that a function asks for before it reads them."""
    calls = (each for each in ast.walk(node) if isinstance(each, ast.Call) and _is_name(each.func, "hasattr"))
    return frozenset(filter(None, (_text(call.args[1]) for call in calls if len(call.args) > 1)))


class _Look(ast.NodeVisitor):
    """Walks one method."""

    def __init__(self, own: str | None, guards: frozenset[str]) -> None:
        self._own, self._guards, self._caught = own, guards, 0
        self.sets: dict[str, int] = {}
        self.reads: list[Read] = []
        self.supers, self.hands_self = set[str](), set[str]()
        self.bases = set[tuple[str, str]]()
        self.dynamic = False

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """It has a self of its own."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def _function(self, node: FunctionNode) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        if all(each.arg != self._own for each in arguments):
            self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        caught = any(_catches(handler) for handler in node.handlers)
        self._caught += caught
        for each in node.body:
            self.visit(each)
        self._caught -= caught
        for other in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(other)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._is_own(node.value):
            self._own_attribute(node)
        elif _is_super(node.value):
            self.supers.add(node.attr)
        self.generic_visit(node)

    def _own_attribute(self, node: ast.Attribute) -> None:
        if node.attr == "__dict__":
            self.dynamic = True
        elif isinstance(node.ctx, ast.Store):
            self.sets.setdefault(node.attr, node.lineno)
        elif isinstance(node.ctx, ast.Load):
            self._read(node.attr, node.lineno)

    def _read(self, name: str, line: int) -> None:
        self.reads.append(Read(attribute=name, line=line, guarded=bool(self._caught) or name in self._guards))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """`self.x: int` sets nothing."""
        if node.value is not None:
            self.visit(node.target)
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Attribute) and self._is_own(node.target.value):
            self._read(node.target.attr, node.lineno)
        else:
            self.visit(node.target)
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        given = [*node.args, *(each.value for each in node.keywords)]
        own = [at for at, each in enumerate(given) if self._is_own(each)]
        if own and name in ("setattr", "object.__setattr__", "getattr", "delattr"):
            self._by_name(name, node)
        elif own and name == "vars":
            self.dynamic = True
        elif own and own[0] == 0 and isinstance(node.func, ast.Attribute) and not self._is_own(node.func.value):
            self.bases.add((name.rpartition(".")[0], node.func.attr))
            self.hands_self.add(name)
        elif own and not _is_super(node.func):
            self.hands_self.add(name)
        self.generic_visit(node)

    def _by_name(self, function: str, node: ast.Call) -> None:
        """setattr, getattr and the like, with self as the object."""
        name = _text(node.args[1]) if len(node.args) > 1 else ""
        if function == "getattr":
            if name.isidentifier() and len(node.args) == 2:  # noqa: PLR2004 - without a default
                self._read(name, node.lineno)
        elif not name:
            self.dynamic = True
        elif function != "delattr":
            self.sets.setdefault(name, node.lineno)

    def _is_own(self, node: ast.AST) -> bool:
        return self._own is not None and _is_name(node, self._own)


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _text(node: ast.AST) -> str:
    """The text that a constant is; empty for all else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _is_name(node.func, "super")


def _catches(handler: ast.ExceptHandler) -> bool:
    """Whether it catches an AttributeError."""
    if handler.type is None:
        return True
    names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(_last(dotted(each)) in ("AttributeError", "Exception", "BaseException") for each in names)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def is_stub(node: FunctionNode) -> bool:
    """Whether it does nothing but say what it is: a docstring, `...`, `pass`, `raise`."""
    return all(isinstance(each, ast.Pass | ast.Raise) or _is_constant(each) for each in node.body)


def _is_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
