"""What all probes so far say of the builds of a range, each from where it stands in the order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from harness.bisect.confidence import Tally
from harness.bisect.ends import UNREACHED
from harness.bisect.examine import Trial
from harness.bisect.search import Seen, Unknown
from harness.build import Build
from harness.known import Change


class Evidence:
    """Trials by build, and under which changes the chased failure was seen."""

    def __init__(self, *, fix: bool, allow_unreached: bool) -> None:
        self._fix, self._allow_unreached = fix, allow_unreached
        self.trials: defaultdict[Build, list[Trial]] = defaultdict(list)
        self._proofs: dict[tuple[str, ...], bool] = {}

    @property
    def runs(self) -> frozenset[str]:
        """The ids of all runs that it rests on."""
        return frozenset(run.id for trials in self.trials.values() for trial in trials for run in trial.runs)

    def add(self, build: Build, trial: Trial) -> None:
        self.trials[build].append(trial)
        if trial.judged.mark == "BAD":
            self.prove(trial.under, shown=True)

    def prove(self, under: Sequence[Change], *, shown: bool) -> None:
        """Note whether the chased failure was there under these changes; once it was, they are believed."""
        key = _key(under)
        self._proofs[key] = shown or self._proofs.get(key, False)

    def unproven(self, trial: Trial) -> bool:
        """Whether its mark waits for a look at the bad end under the same changes."""
        return trial.judged.mark == "GOOD" and bool(trial.under) and _key(trial.under) not in self._proofs

    def believed(self, trial: Trial) -> bool:
        """Whether a mark counts: one won under changes does where the chased failure was seen under the same."""
        return trial.judged.mark != "GOOD" or not trial.under or self._proofs.get(_key(trial.under), False)

    def bad(self) -> Build:
        """A build that showed the chased failure."""
        return next(build for build, trials in self.trials.items() for trial in trials if trial.judged.mark == "BAD")

    def side(self, trial: Trial) -> Seen:
        judged = trial.judged
        if judged.mark == "BAD":
            return "before" if self._fix else "after"
        if judged.mark == "GOOD" and self.believed(trial):
            return "after" if self._fix else "before"
        if self._allow_unreached and judged.masking in UNREACHED and not self._fix:
            return "before"
        return Unknown(cause=trial.plain.cause if judged.mark == "GOOD" else judged.cause)

    def seen(self, builds: Sequence[Build]) -> dict[int, Seen]:
        """The side of each build that was judged, by its place; the ends were verified, here or on a coarser level."""
        seen = {at: self.side(self.trials[build][0]) for at, build in enumerate(builds) if build in self.trials}
        return {**seen, 0: "before", len(builds) - 1: "after"}

    def tallies(self, builds: Sequence[Build]) -> dict[int, Tally]:
        """How often each build showed the failure and how often not, by its place."""
        return {at: self._tally(self.trials[build]) for at, build in enumerate(builds) if build in self.trials}

    def _tally(self, trials: Sequence[Trial]) -> Tally:
        sides = [self.side(trial) for trial in trials]
        shown = sum(trial.judged.mark == "BAD" for trial in trials)
        causes = [side.cause for side in sides if isinstance(side, Unknown)]
        passed = len(trials) - shown - len(causes)
        unknown = bool(causes) and not shown
        return Tally(shown=shown, passed=passed, unknown=unknown, cause=causes[0] if unknown else "")


def _key(under: Sequence[Change]) -> tuple[str, ...]:
    return tuple(change.key for change in under)
