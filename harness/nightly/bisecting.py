"""Searches for what brought a new failure, within what one call may spend; none is made twice."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness import known
from harness import run as running
from harness.bisect import beginning, bench, outcome, rendering
from harness.bisect.bench import Bench
from harness.bisect.driver import Driver
from harness.bisect.ladder import seconds
from harness.bisect.memory import Memory
from harness.bisect.outcome import Bisection
from harness.bisect.wish import Wish
from harness.build import Build, parse
from harness.errors import HarnessError, Interrupted, UsageError
from harness.events import Event, OnEvent
from harness.known import Change
from harness.nightly.config import Budget, Config
from harness.nightly.night import Found
from harness.record import Run

ANSWERED = ("found", "range")


class Spent(HarnessError):  # noqa: N818 - it is a limit that was asked for
    """Another probe would cost more than the budget has."""


@dataclass(kw_only=True, slots=True)
class Purse:
    """What the searches of one call may still cost."""

    budget: Budget
    probes: int = 0
    gpu_minutes: float = 0.0

    def check(self) -> None:
        """See that there is something left.

        Raises:
            Spent: there is not.
        """
        if self.probes >= self.budget.probes or self.gpu_minutes >= self.budget.gpu_minutes:
            raise Spent(f"the budget is spent: {self.words}", fix="the next call goes on, or raise `budget`")

    def pay(self, run: Run, gpus: int) -> None:
        self.probes += 1
        self.gpu_minutes += seconds(run) / 60 * gpus

    @property
    def words(self) -> str:
        minutes = f"{self.gpu_minutes:.1f} of {self.budget.gpu_minutes:g} GPU minutes"
        return f"{self.probes} of {self.budget.probes} probes, {minutes}"


@dataclass(frozen=True, kw_only=True)
class PaidBench(Bench):
    """A bench whose runs cost something; a run on disk costs nothing."""

    purse: Purse

    def launch(self, build: Build, under: tuple[Change, ...], on_event: OnEvent) -> Run:
        self.purse.check()
        made = super().launch(build, under, on_event)
        self.purse.pay(made, self.scenario.needs.gpus or 1)
        return made


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """What is known of where a failure came from."""

    title: str
    signature: str
    folder: str = ""
    """Of the bisection; empty where there is none."""
    ending: str = ""
    culprits: tuple[str, ...] = ()
    said: str = ""
    """One sentence: the answer, or why there is none yet."""
    command: str = ""
    probes: int = 0

    @property
    def key(self) -> str:
        """Of what is worth telling once: an answer."""
        return f"searched {self.folder} {self.ending} {' '.join(self.culprits)}" if self.ending else ""


@dataclass(kw_only=True)
class Searcher:
    config: Config
    out: Path
    on_event: OnEvent
    purse: Purse = field(init=False)
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.purse = Purse(budget=self.config.body.budget)

    def search(self, found: Found) -> Search | None:
        """Say which build brought a failure; None where there is none to explain.

        Raises:
            Interrupted, KeyboardInterrupt: the same call goes on.
        """
        run, row = found.run, found.row
        if row.status != "FAIL" or run is None or run.signature is None:
            return None
        if earlier := self._earlier(found):
            return _told(earlier, found)
        good = found.green.build if found.green else found.watched.watch.good
        if good is None:
            said = "no build is known to be green yet: `good` names one"
            return Search(title=row.title, signature=row.signature, said=said)
        try:
            return self._carried_out(found, parse(good))
        except Interrupted:
            raise
        except Spent as error:
            said = str(error)
        except HarnessError as error:
            said = str(error)
            if not isinstance(error, UsageError):  # no order between the builds is a fact, and no trouble
                self.troubles.append(f"{row.title}: {error}")
        return Search(title=row.title, signature=row.signature, said=said)

    def _earlier(self, found: Found) -> Bisection | None:
        """A search that explains this failure: of the same ends, or one since the last green build."""
        there = []
        for file in sorted(self.out.glob(f"bisect-*/{outcome.FILE}")):
            with suppress(UsageError):  # half a file of another harness: searched again
                there.append(outcome.load(file))
        alike = [each for each in there if each.state == "finished" and not each.fix and _of(each, found)]
        since = [each for each in alike if each.ending in ANSWERED and _since(each, found.green)]
        return next((each for each in alike if each.bad == found.row.build), next(iter(since), None))

    def _carried_out(self, found: Found, good: Build) -> Search:
        assert found.run is not None
        assert found.run.signature is not None
        ends, builds = found.watched.between(good, self.config)
        scenario = bench.plain(found.scenario)
        made = PaidBench(
            scenario=scenario,
            out=self.out,
            memory=Memory(self.out),
            known=known.beside(scenario.path),
            purse=self.purse,
        )
        wish = Wish(signature=found.run.signature.id, prefetch=not made.timed)
        command = shlex.join(_command(found, good))
        self.on_event(Event(kind="notice", text=command))
        told, folder, ready = beginning.begin(made, ends, builds, wish, fresh=False, command=command)
        with beginning.alone(folder):
            driver = Driver(told, ready, wish, folder=folder, on_event=self.on_event)
            try:
                told = driver.carry_out(builds)
            finally:
                rendering.write(driver.told, folder)
        return _told(told, found)


def _command(found: Found, good: Build) -> list[str]:
    run, watch = found.run, found.watched.watch
    assert run is not None
    listed = ["--builds", str(watch.list)] if watch.list else []
    ends = ["--good", str(good), "--bad", run.build, "--signature", found.row.signature]
    repo = ["--repo", watch.repo] if watch.repo else []
    return ["harness", "bisect", *running.named(found.scenario), *listed, *ends, *repo]


def _of(told: Bisection, found: Found) -> bool:
    same = (told.scenario, told.variant, told.node_class) == (
        found.scenario.name, found.scenario.variant, found.row.node_class,
    )  # fmt: skip
    return same and told.signature is not None and told.signature.id == found.row.signature


def _since(told: Bisection, green: Run | None) -> bool:
    return green is None or (told.ended or "") > green.started


def _told(told: Bisection, found: Found) -> Search:
    return Search(
        title=found.row.title,
        signature=found.row.signature,
        folder=told.id,
        ending=told.ending or "",
        culprits=told.culprits,
        said=told.sentence,
        command=told.command,
        probes=len(told.probes),
    )
