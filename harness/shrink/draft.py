"""A config.json while it is being shrunk: what was changed, and why. Fields of a mapping inside have dotted paths."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.shrink.fields import INSIDE

Config = Mapping[str, Any]
"""A config.json as it was read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A field of the mini model that is another one than in the full model; None: it is not there."""

    path: str
    before: Any
    after: Any
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A field that stays as it is."""

    path: str
    value: Any
    why: str


class Draft:
    def __init__(self, full: Config) -> None:
        self.full = full
        self.config: dict[str, Any] = copy.deepcopy(dict(full))
        self._why: dict[str, str] = {}

    def get(self, path: str) -> Any:
        """The value as it is now; None where the field is absent or null."""
        return lookup(self.config, path)

    def number(self, path: str) -> int | None:
        """As `get`, of a field that holds a whole number above 0."""
        return whole(self.get(path))

    def set(self, path: str, value: Any, why: str) -> None:
        """Give a field its value in the mini model; the last reason given is the one that is told."""
        *outer, name = path.split(".")
        inside = self.config
        for step in outer:
            inside = inside[step]
        inside[name] = value
        self._why[path] = why

    def drop(self, path: str, why: str) -> None:
        if self.config.pop(path, None) is not None:
            self._why[path] = why

    def why(self, path: str) -> str:
        """The reason that was given for its value; empty where nothing was decided."""
        return self._why.get(path, "")

    @property
    def changes(self) -> tuple[Change, ...]:
        """What is other than in the full model, in the order in which it was decided."""
        all_of_them = (
            Change(path=path, before=lookup(self.full, path), after=self.get(path), why=why)
            for path, why in self._why.items()
        )
        return tuple(change for change in all_of_them if change.before != change.after)


def paths(config: Config) -> Iterator[str]:
    """All fields, those of the mappings that are looked into by their dotted paths."""
    for name, value in config.items():
        if name in INSIDE and isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)
        else:
            yield name


def whole(value: Any) -> int | None:
    """A whole number above 0 as it is; None for everything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def listed(value: Any) -> list[Any]:
    """A list as it is; an empty one for everything else."""
    return value if isinstance(value, list) else []


def lookup(config: Config, path: str) -> Any:
    value: Any = config
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value
