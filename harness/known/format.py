"""What may stand in `known_failures.yaml`, as types; see `harness.scenario.format` for the habits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from harness.scenario import rules
from harness.scenario.format import Builds, EnvChange, Registry, Strict, Text
from harness.scenario.model import changes
from harness.scenario.yaml_source import Node, Problem
from harness.units import EnvName

NOTHING = "nothing"
_FILE = re.compile(r"[A-Za-z_]\w*(/\w+)*/\w+\.py")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def _file(text: str) -> str:
    if not _FILE.fullmatch(text):
        message = f'"{text}" is not a Python file as seen from site-packages, such as vllm/v1/core.py'
        raise PydanticCustomError("harness", "{text}", {"text": message})
    return text


def _function(text: str) -> str:
    if not _FUNCTION.fullmatch(text):
        message = f'"{text}" is not the name of a function: write name or Class.name'
        raise PydanticCustomError("harness", "{text}", {"text": message})
    return text


def _pattern(text: str) -> str:
    if not text.strip("* "):
        raise PydanticCustomError("harness", "{text}", {"text": f'"{text}" would match every failure'})
    return text


class Edit(Strict):
    """A change of one place in a build's sources, made in a copy of them."""

    file: Annotated[str, AfterValidator(_file)]
    """As seen from site-packages: vllm/v1/worker/mamba_utils.py."""
    function: Annotated[str, AfterValidator(_function)]
    """The function that holds the place: name or Class.name."""
    replace: Text
    """Text that stands exactly once in that function."""
    with_: Annotated[str, Field(alias="with")]
    """What to write there."""


class Step(Strict):
    """One way around a failure: an edit, or overrides of `serve` and `env`."""

    serve: Annotated[dict[str, Any], Field(default_factory=dict)]
    """Flags, merged over those of the scenario; null removes one."""
    env: Annotated[dict[EnvName, EnvChange], Field(default_factory=dict)]
    """Variables, merged over those of the scenario; null removes one."""
    edit: Edit | None = None
    removes: tuple[Text, ...] | None
    """What of the subject it takes away; null only for an edit that takes nothing."""

    @property
    def touches_sources(self) -> bool:
        """Whether the build's sources are copied for it."""
        return self.edit is not None

    @property
    def key(self) -> str:
        """All that it does: the same key, the same change."""
        return self.model_dump_json(by_alias=True, exclude_defaults=True)

    @property
    def taken(self) -> tuple[str, ...]:
        """What it removes; empty for nothing."""
        return tuple(word for word in self.removes or () if word != NOTHING)

    @property
    def words(self) -> str:
        """`edit of F in FILE, removes X`."""
        what = f"edit of {self.edit.function} in {self.edit.file}" if self.edit else changes(self.serve, self.env)
        return f"{what}, removes {', '.join(self.taken) or NOTHING}"


class Entry(Strict):
    """One known failure."""

    signature: tuple[Annotated[Text, AfterValidator(_pattern)], ...]
    """Id, or title in which `*` stands for any text; several are aliases of one failure."""
    refs: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Who reports it: vllm#54634."""
    builds: Builds
    """The releases that have it: ">=0.29.0,<0.30.0"."""
    fixed: Text | None = None
    """Where it is fixed: a release or a change."""
    scenarios: tuple[Text, ...] = ()
    """NAME or NAME[VARIANT] of those that must meet it, `*` for any text."""
    workaround: tuple[Step, ...] = ()
    """What gets past it: all edits at once, then the overrides one after the other."""


class Body(Strict):
    """`known_failures.yaml`."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    """Version of this format: 1."""
    known: tuple[Entry, ...]


def problems(root: Node, registry: Registry) -> Iterator[Problem]:
    """What the types cannot say; tolerates what they complain about."""
    for number, entry in enumerate(_items(root.child("known"))):
        for index, step in enumerate(_items(entry.child("workaround"))):
            if isinstance(step.value, dict):
                yield from _step(step, f"known[{number}].workaround[{index}]", registry)


def _step(step: Node, where: str, registry: Registry) -> Iterator[Problem]:
    overrides = [key for key in ("serve", "env") if (node := step.child(key)) and node.value]
    edit = step.child("edit")
    if (edit is None) == (not overrides):
        both = "has both an edit and overrides: make them two steps"
        yield Problem.at(
            step.mark, f"`{where}` {both if edit else 'changes nothing: give it `edit`, `serve` or `env`'}"
        )
    if serve := step.child("serve"):
        for words in registry.runtimes.values():
            yield from rules.flags(serve, f"{where}.serve", words)
    removes = step.child("removes")
    if overrides and removes and not any(item.value not in (None, "", NOTHING) for item in _items(removes)):
        yield Problem.at(removes.mark, f"`{where}.removes`: overrides always take something away; say what")
    if edit and (old := edit.child("replace")) and (new := edit.child("with")) and old.value == new.value:
        yield Problem.at(new.mark, f"`{where}.edit.with` is what was there before")


def _items(node: Node | None) -> list[Node]:
    return node.value if node and isinstance(node.value, list) else []
