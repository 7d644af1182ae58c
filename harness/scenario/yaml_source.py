"""Strict, bounded YAML whose every value remembers where it stands, so that each error is `file:line:column`.

    bytes ──size──▶ text ──parser events──▶ Node tree (values + positions) ──plain()──▶ dict, list, str, int, …

Built from parser events in one pass, so that depth, aliases and the number of values are bounded *before* anything is
made of them: ten lines of aliases can stand for a billion values. Types follow YAML 1.2's core schema (`yes`, `off` and
`12:30` are text, `1e-5` is a number). Refused are tags, merge keys, second documents and keys that are not text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from harness.errors import ScenarioError
from harness.scenario.yaml_core import Scalar, core_scalar

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
MAX_NODES: Final = 20_000
"""Values in one file, those behind aliases counted each time they are used."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times faster, but not on every platform
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Mark:
    """Where something stands, counted from 1. Line 0: the source has no lines (`--set serve.x=y`)."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its position. Shared behind aliases, so never changed after it is made."""

    value: Scalar | list[Node] | dict[str, Node]
    mark: Mark
    keys: dict[str, Mark] = field(default_factory=dict)
    """Of a mapping: where each key stands."""
    raw: str = ""
    """Of a plain scalar: as written (`0.30`), for messages that tell to quote it."""

    def plain(self) -> Any:
        """The value without positions; what an alias stands for is copied."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def child(self, key: str | int) -> Node | None:
        if isinstance(self.value, dict) and isinstance(key, str):
            return self.value.get(key)
        if isinstance(self.value, list) and isinstance(key, int) and 0 <= key < len(self.value):
            return self.value[key]
        return None


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong: where, what, and what to write instead."""

    line: int
    column: int
    source: str
    message: str

    @classmethod
    def at(cls, mark: Mark, message: str) -> Problem:
        return cls(mark.line, mark.column, mark.source, message)

    def __str__(self) -> str:
        return f"{Mark(self.source, self.line, self.column)}: {self.message}"


@dataclass(frozen=True, slots=True)
class Document:
    root: Node
    problems: tuple[Problem, ...]
    """What could be read past: duplicate keys, tags, keys and numbers that forgot their quotes."""


class _Unreadable(Exception):  # noqa: N818 - carries a problem, is never seen outside
    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read(path: Path) -> str:
    """The text of a file of at most 1 MiB.

    Raises:
        ScenarioError: it cannot be opened, is too large or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}", fix="name a file that can be read") from error
    if len(data) > MAX_BYTES:
        raise ScenarioError(f"{path}: is larger than {MAX_BYTES >> 10} KiB", fix="this is hardly the file you mean")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        problem = Problem.at(_mark_after(before, str(path)), f"byte 0x{data[error.start]:02x} is not UTF-8")
        raise ScenarioError(str(problem), fix="save the file as UTF-8") from error


def parse(text: str, source: str, *, lines: bool = True) -> Document:
    """Read one YAML document; `lines=False` leaves line and column out of positions.

    Raises:
        ScenarioError: not YAML, or too deep or too large once its aliases are followed.
    """
    try:
        _refuse_unprintable(text, source, lines=lines)
        builder = _Builder(yaml.parse(text, Loader=_LOADER), source, lines=lines)
        return Document(builder.document(), tuple(builder.problems))
    except yaml.MarkedYAMLError as error:
        problem = Problem.at(_syntax_mark(error, source, lines=lines), _syntax_message(error, text))
        raise ScenarioError(str(problem), fix="correct the YAML") from None
    except _Unreadable as error:
        raise ScenarioError(str(error.problem), fix="correct the YAML") from None


class _Builder:
    """Events in, one Node tree out."""

    def __init__(self, events: Iterator[Any], source: str, *, lines: bool) -> None:
        self.problems: list[Problem] = []
        self._events = events
        self._source = source
        self._lines = lines
        self._count = 0
        self._anchors: dict[str, tuple[Node, int]] = {}
        """Each anchor's node, and how many values stand behind it."""

    def document(self) -> Node:
        next(self._events)  # the stream starts
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            raise _Unreadable(
                Problem.at(Mark(self._source, *((1, 1) if self._lines else ())), "there is nothing in it")
            )
        if event.version not in {None, (1, 2)}:
            raise _Unreadable(Problem.at(self._mark(event), "only YAML 1.2 is read: leave the %YAML line out"))
        root = self._node(next(self._events), 1)
        next(self._events)  # the document ends
        if isinstance(event := next(self._events), yaml.DocumentStartEvent):
            raise _Unreadable(Problem.at(self._mark(event), "a second document: one file is one scenario"))
        return root

    def _node(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        before = self._count
        self._grow(1, event)
        if depth > MAX_DEPTH:
            raise _Unreadable(Problem.at(self._mark(event), f"more than {MAX_DEPTH} levels deep"))
        if event.tag is not None:
            self._problem(event, f"the tag {event.tag} is refused: quote a value that is text")
        if isinstance(event, yaml.ScalarEvent) and "\0" in event.value:
            self._problem(event, "a NUL character cannot be given to a program")
        node = self._made(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (node, self._count - before)
        return node

    def _made(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(event, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return Node(list(self._items(depth)), self._mark(event))
        if event.style:  # quoted, or a block: always text
            return Node(event.value, self._mark(event))
        return Node(self._scalar(event), self._mark(event), raw=event.value)

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            raise _Unreadable(Problem.at(self._mark(event), f"*{event.anchor} stands for nothing that ends before it"))
        node, size = self._anchors[event.anchor]
        self._grow(size, event)
        return node

    def _items(self, depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            yield self._node(event, depth + 1)

    def _mapping(self, start: Any, depth: int) -> Node:
        values: dict[str, Node] = {}
        keys: dict[str, Mark] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            at = self._mark(event)
            value = self._node(next(self._events), depth + 1)
            name = self._key(key, at)
            if name is None:
                continue
            if name in keys:
                first = f", first at line {keys[name].line}" if self._lines else ""
                self.problems.append(Problem.at(at, f"`{name}` stands twice{first}"))
                continue
            values[name], keys[name] = value, at
        return Node(values, self._mark(start), keys=keys)

    def _key(self, key: Node, at: Mark) -> str | None:
        if key.raw == "<<":
            self.problems.append(Problem.at(at, "merge keys (<<) are not YAML 1.2: use `variants`"))
        elif not isinstance(key.value, str):
            hint = f'quote it: "{key.raw}"' if key.raw else "a mapping or list cannot be a key"
            self.problems.append(Problem.at(at, f"a key must be text; {hint}"))
        else:
            return key.value
        return None

    def _scalar(self, event: Any) -> Scalar:
        try:
            return core_scalar(event.value)
        except ValueError as error:
            self._problem(event, str(error))
            return str(event.value)

    def _grow(self, by: int, event: Any) -> None:
        self._count += by
        if self._count > MAX_NODES:
            raise _Unreadable(Problem.at(self._mark(event), f"more than {MAX_NODES} values, aliases followed"))

    def _problem(self, event: Any, message: str) -> None:
        self.problems.append(Problem.at(self._mark(event), message))

    def _mark(self, event: Any) -> Mark:
        at = event.start_mark
        return Mark(self._source, at.line + 1, at.column + 1) if self._lines else Mark(self._source)


def _refuse_unprintable(text: str, source: str, *, lines: bool) -> None:
    if bad := _UNPRINTABLE.search(text):
        mark = _mark_after(text[: bad.start()], source) if lines else Mark(source)
        raise _Unreadable(Problem.at(mark, f"character U+{ord(bad.group()):04X} is not allowed in YAML"))


def _syntax_mark(error: yaml.MarkedYAMLError, source: str, *, lines: bool) -> Mark:
    at = error.problem_mark or error.context_mark
    return Mark(source, at.line + 1, at.column + 1) if at and lines else Mark(source)


def _syntax_message(error: yaml.MarkedYAMLError, text: str) -> str:
    at = error.problem_mark
    lines = text.splitlines()
    if at and at.line < len(lines) and lines[at.line][at.column : at.column + 1] == "\t":
        return "a tab cannot indent YAML: use spaces"
    return ", ".join(part for part in (error.problem, error.context) if part)


def _mark_after(text: str, source: str) -> Mark:
    return Mark(source, text.count("\n") + 1, len(text) - text.rfind("\n"))
