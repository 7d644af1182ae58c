"""What every check is made of: parameters, a context to work in, a result with measured values and their limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:  # records and scenarios need these types, but no HTTP
    from harness.checks.against import Against
    from harness.client.server_client import ServerClient
    from harness.record import Run
    from harness.runtimes.base import CounterNames


MOST_TOKENS = 1 << 24
"""Of one prompt or answer that a scenario may ask for: above the context of every model (10 million in 2026)."""
MOST_AT_ONCE = 4096
"""Requests that are under way together: each is a thread of ours."""
MOST_REQUESTS = 1_000_000
"""Of one check: the time and the log-probabilities of each are kept."""


def kebab(name: str) -> str:
    return name.replace("_", "-")


class Params(BaseModel):
    """Parameters of a check as a scenario writes them (kebab-case); unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        alias_generator=kebab,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    name: str
    value: float | int | str | None
    """None: there is no finite number."""
    unit: str
    limit: float | None = None
    """The value may not be above it (`sense` "max") or below it ("min"); None: only reported."""
    sense: Literal["max", "min"] = "max"
    ok: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    name: str
    outcome: Literal["pass", "fail", "not_tested"]
    message: str
    """One sentence: what was wrong, with the value and the limit; or what was measured.

    Only its numbers may move from night to night: the identity of the failure is the sentence without them.
    """
    measurements: tuple[Measurement, ...] = ()
    seconds: float = 0.0
    request: int | None = None
    """Number of the request, counted from 1 after ready, at which it failed."""
    detail: Mapping[str, Any] | None = None
    shows: tuple[str, ...] = ()
    """Words of the scenario's `subject` that these answers prove to be on."""
    launch: str = ""
    """The launch in which it was made, where there are several: `cold`."""
    asking: float = 0.0
    """Of `seconds`, those in which at least one request to the model was under way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfinished:
    """The part of a check that one living server can answer; its result takes the answers of a second server as well.

    own server      run(context)   ─▶ Unfinished   ┐
    … is stopped, the other is started …           ├─▶ finish(theirs) ─▶ CheckResult
    other server    ask(context)   ─▶ theirs       ┘
    """

    against: Against
    """The second launch."""
    ask: Callable[[CheckContext], Any]
    """Asks the second server the same; raises as `Check.run`."""
    finish: Callable[[Any], CheckResult]
    """Judges both; gets what `ask` returned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AfterStop:
    """A check that is judged when the server is gone."""

    finish: Callable[[Run], CheckResult]
    """Gets the record so far: every server with its phases and its memory, every result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckContext:
    """All that a check may use. It talks HTTP through `client` and never knows which server answers."""

    client: ServerClient
    params: Any
    """An instance of the check's own `params`."""
    node_class: str
    lines: Callable[[], Sequence[str]]
    """The server's log lines since ready that the runtime's `watch` patterns kept (kernels compiled in a request)."""
    corpora: Path
    names: CounterNames
    """What this server calls its counters."""
    block_tokens: Callable[[], int | None]
    """Tokens of one block of the prefix cache; asks the server. None: it does not say."""
    log: Path
    """The server's log, which grows meanwhile."""
    health_path: str
    """Where the server says whether it is well."""
    ready: float
    """Seconds that this server took to be ready."""
    cold: float | None
    """Seconds that the cold start before it took; None: there was none."""
    compiled: Callable[[], Sequence[str]]
    """Names of the kernels that came into the compile caches since ready."""


class Check(Protocol):
    """One file in harness/checks, one row in CHECKS."""

    @property
    def name(self) -> str: ...
    @property
    def params(self) -> type[Params]: ...

    def prepare(self, params: Any, *, model: str, corpora: Path) -> None:
        """Look at everything that needs no server, before minutes are spent on starting one.

        Args:
            params: an instance of the check's own `params`.
            model: as the scenario names it, paths absolute.
            corpora: the folder of the harness's own texts.

        Raises:
            ScenarioError: a file is missing, unreadable, or made for something else.
        """

    def run(self, context: CheckContext) -> CheckResult | Unfinished | AfterStop:
        """Ask the server and judge its answers.

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: a request was not answered in a way that this check judges.
            ScenarioError: the check cannot be made of this scenario's files and this server.
        """


def measured(name: str, value: float | None, unit: str, limit: float | None = None, *, digits: int = 4) -> Measurement:
    """A value, shown with so many digits after the point, and whether it is within its limit; no number is none."""
    finite = value if value is not None and math.isfinite(value) else None
    shown = None if finite is None else round(finite, digits)
    return Measurement(name=name, value=shown, unit=unit, limit=limit, ok=within(finite, limit))


def within(value: float | None, limit: float | None) -> bool:
    """Whether a value is at most its limit; no finite value is never within one."""
    return limit is None or (value is not None and value <= limit)
