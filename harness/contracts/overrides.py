"""Rule `override`: a method that takes less than the one that it stands in for.

    class Base:                                     class Child(Base):
        def build(self, prefix, meta, fast=False)       def build(self, prefix: str, metadata)

`meta` is renamed (a caller that names it fails), `fast` is missing. Narrower types and parameters that became needed
count too, and a declared type that the method itself asserts to be another (vllm#50148). Constructors are exempt but
for the last. `live`: somebody calls the method so, on `self`, or on anything where no other family of classes has a
method of that name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import griffe

from harness.contracts.bodies import dotted
from harness.contracts.calls import Calls, naming_on_self
from harness.contracts.hierarchy import Classes, Klass
from harness.contracts.model import Finding, Place
from harness.contracts.reach import Instance
from harness.contracts.types_of import allowed, lacking

RULE: Final = "override"
EXEMPT = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__"})
_Kind = griffe.ParameterKind
_PAIR = 2
_POSITIONAL = (_Kind.positional_only, _Kind.positional_or_keyword)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    parameter: str
    words: str
    """`is missing`, `is called y`: after "the parameter x of Base.method"."""
    by_name: bool = False
    """A caller that names the parameter runs into it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Around:
    """What a method is looked at among."""

    classes: Classes
    calls: Calls
    family: list[Klass]


def check(classes: Classes, family: Iterable[Klass], calls: Calls) -> Iterator[Finding]:
    """The findings of a hierarchy."""
    around = _Around(classes=classes, calls=calls, family=list(family))
    for klass in around.family:
        for name, several in klass.body.methods.items():
            if len(several) == 1 and name not in EXEMPT and not _mangled(name):
                yield from _of(around, klass, name)
            if len(several) == 1:
                yield from _contradicted(classes, klass, name)


def _mangled(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def _of(around: _Around, klass: Klass, name: str) -> Iterator[Finding]:
    own = _function(klass, name)
    for base in around.classes.known_order(klass.path)[1:]:
        theirs = _function(base, name)
        if own is None or theirs is None:
            if name in base.body.assigned:
                return
            continue
        for fault in faults(around.classes, _given(own), _given(theirs)):
            users = _callers(around, klass, name, fault.parameter) if fault.by_name else ()
            yield _finding(klass, name, base, fault, users)
        return


def _callers(around: _Around, klass: Klass, name: str, parameter: str) -> tuple[Place, ...]:
    """Who names a parameter: methods that run on an instance, and anybody where no other class has such a method."""
    own = tuple(
        Place(file=each.klass.file, line=line, function=f"{each.klass.qualified}.{each.method.name}")
        for each in Instance(around.classes, klass.path).callable
        for line in naming_on_self(each.method.node, name, parameter)
    )
    others = around.calls.naming(name, parameter) if around.calls.only_in(name, around.family) else ()
    seen = {(each.file, each.line) for each in own}
    return (*own, *(each for each in others if (each.file, each.line) not in seen))


def _function(klass: Klass, name: str) -> griffe.Function | None:
    found = klass.griffe.members.get(name)
    plain = len(klass.body.methods.get(name, ())) == 1
    return found if isinstance(found, griffe.Function) and plain else None


def _given(function: griffe.Function) -> list[griffe.Parameter]:
    """The parameters that a caller gives."""
    every = list(function.parameters)
    return every if "staticmethod" in function.labels else every[1:]


def faults(classes: Classes, own: list[griffe.Parameter], theirs: list[griffe.Parameter]) -> Iterator[Fault]:
    """In what an override takes less than its base."""
    named = {each.name: each for each in own}
    rest = {each.kind for each in own}
    matched = set[str]()
    for at, base in enumerate(theirs):
        if base.kind in (_Kind.var_positional, _Kind.var_keyword):
            continue
        match = _match(at, base, own, named, theirs)
        if match is None:
            if _Kind.var_keyword not in rest and not (base.kind in _POSITIONAL and _Kind.var_positional in rest):
                yield Fault(parameter=base.name, words="is missing", by_name=True)
            continue
        matched.add(match.name)
        yield from _compared(classes, match, base)
    if not any(each.kind in (_Kind.var_positional, _Kind.var_keyword) for each in theirs):
        yield from _demanded(own, matched)


def _match(
    at: int,
    base: griffe.Parameter,
    own: list[griffe.Parameter],
    named: Mapping[str, griffe.Parameter],
    theirs: list[griffe.Parameter],
) -> griffe.Parameter | None:
    """The parameter of the override that takes what a caller of the base gives: of that name, else in that place."""
    if base.name in named and base.kind is not _Kind.positional_only:
        return named[base.name]
    there = own[at] if at < len(own) and own[at].kind in _POSITIONAL and base.kind in _POSITIONAL else None
    if there and there.name == base.name:
        return there
    return there if there and all(there.name != each.name for each in theirs) else None


def _compared(classes: Classes, own: griffe.Parameter, base: griffe.Parameter) -> Iterator[Fault]:
    if own.name != base.name and base.kind is _Kind.positional_or_keyword and not base.name.startswith("_"):
        yield Fault(parameter=base.name, words=f"is called `{own.name}`", by_name=True)
    if own.required and not base.required:
        yield Fault(parameter=base.name, words="has lost its default")
    if own.kind is _Kind.keyword_only and base.kind in _POSITIONAL:
        yield Fault(parameter=base.name, words="can only be given by name")
    if lost := lacking(classes, allowed(classes, own.annotation), allowed(classes, base.annotation)):
        which = " or ".join(_short(lost))
        yield Fault(parameter=base.name, words=f"no longer takes {which}")


def _demanded(own: list[griffe.Parameter], matched: set[str]) -> Iterator[Fault]:
    for each in own:
        plain = each.kind not in (_Kind.var_positional, _Kind.var_keyword)
        if plain and each.required and each.name not in matched:
            yield Fault(parameter=each.name, words="is new and has no default")


def _finding(klass: Klass, name: str, base: Klass, fault: Fault, users: tuple[Place, ...]) -> Finding:
    return Finding(
        rule=RULE,
        subject=klass.path,
        member=f"{name}.{fault.parameter}",
        state="live" if users else "latent",
        message=f"{klass.name}.{name} takes less than {base.name}.{name}: `{fault.parameter}` {fault.words}",
        place=Place(file=klass.file, line=klass.body.methods[name][0].line, function=f"{klass.qualified}.{name}"),
        uses=users,
    )


# --- a type that the method itself contradicts


def _contradicted(classes: Classes, klass: Klass, name: str) -> Iterator[Finding]:
    """Parameters declared as one class and asserted to be another that is none of it: the type is too narrow."""
    function = _function(klass, name)
    types = {each.name: each.annotation for each in function.parameters} if function else {}
    method = klass.body.methods[name][0]
    for parameter, word in _asserted(method.node):
        declared = allowed(classes, types.get(parameter)) or frozenset()
        wanted = classes.index.canonical(f"{klass.module}.{word}")
        if declared and classes.get(wanted) and all(_apart(classes, wanted, each) for each in declared):
            what, asserted = " or ".join(_short(declared)), wanted.rpartition(".")[2]
            yield Finding(
                rule=RULE,
                subject=klass.path,
                member=f"{name}.{parameter}",
                state="latent",
                message=f"{klass.name}.{name} declares `{parameter}` to be {what}"
                f"{_as_base(classes, klass, name, parameter)}, and asserts that it is {asserted}, which is none",
                place=Place(file=klass.file, line=method.line, function=f"{klass.qualified}.{name}"),
            )


def _asserted(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that a function asserts to be of a type, and the type as written."""
    for each in ast.walk(node):
        call = each.test if isinstance(each, ast.Assert) else None
        if isinstance(call, ast.Call) and dotted(call.func) == "isinstance" and len(call.args) == _PAIR:
            name, kind = dotted(call.args[0]), dotted(call.args[1])
            if name and kind and "." not in name:
                yield name, kind


def _apart(classes: Classes, one: str, other: str) -> bool:
    """Whether two classes of the package are siblings: neither is the other."""
    return bool(classes.get(other)) and not classes.descends(one, other) and not classes.descends(other, one)


def _as_base(classes: Classes, klass: Klass, name: str, parameter: str) -> str:
    own = _function(klass, name)
    for base in classes.known_order(klass.path)[1:]:
        theirs = _function(base, name)
        if own and theirs and parameter in theirs.parameters:
            same = allowed(classes, theirs.parameters[parameter].annotation)
            return f" as {base.name} does" if same == allowed(classes, own.parameters[parameter].annotation) else ""
    return ""


def _short(paths: Iterable[str]) -> list[str]:
    return sorted(each.rpartition(".")[2] for each in paths)
