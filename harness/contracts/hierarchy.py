"""Classes of a package: who descends from whom, in which order Python looks, and what of it cannot be known."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import griffe

from harness.contracts import bodies
from harness.contracts.bodies import Body, Method
from harness.contracts.index import Index

_HEADER = re.compile(r"^[ \t]*class[ \t]+(\w+)[ \t]*(?:\[[^\]]*\])?\(((?:[^()]|\([^()]*\))*)\)", re.MULTILINE)
_RENAMED = re.compile(r"\b(\w+)[ \t]+as[ \t]+(\w+)")
_ALIAS = re.compile(r"^(\w+)[ \t]*(?::[^=\n]*)?=[ \t]*([\w.]+)(?:\[[^\]\n]*\])?[ \t]*(?:#.*)?$", re.MULTILINE)
_WORD = re.compile(r"\w+")

HARMLESS = frozenset({
    "object", "abc.ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol", "builtins.object",
})  # fmt: skip
"""Bases from outside that give their children no attribute that anybody reads."""
QUIET = re.compile(
    r"(?:.*\.)?(?:dataclass|final|total_ordering|runtime_checkable|deprecated|unique|register\w*|override)|config"
)
"""Decorators of classes that set no attribute that is read as `self.x`, or only fields that the class declares."""


@dataclass(frozen=True, kw_only=True)
class Klass:
    """A class of the package."""

    path: str
    """Dotted, where it is defined."""
    module: str
    file: str
    bases: tuple[str, ...]
    """Dotted, through re-exports; as written where they are not of this package."""
    body: Body
    griffe: griffe.Class
    vague: str
    """Why its statement does not say what it is; empty mostly."""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def qualified(self) -> str:
        """`Outer.Inner`."""
        return self.path[len(self.module) + 1 :]


class Classes:
    """The classes of one package, read as they are asked for."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._known: dict[str, Klass | None] = {}
        self._orders: dict[str, tuple[str, ...]] = {}
        self._children: dict[str, set[str]] = defaultdict(set)
        self._looked: set[str] = set()

    def get(self, path: str) -> Klass | None:
        """A class by the dotted name of its definition; None: it is not of this package, or not one."""
        if path not in self._known:
            found = self.index.resolve(path)
            self._known[path] = self._read(found) if isinstance(found, griffe.Class) else None
        return self._known[path]

    def below(self, root: str) -> list[Klass]:
        """A class and all that descend from it, by name; empty: this build does not have it."""
        start = self.index.canonical(root)
        if self.get(start) is None:
            return []
        self._look_for(start.rpartition(".")[2])
        found, pending = {start}, [start]
        while pending:
            new = self._children[pending.pop()] - found
            found |= new
            pending += new
        return [each for path in sorted(found) if (each := self.get(path))]

    def order(self, path: str) -> tuple[str, ...]:
        """Where Python looks for an attribute, the class itself first; classes from outside are in it by their names.

        The rule is C3, as in "The Python 2.3 Method Resolution Order" (M. Simionato, 2003).
        """
        if path not in self._orders:
            self._orders[path] = (path,)  # a class that descends from itself, in a broken build
            bases = self.bases(path)
            self._orders[path] = (path, *_merged([*map(self.order, bases), bases]))
        return self._orders[path]

    def bases(self, path: str) -> tuple[str, ...]:
        found = self.get(path)
        return found.bases if found else ()

    def known_order(self, path: str) -> list[Klass]:
        """The classes of `order` that are of this package."""
        return [each for one in self.order(path) if (each := self.get(one))]

    def vague(self, path: str) -> str:
        """Why not all attributes of an instance can be known; empty where they can."""
        for one in self.order(path):
            found = self.get(one)
            if found is None and one not in HARMLESS:
                return f"{one} is not of this package"
            if found and (found.vague or _open(found)):
                return found.vague or f"{found.name} makes attributes as it goes"
        return ""

    def descends(self, path: str, ancestor: str) -> bool:
        return ancestor in self.order(path)

    def _read(self, found: griffe.Class) -> Klass:
        module = found.module.path
        qualified = found.path[len(module) + 1 :]
        nodes = self._statements(module).get(qualified, [])
        bases = tuple(self.index.canonical(_path(base)) for base in found.bases)
        return Klass(
            path=found.path,
            module=module,
            file=self.index.file(module) or "",
            bases=bases,
            body=bodies.read(nodes[-1]),
            griffe=found,
            vague=f"{qualified} is defined {len(nodes)} times" if len(nodes) > 1 else "",
        )

    def _statements(self, module: str) -> dict[str, list[ast.ClassDef]]:
        return self._by_module.setdefault(module, bodies.classes(self.index.tree(module)))

    @cached_property
    def _by_module(self) -> dict[str, dict[str, list[ast.ClassDef]]]:
        return {}

    # --- descendants, found by text first: reading every module would take ten times as long

    def _look_for(self, name: str) -> None:
        """Read every module that may define a descendant of a class of this name."""
        for module in sorted(self._suspects(name) - self._looked):
            self._looked.add(module)
            read = self.index.module(module)
            for path in _class_paths(read) if read else ():
                for base in self.bases(path):
                    self._children[base].add(path)

    def _suspects(self, name: str) -> set[str]:
        names = {name}
        while more := {other for other, words in self._words if other not in names and words & names}:
            names |= more
        return {module for module, headers in self._headers.items() if headers & names}

    @cached_property
    def _words(self) -> list[tuple[str, frozenset[str]]]:
        """Each class or alias of the package by its bare name, with the bare names that it is made from."""
        return [pair for name in sorted(self.index.sources.names) for pair in _made(self.index.sources.text(name))]

    @cached_property
    def _headers(self) -> dict[str, frozenset[str]]:
        """The bare names of the classes that each module defines."""
        return {_module(name): frozenset(_defined(self.index.sources.text(name))) for name in self.index.sources.names}


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _made(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    for match in _HEADER.finditer(text):
        yield match[1], frozenset(_WORD.findall(match[2]))
    for match in _RENAMED.finditer(text):
        if match[1] != match[2]:
            yield match[2], frozenset({match[1]})
    for match in _ALIAS.finditer(text):
        yield match[1], frozenset({match[2].rpartition(".")[2]})


def _defined(text: str) -> Iterator[str]:
    return (match[1] for match in _HEADER.finditer(text))


def _class_paths(of: griffe.Module | griffe.Class) -> Iterator[str]:
    for member in of.members.values():
        if isinstance(member, griffe.Class):
            yield member.path
            yield from _class_paths(member)


def _path(base: str | griffe.Expr) -> str:
    return base if isinstance(base, str) else base.canonical_path


def _merged(orders: Sequence[Iterable[str]]) -> Iterator[str]:
    """C3: the first head that is in no tail; where there is none, Python refuses the class, and we go on in order."""
    left = [list(order) for order in orders if order]
    while left := [order for order in left if order]:
        heads = (order[0] for order in left)
        head = next((each for each in heads if all(each not in order[1:] for order in left)), left[0][0])
        yield head
        left = [[each for each in order if each != head] for order in left]


def _open(found: Klass) -> bool:
    body = found.body
    if any(name in body.methods for name in ("__getattr__", "__getattribute__")):
        return True
    if any(not QUIET.fullmatch(name) for name in body.decorators):
        return True
    return any(method.dynamic for method in body.every())


def lookup(classes: Sequence[Klass], name: str) -> tuple[tuple[Klass, Method], ...]:
    """All definitions of a method along an order, the one that Python finds first."""
    return tuple((each, method) for each in classes for method in each.body.methods.get(name, ()))
