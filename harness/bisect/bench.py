"""How builds are run here: `run.execute`, or the run on disk that has answered already."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.version import Version

from harness import recorder, run
from harness.bisect import examine
from harness.bisect.examine import Trial
from harness.bisect.marks import Chased
from harness.bisect.memory import Memory, Question
from harness.build import Build
from harness.errors import HarnessError
from harness.events import Event, OnEvent
from harness.executors import Ask, Executor, Local
from harness.known import Change, Known, KnownFailures, Patch
from harness.record import Run
from harness.scenario import Scenario
from harness.scenario.format import in_range

TIMED = frozenset({"startup_time", "warmup"})


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One scenario, to be run on many builds."""

    scenario: Scenario
    """Nothing is expected of it: a failure is a failure."""
    out: Path
    memory: Memory
    """Of the runs below `out`, and of those the ones that may be used again."""
    sets: tuple[str, ...] = ()
    grace: float = 8.0
    known: KnownFailures = field(default_factory=KnownFailures)
    patches: tuple[Patch, ...] = ()
    order: tuple[str, ...] = ()
    """The words of the builds in their order, for patches that are for a part of them."""
    fix: bool = False
    executor: Executor = field(default_factory=Local)
    """Who makes the runs."""

    @property
    def timed(self) -> bool:
        """Whether seconds are judged, so that nothing else may be done on this node meanwhile."""
        return not TIMED.isdisjoint(self.scenario.checks)

    def observe(
        self,
        build: Build,
        under: tuple[Change, ...] = (),
        *,
        used: Collection[str] = (),
        on_event: OnEvent,
    ) -> Run:
        """The first run on disk that answers and is not among the `used` ones, else one more run.

        A run of another build with the same content answers too; that is why runs are counted, not builds.
        """
        known = self._answers(build, under, on_event)
        if found := next((each for each in known if each.id not in used), None):
            on_event(Event(kind="notice", text=f"{build}: {found.id} has answered already"))
            return found
        return self.launch(build, under, on_event)

    def launch(self, build: Build, under: tuple[Change, ...], on_event: OnEvent) -> Run:
        """One more run."""
        ask = Ask(
            scenario=self.scenario,
            build=build,
            out=self.out,
            sets=self.sets,
            grace=self.grace,
            handling=run.Handling(under=under, probe=True),
        )
        return self.executor.execute(ask, on_event)

    def known_of(self, run: Run) -> Known | None:
        """The known failure that a run met."""
        return self.known.met(run.signature, run.version)

    def examine(self, build: Build, chased: Chased, *, used: Collection[str] = (), on_event: OnEvent) -> Trial:
        """Judge a build, past other bugs where that is possible."""
        return examine.examine(
            lambda under: self.observe(build, under, used=used, on_event=on_event),
            chased,
            known=self.known,
            patches=self.patches,
            applies=self._applies,
            fix=self.fix,
        )

    def _applies(self, patch: Patch, run: Run) -> bool:
        """Whether a patch is for the build of a run: all are, those of a release's range, or a stretch of the order."""
        if not patch.builds:
            return True
        first, dots, last = patch.builds.partition("..")
        if not dots:
            return run.version is not None and in_range(Version(run.version), patch.builds)
        begin, end = place(self.order, first), place(self.order, last)
        if begin is None or end is None or run.build not in self.order:
            return False
        return begin <= self.order.index(run.build) <= end

    def _answers(self, build: Build, under: tuple[Change, ...], on_event: OnEvent) -> list[Run]:
        meaning = recorder.asked(self.scenario, under)
        if not self.memory.knows(meaning):
            return []  # what is in the build need not be known
        try:
            facts = self.executor.facts(build, on_event)
        except HarnessError:
            return []  # the run will fail of it, and its record say how
        question = Question(
            meaning=meaning, content=facts.content, packages=facts.packages, node_class=facts.node_class
        )
        return self.memory.answers(question)


def place(order: Sequence[str], word: str) -> int | None:
    """Where a build stands that is named by its word, its reference or its revision; None: it is not there."""
    named = (at for at, each in enumerate(order) if word in (each, each.partition(":")[2]) or f"@{word}" in each)
    return next(named, None) if word else None


def plain(scenario: Scenario) -> Scenario:
    """The scenario without a foretold end: where one signature is chased, each run says what it met."""
    return replace(scenario, expect=None)
