"""What a bisection is asked for, and one probe of it as a job that a child process can do."""

from __future__ import annotations

from dataclasses import dataclass

from harness.bisect.bench import Bench
from harness.bisect.examine import Trial
from harness.bisect.marks import Chased
from harness.build import Build
from harness.events import OnEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What is looked for, and how hard."""

    signature: str | None = None
    """As people name one, resolved; None: whatever the bad end shows."""
    also: tuple[str, ...] = ()
    allow_unreached: bool = False
    """A build that refuses the subject counts as one before the change."""
    confidence: float | None = None
    """For a failure that comes and goes: the probability that the answer is right."""
    jobs: int = 1
    prefetch: bool = True
    """Environments of what may come next are made while a probe runs; not where seconds are judged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Examine:
    """One probe, as a job."""

    bench: Bench
    build: Build
    chased: Chased
    used: frozenset[str] = frozenset()
    """Runs that were counted already: another one is wanted."""

    def __call__(self, on_event: OnEvent) -> Trial:
        return self.bench.examine(self.build, self.chased, used=self.used, on_event=on_event)
