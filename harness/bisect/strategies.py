"""The two ways to search, as seen by the driver: each probe settles its build, or is one more piece of evidence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.bisect import confidence, search
from harness.bisect.confidence import NoCulprit, Tally
from harness.bisect.evidence import Evidence
from harness.bisect.search import Answer, Seen
from harness.build import Build


class Strategy(Protocol):
    """What to do next, from what is known now."""

    def answer(self) -> Answer | NoCulprit | None: ...
    def targets(self, *, workers: int, running: Collection[int]) -> tuple[int, ...]: ...
    def matters(self, position: int) -> bool:
        """Whether a probe there can still change the answer."""

    def after(self, position: int) -> tuple[int, ...]:
        """What may be probed once this one is done, whatever it says."""

    @property
    def words(self) -> str:
        """How far it is."""

    def shares(self) -> Mapping[int, float]:
        """Probability of each position; -1: no culprit. Empty where probes settle things."""


def choose(evidence: Evidence, builds: Sequence[Build], *, asked: float | None, fix: bool) -> Strategy:
    """The strategy for one moment: with a confidence that is asked for it weighs, without it settles."""
    if asked is None:
        return Settling(size=len(builds), seen=evidence.seen(builds))
    tallies = evidence.tallies(builds)
    return Weighing(size=len(builds), tallies=_mirrored(len(builds), tallies) if fix else tallies, asked=asked, fix=fix)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settling:
    size: int
    seen: Mapping[int, Seen]

    def answer(self) -> Answer | None:
        return search.answer(self.size, self.seen)

    def targets(self, *, workers: int, running: Collection[int]) -> tuple[int, ...]:
        return search.targets(self.size, self.seen, workers=workers, running=running)

    def matters(self, position: int) -> bool:
        return search.matters(self.size, self.seen, position)

    def after(self, position: int) -> tuple[int, ...]:
        one: Seen = "before"
        other: Seen = "after"
        ahead = (search.targets(self.size, {**self.seen, position: side}) for side in (one, other))
        return tuple(at for targets in ahead for at in targets)

    @property
    def words(self) -> str:
        before, after = search.window(self.size, self.seen)
        return f"{after - before} builds are possible"

    def shares(self) -> Mapping[int, float]:
        return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighing:
    """`fix`: positions are mirrored, so that here too the builds that show the failure come last."""

    size: int
    tallies: Mapping[int, Tally]
    asked: float
    fix: bool

    def answer(self) -> Answer | NoCulprit | None:
        found = confidence.decide(self.size, self.tallies, asked=self.asked)
        if isinstance(found, Answer) and self.fix:
            first, last = self.size - found.last, self.size - found.first
            return Answer(first=first, last=last, untested=tuple(self._place(at) for at in reversed(found.untested)))
        return found

    def targets(self, *, workers: int, running: Collection[int]) -> tuple[int, ...]:
        busy = [self._place(at) for at in running]
        while len(busy) < workers and (at := confidence.next_probe(self.size, self.tallies, busy=busy)) is not None:
            busy.append(at)
        return tuple(self._place(at) for at in busy[len(running) :])

    def matters(self, position: int) -> bool:
        return 0 <= position < self.size

    def after(self, position: int) -> tuple[int, ...]:
        return self.targets(workers=3, running=(position,))

    @property
    def words(self) -> str:
        shares = {at: share for at, share in self.shares().items() if at >= 0}
        return f"the most likely has {max(shares.values(), default=0.0):.0%}"

    def shares(self) -> Mapping[int, float]:
        found = confidence.posterior(self.size, self.tallies)
        shares = {self.size - at if self.fix else at: share for at, share in enumerate(found.culprit, start=1)}
        return {-1: found.none, **shares}

    def _place(self, at: int) -> int:
        return self.size - 1 - at if self.fix else at


def _mirrored(size: int, tallies: Mapping[int, Tally]) -> dict[int, Tally]:
    return {size - 1 - at: tally for at, tally in tallies.items()}
