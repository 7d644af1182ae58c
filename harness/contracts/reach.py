"""What can run on an instance of a class: which of the methods along its order, from where, and what they set. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from harness.contracts.bodies import Method, Read
from harness.contracts.hierarchy import Classes, Klass

CONSTRUCTOR = "__init__"
Step = tuple[str, str]
"""Dotted path of a class, and a method that it defines."""


@dataclass(frozen=True, kw_only=True)
class Reached:
    """Where a method on an instance is, and how it gets further."""

    klass: Klass
    method: Method

    @property
    def step(self) -> Step:
        return self.klass.path, self.method.name


class Instance:
    """One class as the type of an instance."""

    def __init__(self, classes: Classes, path: str) -> None:
        self._classes = classes
        self.order = classes.known_order(path)
        """The classes whose methods it has, itself first."""

    def find(self, name: str, after: str = "") -> list[Reached]:
        """The definitions of a method that Python comes to first, or through super() first after a class."""
        for klass in self._after(after):
            if name in klass.body.methods:
                return [Reached(klass=klass, method=each) for each in klass.body.methods[name]]
            if name in klass.body.assigned:
                return []
        return []

    def _after(self, path: str) -> list[Klass]:
        at = next((at for at, each in enumerate(self.order) if each.path == path), -1)
        return self.order[at + 1 :]

    def walk(self, start: Iterable[Reached]) -> list[Reached]:
        """All that is called, directly or not, from these methods: through self, super() and by a base's name."""
        found: dict[tuple[Step, int], Reached] = {}
        pending = list(start)
        while pending:
            each = pending.pop()
            key = (each.step, each.method.line)
            if key not in found:
                found[key] = each
                pending += self._next(each)
        return list(found.values())

    def _next(self, at: Reached) -> Iterator[Reached]:
        for read in at.method.reads:
            yield from self.find(read.attribute)
        for name in at.method.supers:
            yield from self.find(name, after=at.klass.path)
        for base, name in at.method.bases:
            yield from self._of_base(at.klass, base, name)

    def _of_base(self, klass: Klass, base: str, name: str) -> list[Reached]:
        """Of `Base.method(self)`: the method as Base has it."""
        path = self._classes.index.canonical(f"{klass.module}.{base}")
        if all(each.path != path for each in self.order):
            return []
        return Instance(self._classes, path).find(name)

    @cached_property
    def constructed(self) -> list[Reached]:
        """What runs when an instance is made."""
        return self.walk([*self.find("__new__"), *self.find(CONSTRUCTOR), *self.find("__post_init__")])

    @cached_property
    def callable(self) -> list[Reached]:
        """All that may ever run on an instance.

        What is overridden runs only where the override calls it. A private method runs only where one that runs calls
        it: the helper of a constructor that is passed over does not.
        """
        names = {name for klass in self.order for name in klass.body.methods}
        return self.walk(each for name in names if not _private(name) for each in self.find(name))

    def called_from_outside(self, names: Callable[[str], bool]) -> list[Reached]:
        """`callable`, and the private methods that somebody outside of the class calls."""
        private = {name for klass in self.order for name in klass.body.methods if _private(name) and names(name)}
        return self.walk([*self.callable, *(each for name in private for each in self.find(name))])

    def has(self, name: str) -> bool:
        """Whether a class along the order has a value for an attribute, so that it can always be read."""
        return any(name in klass.body.assigned or name in klass.body.slots for klass in self.order)


def sets(reached: Iterable[Reached]) -> dict[str, Reached]:
    return {name: each for each in reached for name in each.method.sets}


def reads(reached: Iterable[Reached], attribute: str) -> Iterator[tuple[Reached, Read]]:
    """Who reads an attribute without asking whether it is there."""
    for each in reached:
        for read in each.method.reads:
            if read.attribute == attribute and not read.guarded:
                yield each, read


def _private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")
