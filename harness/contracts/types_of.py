"""Types as they are written in signatures: sets of what they allow, and which of two allows less. Pure.

Compared are unions of classes, `None` and other names. What is written with brackets (`list[int]`, `Literal["a"]`) is
only compared as a whole; a type variable, `Any`, `object` or no type at all allows everything.
"""

from __future__ import annotations

from collections.abc import Iterable

import griffe

from harness.contracts.hierarchy import Classes

_ANYTHING = frozenset({"typing.Any", "Any", "object", "typing.Self", "typing_extensions.Self", "..."})
_OPTIONAL = frozenset({"typing.Optional", "Optional"})
_UNION = frozenset({"typing.Union", "Union"})
_NUMBERS = {"int": ("float", "complex"), "bool": ("int", "float", "complex"), "float": ("complex",)}
Allowed = frozenset[str] | None
"""Dotted names, `None`, or texts with brackets; None: everything, or nothing that can be told."""


def allowed(classes: Classes, annotation: str | griffe.Expr | None, seen: frozenset[str] = frozenset()) -> Allowed:
    """What an annotation allows; `seen` are the aliases that were followed, which may go round in a circle."""
    if annotation is None:
        return None
    if isinstance(annotation, str):
        return _word(annotation)
    if isinstance(annotation, griffe.ExprBinOp) and annotation.operator == "|":
        return _joined(classes, [annotation.left, annotation.right], seen)
    if isinstance(annotation, griffe.ExprSubscript):
        return _subscript(classes, annotation, seen)
    if isinstance(annotation, griffe.ExprName | griffe.ExprAttribute):
        return _name(classes, annotation, seen)
    return None


def _word(text: str) -> Allowed:
    return None if text in _ANYTHING else frozenset({text}) if text == "None" else None


def _name(classes: Classes, annotation: griffe.ExprName | griffe.ExprAttribute, seen: frozenset[str]) -> Allowed:
    path = annotation.canonical_path
    if path in _ANYTHING:
        return None
    found = classes.index.resolve(path)
    if isinstance(found, griffe.Class):
        return frozenset({found.path})
    if isinstance(found, griffe.Attribute | griffe.TypeAlias):
        return None if found.path in seen else _alias(classes, found, seen | {found.path})
    return frozenset({path}) if found is None and not _may_be_variable(path, annotation) else None


def _alias(classes: Classes, found: griffe.Attribute | griffe.TypeAlias, seen: frozenset[str]) -> Allowed:
    """Of `Names = A | B`; a type variable is a call, and allows everything here."""
    value = found.value
    if isinstance(value, griffe.ExprCall) or value is None or isinstance(value, str):
        return None
    return allowed(classes, value, seen)


def _may_be_variable(path: str, annotation: griffe.Expr) -> bool:
    """A name that nothing in the module explains: a parameter of a generic class."""
    return "." not in path and path not in _BUILTINS and str(annotation) == path


_BUILTINS = frozenset({"int", "str", "bool", "float", "bytes", "list", "dict", "tuple", "set", "frozenset", "type"})


def _subscript(classes: Classes, annotation: griffe.ExprSubscript, seen: frozenset[str]) -> Allowed:
    head = annotation.left.canonical_path if isinstance(annotation.left, griffe.Expr) else str(annotation.left)
    inner = annotation.slice
    if head in _OPTIONAL:
        found = allowed(classes, inner, seen)
        return None if found is None else found | {"None"}
    if head in _UNION:
        return _joined(classes, inner.elements if isinstance(inner, griffe.ExprTuple) else [inner], seen)
    return frozenset({f"{head}[{_spelled(inner)}]"})


def _spelled(inner: str | griffe.Expr) -> str:
    return str(inner).replace(" ", "").replace('"', "").replace("'", "")


def _joined(classes: Classes, parts: Iterable[str | griffe.Expr], seen: frozenset[str]) -> Allowed:
    found = [allowed(classes, part, seen) for part in parts]
    known = [each for each in found if each is not None]
    return frozenset().union(*known) if len(known) == len(found) else None


def lacking(classes: Classes, override: Allowed, base: Allowed) -> tuple[str, ...]:
    """What the base allows and the override does not, where the override is narrower: all of it is allowed by the base.

    Empty where it is not narrower, or where nothing can be told.
    """
    if override is None or base is None or any("[" in each for each in override ^ base):
        return ()
    if not all(_within(classes, each, base) for each in override):
        return ()  # another type, not a narrower one
    return tuple(sorted(each for each in base if not _within(classes, each, override)))


def _within(classes: Classes, one: str, among: Iterable[str]) -> bool:
    return any(one == each or classes.descends(one, each) or each in _NUMBERS.get(one, ()) for each in among)
