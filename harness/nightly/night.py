"""What of the watched builds is not on disk yet is run; then each scenario on each of them is one row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness import environment, known, node, record, recorder, run
from harness.baseline.history import History
from harness.bisect.memory import Question, rejudged
from harness.build import parse
from harness.errors import HarnessError, Interrupted, UnmetError, UsageError
from harness.events import Event, OnEvent
from harness.nightly import judging, watching
from harness.nightly.config import Config, Watch
from harness.nightly.judging import Row
from harness.nightly.watching import Watched
from harness.node_class import CPU
from harness.record import Run
from harness.scenario import Scenario

GRACE_SECONDS = 8.0
"""For the teardown after an interruption, as `harness run` has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A row, and what a search for its failure needs."""

    row: Row
    scenario: Scenario
    watched: Watched
    run: Run | None = None
    green: Run | None = None


@dataclass(kw_only=True)
class Night:
    """One call; `troubles` are what kept it from asking or running."""

    config: Config
    out: Path
    on_event: OnEvent
    troubles: list[str] = field(default_factory=list)
    _records: dict[str, Run | None] = field(default_factory=dict)
    """By folder, each read once; None for what is no run of a night."""

    def found(self) -> Iterator[Found]:
        """Run what is new, one after the other, and judge everything.

        Raises:
            Interrupted, KeyboardInterrupt: the same call goes on.
        """
        for scenario in self.config.scenarios:
            known.beside(scenario.path)  # what is wrong in it is said before hours are spent
        watched = [each for watch in self.config.body.builds for each in self._newest(watch)]
        for each in watched:
            yield from (self._found(scenario, each) for scenario in self.config.scenarios)

    def _newest(self, watch: Watch) -> Iterator[Watched]:
        """Of a source that cannot be asked the others are no worse."""
        try:
            yield watching.newest(watch, self.config, self.on_event)
        except Interrupted:
            raise
        except HarnessError as error:
            self.troubles.append(str(error))

    def _found(self, scenario: Scenario, watched: Watched) -> Found:
        here = node.read()
        try:
            node.check_needs(here, gpus=scenario.needs.gpus, gpu_memory_gib=scenario.needs.gpu_memory_gib)
        except UnmetError as error:
            return self._without(scenario, watched, "SKIP", said=error.what)
        asked = recorder.asked(scenario)
        failed = [each for each in self._same(asked, here) if _in_vain(each, watched)]
        if len(failed) >= self.config.body.attempts:
            return self._given_up(scenario, watched, failed)
        done = self._answer(scenario, watched, asked, here) or self._run(scenario, watched)
        runs = [made for each in self._same(asked, here) if (made := self._judged(each, scenario))]
        earlier = [each for each in runs if watched.before(parse(each.build), self.config)]
        green = watched.latest([each for each in earlier if each.verdict == "PASS"], self.config)
        row = judging.judged(done, earlier=earlier, green=green, past=History().past(done))
        return Found(row=row, scenario=scenario, watched=watched, run=done, green=green)

    def _answer(self, scenario: Scenario, watched: Watched, asked: str, here: node.Node) -> Run | None:
        """The newest run on disk that says what a run would say."""
        try:
            provided = environment.provide(watched.build, here, on_step=self._notice)
        except HarnessError:
            return None  # the run will fail of it, and its record say how
        question = Question(
            meaning=asked, content=provided.content, packages=provided.packages, node_class=provided.class_on(here)
        )
        there = [each for each in self._same(asked, here) if question.answered_by(each)]
        judged = (made for each in reversed(there) if (made := self._judged(each, scenario)))
        if found := next(judged, None):
            self._notice(f"{scenario.title} on {watched.build}: {found.id} has answered already")
        return found

    def _judged(self, done: Run, scenario: Scenario) -> Run | None:
        """By the present rules; a reproduction as it was judged then. None: it says nothing of its build."""
        if scenario.expect is not None:
            return done if done.verdict in ("PASS", "FAIL") else None
        return rejudged(done, self.out / done.id)

    def _run(self, scenario: Scenario, watched: Watched) -> Run:
        handling = run.Handling(expected=True)
        return run.execute(
            scenario,
            build=watched.build,
            out=self.out,
            sets=(),
            on_event=self.on_event,
            grace=GRACE_SECONDS,
            handling=handling,
        )

    def _same(self, asked: str, here: node.Node) -> list[Run]:
        """Finished runs of a question here, the oldest first: those of nights, not what a search tried."""
        for file in self.out.glob("*/run.json"):
            if file.parent.name not in self._records:
                self._read(file)
        classes = (here.node_class, CPU)  # the second for builds that do not use its GPUs
        same = (each for each in self._records.values() if each and judging.same_question(each, asked, classes))
        return sorted(same, key=lambda each: (each.started, each.id))

    def _read(self, file: Path) -> None:
        try:
            each = record.load(file)
        except UsageError as error:
            self._records[file.parent.name] = None
            self.troubles.append(error.what)
            return
        if each.state != "running":
            usable = each.state == "finished" and not each.probe and not each.under
            self._records[file.parent.name] = each if usable else None

    def _given_up(self, scenario: Scenario, watched: Watched, failed: list[Run]) -> Found:
        last = failed[-1]
        said = f"given up after {len(failed)} runs that ended in an error: {last.reason}"
        fix = f"{last.fix or 'read its report'}; remove {self.out / last.id} to have it tried again"
        return self._without(scenario, watched, "ERROR", said=said, fix=fix, run=last)

    def _without(
        self,
        scenario: Scenario,
        watched: Watched,
        status: judging.Status,
        *,
        said: str,
        fix: str = "",
        run: Run | None = None,
    ) -> Found:
        row = Row(
            title=scenario.title,
            build=str(watched.build),
            node_class=node.read().node_class,
            status=status,
            said=said,
            fix=fix,
            run=run.id if run else "",
            reproduce=run.reproduce if run else "",
        )
        return Found(row=row, scenario=scenario, watched=watched, run=run)

    def _notice(self, text: str) -> None:
        self.on_event(Event(kind="notice", text=text))


def _in_vain(done: Run, watched: Watched) -> bool:
    return done.verdict == "ERROR" and done.build == str(watched.build)
