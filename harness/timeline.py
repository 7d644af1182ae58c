"""What happened when: events of one launch, and the phases that they make. Pure.

The chain below is the usual order, not a law: vLLM captures graphs once while it profiles memory and once after the KV
cache, so phases have *occurrences* (`capture#1`, `capture#2`), and whatever compares progress compares completed
occurrences, never names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

PhaseName = Literal[
    "spawn", "config", "workers", "distributed", "weights", "profile", "kv_cache", "capture", "ready", "checks", "stop"
]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A log line that one row of a runtime's phase table recognised."""

    t: float
    """Seconds since the spawn, at the arrival of the line."""
    phase: PhaseName
    edge: Literal["begin", "end"]
    rule: str
    """Name of the table's row."""
    process: str | None
    """`Worker_TP0`, without its pid; None where the line has no tag."""
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One occurrence of a phase. Times in seconds since the spawn."""

    name: PhaseName
    occurrence: int
    """1 for the first."""
    start: float
    end: float | None
    """None: it never ended."""
    completed: bool
    """True only where a line or an answer showed its end, never inferred."""

    @property
    def label(self) -> str:
        return f"{self.name}#{self.occurrence}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    phases: tuple[Phase, ...] = ()
    ready: float | None = None
    """Seconds from the spawn to the first health answer that was provably ours."""

    @property
    def last(self) -> Phase | None:
        """The phase that was running last: where a crash happened."""
        return self.phases[-1] if self.phases else None
