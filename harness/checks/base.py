"""What every check is made of: parameters, a context to work in, a result with measured values and their limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict


def kebab(name: str) -> str:
    return name.replace("_", "-")


class Params(BaseModel):
    """Parameters of a check as a scenario writes them (kebab-case); unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=kebab, populate_by_name=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    name: str
    value: float | int | str | None
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
    """One sentence: what was wrong, with the value and the limit; or what was measured."""
    measurements: tuple[Measurement, ...] = ()
    seconds: float = 0.0
    request: int | None = None
    """Number of the request, counted from 1 after ready, at which it failed."""
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckContext:
    """All that a check may use. It talks HTTP through `client` and never knows which server answers."""

    client: Client
    params: Any
    node_class: str
    lines: Callable[[], Sequence[str]]
    """The server's log lines since ready that the runtime's `watch` patterns kept (JIT compilations, warnings)."""
    corpora: Path


class Client(Protocol):
    """See harness.client.ServerClient; numbers every request after ready."""

    model: str
    requests: int


class Check(Protocol):
    """One file in harness/checks, one row in CHECKS."""

    name: str
    params: type[Params]

    def run(self, context: CheckContext) -> CheckResult: ...
