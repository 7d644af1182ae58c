"""A bisection from its two ends to its answer: verify, predict, search, go finer, confirm. Knows the order, no builds.

    bad end ─▶ what is chased ─▶ good end ─▶ merge base ─▶ search ─▶ between the two found ─▶ … ─▶ both once more

Everything that was found out is on disk after each probe, as ordinary runs; the file beside them only tells of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness import clock, wanted
from harness.bisect import ends, forecast, ladder, marks, outcome, pool, search
from harness.bisect.bench import Bench
from harness.bisect.ends import Unfit
from harness.bisect.examine import Trial
from harness.bisect.marks import Chased
from harness.bisect.outcome import Bisection
from harness.bisect.pool import Job, Pool
from harness.bisect.ranges import Range
from harness.bisect.search import Answer, Seen, Unknown
from harness.build import Build
from harness.errors import Interrupted
from harness.events import Event, OnEvent
from harness.known import Change, way_around
from harness.record import Run


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Examine:
    """One probe, as a job."""

    bench: Bench
    build: Build
    chased: Chased
    nth: int = 0

    def __call__(self, on_event: OnEvent) -> Trial:
        return self.bench.examine(self.build, self.chased, nth=self.nth, on_event=on_event)


class Driver:
    """Carries one bisection out. `told` is its record as far as it is known."""

    def __init__(self, told: Bisection, bench: Bench, wish: Wish, *, folder: Path, on_event: OnEvent) -> None:
        self.told, self._bench, self._wish = told, bench, wish
        self._folder, self._on_event = folder, on_event
        self._trials: dict[Build, Trial] = {}
        self._proofs: dict[tuple[str, ...], bool] = {}
        """Of each set of changes, whether the chased failure is there under it."""

    def carry_out(self, builds: Range) -> Bisection:
        """Find the change.

        Raises:
            Interrupted, KeyboardInterrupt: after what is known was written; the same command goes on.
            HarnessError: a probe could not be made for a reason that is not the build's.
        """
        try:
            with pool.choose(self._wish.jobs, self._on_event) as workers:
                self._found(builds, workers)
        except Unfit as error:
            self._update(ending=error.ending, sentence=error.sentence, fix_hint=error.hint)
        except (Interrupted, KeyboardInterrupt):
            self._update(state="interrupted", ended=clock.utc())
            raise
        self._update(state="finished", ended=clock.utc(), ladder=ladder.rungs(self.told.probes))
        return self.told

    def _found(self, builds: Range, workers: Pool) -> None:
        self._update(notes=builds.notes)
        self._order(builds)
        bad, good = (builds.builds[0], builds.builds[-1]) if self._bench.fix else (builds.builds[-1], builds.builds[0])
        chased = self._chase(bad)
        self._verify_good(good, chased)
        builds = self._from_merge_base(builds, chased)
        while True:
            self._order(builds)
            self._update(range=tuple(map(str, builds.builds)), predicted=self._forecast(builds))
            self._on_event(Event(kind="notice", text=self.told.predicted))
            found = self._search(builds, chased, workers)
            before, first = builds.builds[found.first - 1], builds.builds[found.last]
            finer = builds.finer(before, first) if builds.finer and found.single else None
            if finer is None:
                break
            self._update(notes=(*self.told.notes, *finer.notes))
            builds = finer
        self._confirm(before, first, chased, workers)
        self._answer(builds, found)

    def _order(self, builds: Range) -> None:
        self._bench = replace(self._bench, order=tuple(map(str, builds.builds)))

    # --- the ends

    def _chase(self, bad: Build) -> Chased:
        """The failure that the bad end shows; one that was named may be behind others."""
        self._say(f"bad end {bad}")
        under: tuple[Change, ...] = ()
        runs = [self._bench.observe(bad, on_event=self._on_event)]
        while more := self._past(runs[-1], under):
            under = (*under, *more)
            runs.append(self._bench.observe(bad, under, on_event=self._on_event))
        ends.check_bad(bad, runs[-1], self._wish.signature)
        chased = marks.chased(runs[-1], also=self._wish.also, known=self._bench.known_of(runs[-1]))
        self._proofs[_key(under)] = True
        judged = marks.judge(runs[-1], chased, fix=self._bench.fix)
        trial = Trial(runs=tuple(runs), judged=judged, under=under, plain=marks.judge(runs[0], chased))
        self._note(bad, trial, "bad end")
        self._update(signature=chased.signature, stop=chased.stop)
        return chased

    def _past(self, run: Run, under: tuple[Change, ...]) -> tuple[Change, ...]:
        """A way around what hides the failure that was named."""
        word = self._wish.signature
        if word is None or run.signature is None or wanted.named(word, run.signature):
            return ()
        return way_around(run, under, self._bench.known)

    def _verify_good(self, good: Build, chased: Chased) -> None:
        self._say(f"good end {good}")
        trial = self._bench.examine(good, chased, on_event=self._on_event)
        self._note(good, trial, "good end")
        self._prove(trial, chased)
        ends.check_good(
            good, trial, believed=self._believed(trial), allow_unreached=self._wish.allow_unreached, fix=self._bench.fix
        )

    def _from_merge_base(self, builds: Range, chased: Chased) -> Range:
        """The range from where its older end left the line, if it did and that can be judged."""
        base = builds.merge_base
        if base is None or base in builds.builds:
            return builds
        self._say(f"merge base {base}")
        trial = self._bench.examine(base, chased, on_event=self._on_event)
        self._note(base, trial, "merge base")
        self._prove(trial, chased)
        side = self._side(trial)
        if side == "after":
            raise ends.unfit_base(base, builds.builds[0], fix=self._bench.fix)
        if side == "before":
            return replace(builds, builds=(base, *builds.builds[1:]), merge_base=None)
        self._update(notes=(*self.told.notes, f"the merge base {base} cannot be judged: {trial.judged.words}"))
        return builds

    # --- the search

    def _search(self, builds: Range, chased: Chased, workers: Pool) -> Answer:
        size = len(builds.builds)
        while True:
            seen = self._seen(builds)
            found = search.answer(size, seen)
            for position in workers.running:
                if found or not search.matters(size, seen, position):
                    self._say(f"{builds.builds[position]} cannot matter any more")
                    workers.cancel(position)
            if found:
                return found
            for position in search.targets(size, seen, workers=self._wish.jobs, running=workers.running):
                self._say(f"probe {builds.builds[position]}, {_left(size, seen)} builds are possible")
                job: Job = Examine(bench=self._bench, build=builds.builds[position], chased=chased)
                workers.submit(position, job)
            with forecast.prefetched(self._next(builds, seen, workers), on_event=self._on_event):
                position, trial = workers.wait()
            self._note(builds.builds[position], trial, "probe")
            self._prove(trial, chased)

    def _seen(self, builds: Range) -> dict[int, Seen]:
        judged = {at: self._trials[build] for at, build in enumerate(builds.builds) if build in self._trials}
        ends_ = {0: "before", len(builds.builds) - 1: "after"}  # verified, or found on the coarser level
        seen: dict[int, Seen] = {at: self._side(trial) for at, trial in judged.items()}
        seen.update(ends_)  # type: ignore[arg-type]  # two literals of Side
        return seen

    def _side(self, trial: Trial) -> Seen:
        judged, fix = trial.judged, self._bench.fix
        if judged.mark == "BAD":
            return "before" if fix else "after"
        if judged.mark == "GOOD":
            if not self._believed(trial):
                return Unknown(cause=trial.plain.cause)
            return "after" if fix else "before"
        if self._wish.allow_unreached and judged.masking in ends.UNREACHED and not fix:
            return "before"
        return Unknown(cause=judged.cause)

    def _believed(self, trial: Trial) -> bool:
        """Whether a mark counts: one won under changes does where the chased failure was seen under the same."""
        return trial.judged.mark != "GOOD" or not trial.under or self._proofs.get(_key(trial.under), False)

    def _prove(self, trial: Trial, chased: Chased) -> None:
        """See whether the chased failure is still there under the changes that a mark was won with."""
        if trial.judged.mark == "BAD":
            self._proofs[_key(trial.under)] = True
        elif trial.judged.mark == "GOOD" and _key(trial.under) not in self._proofs:
            bad = next(build for build, each in self._trials.items() if each.judged.mark == "BAD")
            self._say(f"does {bad} still show it {trial.words}?")
            run = self._bench.observe(bad, trial.under, on_event=self._on_event)
            judged = marks.judge(run, chased, fix=self._bench.fix)
            self._proofs[_key(trial.under)] = judged.mark == "BAD"
            proof = Trial(runs=(run,), judged=judged, under=trial.under, plain=judged)
            self._tell(bad, proof, "proof")

    def _next(self, builds: Range, seen: dict[int, Seen], workers: Pool) -> Sequence[Build]:
        """What will be probed after the one that runs, whatever it says: their environments can be made meanwhile."""
        if self._wish.jobs > 1 or not self._wish.prefetch or not workers.running:
            return ()
        at, size = workers.running[0], len(builds.builds)
        sides: tuple[Seen, Seen] = ("before", "after")
        after = (search.targets(size, {**seen, at: side}) for side in sides)
        return [builds.builds[position] for positions in after for position in positions]

    # --- the answer

    def _confirm(self, before: Build, first: Build, chased: Chased, workers: Pool) -> None:
        """The two builds that were found, once more: what changes its mind is no culprit."""
        for build in (before, first):
            if build not in self._trials:  # a merge base, or an end on the coarser level, has been judged too
                continue
            self._say(f"once more {build}")
            workers.submit(-1, Examine(bench=self._bench, build=build, chased=chased, nth=1))
            _, trial = workers.wait()
            self._tell(build, trial, "again")
            if trial.judged.mark != self._trials[build].judged.mark:
                raise ends.flaky(build, self._trials[build].judged, trial.judged)

    def _answer(self, builds: Range, found: Answer) -> None:
        culprits = tuple(str(builds.builds[at]) for at in range(found.first, found.last + 1))
        before, last = builds.builds[found.first - 1], builds.builds[found.last]
        self._update(
            ending="found" if found.single else "range",
            culprits=culprits,
            before=str(before),
            untested=tuple(str(builds.builds[at]) for at in found.untested),
            sentence=ends.answered(culprits, self.told, self._reason(builds, found)),
            log=builds.log(before, last) if builds.log else "",
        )

    def _reason(self, builds: Range, found: Answer) -> str:
        """Why those in the gap cannot be told apart."""
        inside = (self._trials.get(builds.builds[at]) for at in range(found.first, found.last))
        return next((trial.judged.why for trial in inside if trial), "")

    # --- telling

    def _note(self, build: Build, trial: Trial, role: str) -> None:
        self._trials[build] = trial
        self._tell(build, trial, role)

    def _tell(self, build: Build, trial: Trial, role: str) -> None:
        made = ladder.probe(build, trial, role)
        self._update(probes=(*self.told.probes, made))
        lead = f" {trial.words}" if trial.under else ""
        self._on_event(Event(kind="mark", text=f"{made.mark} {build}{lead}: {made.why}"))

    def _say(self, text: str) -> None:
        self._on_event(Event(kind="notice", text=text))

    def _update(self, **changes: object) -> None:
        self.told = replace(self.told, **changes)  # type: ignore[arg-type]  # names of its own fields
        outcome.save(self.told, self._folder)

    def _forecast(self, builds: Range) -> str:
        return forecast.words(len(builds.builds), self._bench, jobs=self._wish.jobs)


def _key(under: Sequence[Change]) -> tuple[str, ...]:
    return tuple(change.key for change in under)


def _left(size: int, seen: dict[int, Seen]) -> int:
    before, after = search.window(size, seen)
    return after - before
