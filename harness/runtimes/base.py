"""What is particular to one kind of server, as a Protocol and as rows of tables. Pure.

A row holds a `pattern` for one line of log text (without the carrier around it) and the releases it was `seen` in, so
that whoever meets new wording adds a row and not an `if`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from harness.client.prometheus import Metrics
from harness.timeline import PhaseName


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkRule:
    """A line that shows where a start is."""

    name: str
    phase: PhaseName
    edge: Literal["begin", "end"]
    pattern: re.Pattern[str]
    """A group `world` is the number of ranks; a group `took`, in an end line, the seconds that the phase took."""
    literal: bytes
    """Always in a matching line, and holds one of the runtime's `literals`."""
    seen: tuple[str, ...]
    ranks: Literal["one", "each"] = "one"
    """one: a single process (engine, rank 0) says it for all · each: every rank says it, so it takes all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchRule:
    """A line that is worth counting after ready: a kernel compiled in the middle of a request."""

    name: str
    pattern: re.Pattern[str]
    literal: bytes
    seen: tuple[str, ...]

    def matches(self, text: str) -> bool:
        return self.pattern.search(text) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceRule:
    """A message in which the server says what it chose. The pattern stands at the beginning of the message.

    Wording that was read in the sources of releases, but in no log yet, has no `seen`; `sources` names them.
    """

    name: str
    pattern: re.Pattern[str]
    """The value is what its groups found, joined with spaces, without quotation marks."""
    literal: bytes
    """In every such line; `] ` in front of it is the end of the record's head, so that only its message can hit."""
    seen: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    value: str = ""
    """What was chosen, where the message as a whole says it."""
    counts: bool = False
    """The value is the number of items in the list that the group found."""
    tells: Literal["path", "size", "version"] = "path"
    """path: which code runs · size: it follows from the model's size, flags and memory · version: of a part."""

    def read(self, message: str) -> str | None:
        found = self.pattern.match(message)
        if found is None or self.value:
            return self.value or None if found else None
        if self.counts:
            return str(len([item for item in found[1].split(",") if item.strip()]))
        return " ".join(group for group in found.groups() if group).replace("'", "").strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectRule:
    """A word that a scenario may name under `subject:`, and the line that shows it on."""

    pattern: re.Pattern[str]
    literal: bytes
    shown_by: Literal["effect", "config"]
    """effect: the feature itself spoke · config: the server repeats it as accepted, which is weaker."""
    seen: tuple[str, ...]

    def shows(self, text: str) -> bool:
        return self.pattern.search(text) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class CounterNames:
    """What a server calls the counters in its /metrics, as printed there."""

    answered: str
    """Requests that the model has answered, whatever ended them."""
    prompt_tokens: str
    generated_tokens: str
    prefix_queries: str
    """Tokens that were looked up in the prefix cache."""
    prefix_hits: str
    """Tokens among them that were found."""
    drafts: str
    """Steps in which speculation proposed tokens for one request."""
    draft_tokens: str
    accepted_tokens: str
    accepted_per_position: str
    """Accepted tokens by the label `position`, counted from 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """Words for a second launch, and what they change in the first: `no speculation`."""

    serve: Mapping[str, Any]
    """Flags merged over the scenario's; None removes one."""
    removes: str
    """The word of `subject` that is off in it; empty where none is."""


class Runtime(Protocol):
    """One kind of server: how it is started, asked whether it is up, and read."""

    @property
    def name(self) -> str: ...
    @property
    def env(self) -> Mapping[str, str]:
        """Variables that every launch sets."""

    @property
    def dropped_env(self) -> Mapping[str, str]:
        """Inherited variables that a server must not see, and why."""

    @property
    def health_path(self) -> str: ...
    @property
    def own_flags(self) -> frozenset[str]:
        """Flags that belong to the harness; refused under `serve`."""

    @property
    def parallel_flags(self) -> tuple[str, ...]:
        """Flags whose product is the number of GPUs."""

    @property
    def marks(self) -> tuple[MarkRule, ...]: ...
    @property
    def watch(self) -> tuple[WatchRule, ...]: ...
    @property
    def choices(self) -> tuple[ChoiceRule, ...]: ...
    @property
    def subjects(self) -> Mapping[str, SubjectRule]: ...
    def accepted(self, message: str) -> Mapping[str, Any] | None:
        """The flags in a message in which the server repeats those it was given; None for any other message."""

    @property
    def counters(self) -> CounterNames: ...
    @property
    def switches(self) -> Mapping[str, tuple[str, ...]]:
        """Patterns of flags, by the check that tests nothing unless one of them is given."""

    @property
    def references(self) -> Mapping[str, Reference]:
        """Second launches by the words that a check may name under `against`."""

    def block_tokens(
        self, *, choices: Mapping[str, tuple[str, ...]], metrics: Metrics, serve: Mapping[str, Any]
    ) -> int | None:
        """Tokens of one block of the prefix cache; None: the server does not say.

        `choices` is what it logged, `metrics` what it prints, `serve` the flags that it was given.
        """

    @property
    def literals(self) -> tuple[bytes, ...]:
        """A line without any of these matches no row above. Few: a log pump looks for each one in every byte."""

    def argv(
        self,
        *,
        command: tuple[str, ...],
        model: str,
        revision: str | None,
        serve: Mapping[str, Any],
        host: str,
        port: int,
        served_model_name: str,
    ) -> tuple[str, ...]:
        """The command line of one launch."""

    def cache_env(self, caches: Path) -> Mapping[str, str]:
        """Variables that put everything the server compiles under `caches`, beside those of `env`."""
