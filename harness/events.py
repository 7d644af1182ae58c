"""What a run tells whoever watches it: the terminal, a CI log, a test. Nothing below `cli.py` prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    kind: Literal["run", "step", "spawned", "phase", "check", "notice", "verdict", "mark"]
    """run: one begins · step: work before the spawn · spawned: the server runs, `tail` gives its last line ·
    phase: one began · check: one ended · notice: worth a line · verdict: the end ·
    mark: what a probe of a bisection says."""
    text: str
    t: float | None = None
    """Seconds since the spawn, where there was one."""
    ok: bool | None = None
    tail: Callable[[], str] | None = None


OnEvent = Callable[[Event], None]


def ignore(event: Event) -> None:
    """For callers who only want the Run."""
    del event
