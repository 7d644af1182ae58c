"""A bisection from its two ends to its answer: verify, predict, search, go finer, confirm. Knows the order, no builds.

    bad end ─▶ what is chased ─▶ good end ─▶ merge base ─▶ search ─▶ between the two found ─▶ … ─▶ both once more

Everything that was found out is on disk after each probe, as ordinary runs; the file beside them only tells of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from harness import clock, wanted
from harness.bisect import ends, forecast, ladder, marks, strategies
from harness.bisect.bench import Bench
from harness.bisect.confidence import NoCulprit
from harness.bisect.ends import Unfit
from harness.bisect.evidence import Evidence
from harness.bisect.examine import Trial
from harness.bisect.ledger import Ledger
from harness.bisect.marks import Chased
from harness.bisect.outcome import Bisection
from harness.bisect.ranges import Range
from harness.bisect.search import Answer
from harness.bisect.strategies import Strategy
from harness.bisect.wish import Examine, Wish
from harness.build import Build
from harness.errors import Interrupted
from harness.events import OnEvent
from harness.executors import Pool
from harness.known import Change, way_around
from harness.record import Run
from harness.report import compare
from harness.runtimes.vllm_recipes import DISTRIBUTIONS

ATTEMPTS = 10
"""Runs of a bad end that may pass before it is said to be none, where failures come and go: one that fails in three
runs of ten is missed in 3 % of searches."""
WORTH_NAMING = 0.01


class Driver:
    """Carries one bisection out; `told` is its record as far as it is known."""

    def __init__(self, told: Bisection, bench: Bench, wish: Wish, *, folder: Path, on_event: OnEvent) -> None:
        self._ledger, self._bench, self._wish = Ledger(told, folder=folder, on_event=on_event), bench, wish
        self._on_event = on_event
        self._evidence = Evidence(fix=bench.fix, allow_unreached=wish.allow_unreached)

    @property
    def told(self) -> Bisection:
        return self._ledger.told

    def carry_out(self, builds: Range) -> Bisection:
        """Find the change.

        Raises:
            Interrupted, KeyboardInterrupt: after what is known was written; the same command goes on.
            HarnessError: a probe could not be made for a reason that is not the build's.
        """
        try:
            with self._bench.executor.pool(self._wish.jobs, self._on_event) as workers:
                self._find(builds, workers)
        except Unfit as error:
            self._ledger.update(ending=error.ending, sentence=error.sentence, fix_hint=error.hint)
        except (Interrupted, KeyboardInterrupt):
            self._ledger.update(state="interrupted", ended=clock.utc())
            raise
        if lost := self._bench.memory.unreadable:
            self._ledger.note(f"records that cannot be read, and so answered nothing: {', '.join(sorted(lost))}")
        self._ledger.note(*ladder.idle(self._bench.patches, self._wish.also, self._evidence.trials))
        self._ledger.update(state="finished", ended=clock.utc(), ladder=ladder.rungs(self._ledger.told.probes))
        return self._ledger.told

    def _find(self, builds: Range, workers: Pool) -> None:
        self._begin(builds)
        self._ledger.say(f"{self._forecast(builds)}, after the two ends")
        older, newer = builds.builds[0], builds.builds[-1]
        chased = self._chase(older if self._bench.fix else newer)
        self._verify_good(newer if self._bench.fix else older, chased)
        finer: Range | None = self._from_merge_base(builds, chased)
        while finer:
            builds = finer
            self._begin(builds)
            self._ledger.update(range=tuple(map(str, builds.builds)), predicted=self._forecast(builds))
            self._ledger.say(self._ledger.told.predicted)
            found = self._search(builds, chased, workers)
            finer = self._finer(builds, found, chased)
        if self._wish.confidence is None:
            self._confirm(builds.builds[found.first - 1], builds.builds[found.last], chased, workers)
        self._answer(builds, found)

    def _finer(self, builds: Range, found: Answer, chased: Chased) -> Range | None:
        """What lies between the two that were found; None where nothing does, or the change came on another line."""
        if builds.finer is None or not found.single:
            return None
        finer = builds.finer(builds.builds[found.first - 1], builds.builds[found.last])
        try:
            return finer and self._from_merge_base(finer, chased)
        except Unfit as error:
            self._ledger.note(error.sentence)
            return None

    def _begin(self, builds: Range) -> None:
        """Search these builds from now on."""
        self._ledger.note(*builds.notes)
        self._bench = replace(self._bench, order=tuple(map(str, builds.builds)))

    # --- the ends

    def _chase(self, bad: Build) -> Chased:
        """The failure that the bad end shows; one that was named may be behind others."""
        self._ledger.say(f"bad end {bad}")
        passed: list[Run] = []
        runs, under = self._shown(bad)
        while self._wish.confidence and runs[-1].verdict == "PASS" and len(passed) < ATTEMPTS:
            passed.append(runs[0])
            runs, under = self._shown(bad, used=[run.id for run in passed])
        try:
            ends.check_bad(bad, runs[-1], self._wish.signature)
        except Unfit:
            unjudged = marks.unjudged(runs[-1])
            self._ledger.tell(bad, Trial(runs=runs, judged=unjudged, under=under, plain=unjudged), "bad end")
            raise
        chased = marks.chased(runs[-1], also=self._wish.also, known=self._bench.known_of(runs[-1]))
        self._evidence.prove(under, shown=True)
        self._ledger.update(signature=chased.signature, stop=chased.stop)
        for run in passed:
            self._note(bad, self._trial((run,), chased), "bad end")
        self._note(bad, self._trial(runs, chased, under), "bad end")
        return chased

    def _shown(self, bad: Build, *, used: Collection[str] = ()) -> tuple[tuple[Run, ...], tuple[Change, ...]]:
        """Its run, and those under what it takes to come to the failure that was named."""
        under: tuple[Change, ...] = ()
        runs = [self._bench.observe(bad, used=used, on_event=self._on_event)]
        while more := self._past(runs[-1], under):
            under = (*under, *more)
            runs.append(self._bench.observe(bad, under, used=used, on_event=self._on_event))
        return tuple(runs), under

    def _past(self, run: Run, under: tuple[Change, ...]) -> tuple[Change, ...]:
        word = self._wish.signature
        if word is None or run.signature is None or wanted.named(word, run.signature):
            return ()
        return way_around(run, under, self._bench.known)

    def _trial(self, runs: tuple[Run, ...], chased: Chased, under: tuple[Change, ...] = ()) -> Trial:
        plain, judged = (marks.judge(run, chased, fix=self._bench.fix) for run in (runs[0], runs[-1]))
        return Trial(runs=runs, judged=judged, under=under, plain=plain)

    def _verify_good(self, good: Build, chased: Chased) -> None:
        self._ledger.say(f"good end {good}")
        trial = self._examine(good, chased, "good end")
        if trial.judged.mark == "BAD" and self._wish.confidence:
            return  # it is evidence that no build brought it, and is weighed
        believed, allow = self._evidence.believed(trial), self._wish.allow_unreached
        ends.check_good(good, trial, believed=believed, allow_unreached=allow, fix=self._bench.fix)

    def _from_merge_base(self, builds: Range, chased: Chased) -> Range:
        """The range from where its older end left the line, if it did and that can be judged."""
        base = builds.merge_base
        if base is None or base in builds.builds:
            return builds
        self._ledger.say(f"merge base {base}")
        trial = self._examine(base, chased, "merge base")
        side = self._evidence.side(trial)
        if side == "after":
            raise ends.unfit_base(base, builds.builds[0], fix=self._bench.fix)
        if side == "before":
            return replace(builds, builds=(base, *builds.builds[1:]), merge_base=None)
        note = f"the merge base {base} cannot be judged: {trial.judged.words}"
        return replace(builds, notes=(*builds.notes, note))

    # --- the search

    def _search(self, builds: Range, chased: Chased, workers: Pool) -> Answer:
        while True:
            now = self._strategy(builds)
            found = now.answer()
            for position in workers.running:
                if found or not now.matters(position):
                    self._ledger.say(f"{builds.builds[position]} cannot matter any more")
                    workers.cancel(position)
            if isinstance(found, NoCulprit):
                raise ends.no_culprit(builds.builds[0], builds.builds[-1], found)
            if found:
                return found
            self._submit(builds, chased, workers, now)
            position, trial = self._wait(builds, workers, now)
            self._weigh(builds.builds[position], trial, chased, "probe")

    def _strategy(self, builds: Range) -> Strategy:
        asked = self._wish.confidence
        return strategies.choose(self._evidence, builds.builds, asked=asked, fix=self._bench.fix)

    def _submit(self, builds: Range, chased: Chased, workers: Pool, now: Strategy) -> None:
        for position in now.targets(workers=self._wish.jobs, running=workers.running):
            build = builds.builds[position]
            self._ledger.say(f"probe {build}, {now.words}")
            used = self._evidence.runs if self._wish.confidence else frozenset[str]()  # no run is evidence twice
            workers.submit(position, Examine(bench=self._bench, build=build, chased=chased, used=used))
        if not workers.running:
            raise ends.nothing_to_judge()

    def _wait(self, builds: Range, workers: Pool, now: Strategy) -> tuple[int, Trial]:
        """The next result; while one probe runs, the environments of what comes after it are made."""
        ahead: tuple[int, ...] = ()
        if self._wish.jobs == 1 and self._wish.prefetch:
            ahead = now.after(workers.running[0])
        with forecast.prefetched([builds.builds[at] for at in ahead], on_event=self._on_event):
            return workers.wait()

    def _examine(self, build: Build, chased: Chased, role: str) -> Trial:
        trial = self._bench.examine(build, chased, on_event=self._on_event)
        self._weigh(build, trial, chased, role)
        return trial

    def _weigh(self, build: Build, trial: Trial, chased: Chased, role: str) -> None:
        """Note a trial; a mark won under changes is only believed where the chased failure is there under them too."""
        self._note(build, trial, role)
        if self._evidence.unproven(trial):
            bad = self._evidence.bad()
            self._ledger.say(f"does {bad} still show it {trial.words}?")
            proof = self._trial(
                (self._bench.observe(bad, trial.under, on_event=self._on_event),), chased, under=trial.under
            )
            self._evidence.prove(trial.under, shown=proof.judged.mark == "BAD")
            self._ledger.tell(bad, proof, "proof")

    # --- the answer

    def _confirm(self, before: Build, first: Build, chased: Chased, workers: Pool) -> None:
        """The two builds that were found, once more: what changes its mind is no culprit."""
        for build in (before, first):
            earlier = self._evidence.trials[build][0]
            self._ledger.say(f"once more {build}")
            used = frozenset(run.id for run in earlier.runs)
            workers.submit(-1, Examine(bench=self._bench, build=build, chased=chased, used=used))
            _, trial = workers.wait()
            self._ledger.tell(build, trial, "again")
            if trial.judged.mark == "SKIP":
                self._ledger.note(f"{build} could not be run once more: {trial.judged.why}")
            elif trial.judged.mark != earlier.judged.mark:
                raise ends.flaky(build, earlier.judged, trial.judged)

    def _answer(self, builds: Range, found: Answer) -> None:
        culprits = tuple(str(builds.builds[at]) for at in range(found.first, found.last + 1))
        before, last = builds.builds[found.first - 1], builds.builds[found.last]
        lead = f"{builds.lead(before, last)}: " if builds.lead else ""
        self._ledger.update(
            ending="found" if found.single else "range",
            culprits=culprits,
            before=str(before),
            untested=tuple(str(builds.builds[at]) for at in found.untested),
            sentence=f"{lead}{ends.answered(culprits, self._ledger.told, self._reason(builds, found))}",
            log=builds.log(before, last) if builds.log else "",
            packages=self._packages(before, last),
            posterior=self._posterior(builds),
        )

    def _packages(self, before: Build, last: Build) -> tuple[str, ...]:
        """What differs beside the builds themselves; with `--confidence` either may not have been run."""
        runs = [trial.runs[-1] for build in (before, last) for trial in self._evidence.trials.get(build, [])[:1]]
        return compare.packages(*runs, held=DISTRIBUTIONS) if len(runs) == 2 else ()  # noqa: PLR2004 - both

    def _posterior(self, builds: Range) -> dict[str, float]:
        shares = self._strategy(builds).shares()
        return {
            "no culprit" if at < 0 else str(builds.builds[at]): round(share, 4)
            for at, share in shares.items()
            if share >= WORTH_NAMING
        }

    def _reason(self, builds: Range, found: Answer) -> str:
        """Why those in the gap cannot be told apart."""
        inside = (builds.builds[at] for at in range(found.first, found.last))
        return next((self._evidence.trials[b][0].judged.why for b in inside if b in self._evidence.trials), "")

    # --- telling

    def _note(self, build: Build, trial: Trial, role: str) -> None:
        self._evidence.add(build, trial)
        self._ledger.tell(build, trial, role)

    def _forecast(self, builds: Range) -> str:
        return forecast.words(len(builds.builds), self._bench, jobs=self._wish.jobs, asked=self._wish.confidence)
