"""What every check is made of: parameters, a context to work in, a result with measured values and their limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:  # records and scenarios need these types, but no HTTP
    from harness.client.server_client import ServerClient


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

    def run(self, context: CheckContext) -> CheckResult:
        """Ask the server and judge its answers.

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: a request was not answered in a way that this check judges.
            ScenarioError: the check cannot be made of this scenario's files and this server.
        """


def within(value: float | None, limit: float | None) -> bool:
    """Whether a value is at most its limit; no finite value is never within one."""
    return limit is None or (value is not None and value <= limit)
