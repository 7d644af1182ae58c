"""What the two ends of a range must be, and the sentences for all that they can be instead."""

from __future__ import annotations

from collections.abc import Sequence

from harness import wanted
from harness.bisect.confidence import NoCulprit
from harness.bisect.examine import Trial
from harness.bisect.marks import Judged
from harness.bisect.outcome import Bisection, Ending
from harness.build import Build
from harness.record import Run

UNREACHED = ("refused", "not exercised")
"""Of a good end: it never came to what is chased."""


class Unfit(Exception):  # noqa: N818 - an answer, not an error of ours
    """There is nothing to search, or the answer is no build."""

    def __init__(self, ending: Ending, sentence: str, *, hint: str) -> None:
        super().__init__(sentence)
        self.ending, self.sentence, self.hint = ending, sentence, hint


def check_bad(build: Build, run: Run, word: str | None) -> None:
    """See that the bad end shows the failure that is chased.

    Raises:
        Unfit: it passes, fails otherwise, or could not be judged.
    """
    if run.verdict in ("ERROR", "SKIP", None):
        raise Unfit("error", f"the bad end {build} could not be judged: {run.reason}", hint=run.fix or "run it again")
    if run.signature is None:
        raise Unfit(
            "not reproduced",
            f"the bad end {build} passes: {run.reason}",
            hint="name a build that fails; if it fails now and then, search with --confidence 0.95",
        )
    if word is not None and not wanted.named(word, run.signature):
        raise Unfit(
            "not reproduced",
            f"the bad end {build} fails otherwise: {run.signature.title} ({run.signature.id}), not {word}",
            hint="leave --signature out to chase that, or name a build that shows what you mean",
        )


def check_good(build: Build, trial: Trial, *, believed: bool, allow_unreached: bool, fix: bool) -> None:
    """See that the good end does without the failure that the bad end shows.

    Raises:
        Unfit: it shows it too, never came to it, hides it behind another, or could not be judged.
    """
    judged, end = trial.judged, f"the good end {build}"
    if judged.mark == "SKIP":
        fix_hint = trial.runs[0].fix or "run it again"
        raise Unfit("error", f"{end} could not be judged: {judged.why}", hint=fix_hint)
    if judged.mark == "BAD":
        newer = "name a newer one" if fix else "name an older one"
        raise Unfit("no culprit", f"{end} fails the same way: {judged.why}", hint=f"{newer}: all of these have it")
    if judged.mark == "GOOD":
        if not believed:
            raise Unfit("not reproduced", f"{end} passes only {trial.words}, which may hide it", hint=_NARROWER)
        return
    if judged.masking in UNREACHED:
        if not allow_unreached or fix:
            raise Unfit("not reproduced", f"{end} never comes to it, {judged.why}", hint=_UNREACHED)
        return
    raise Unfit("not reproduced", f"{end} fails otherwise, {judged.why}", hint=_NARROWER)


_UNREACHED = "name another good end, or --allow-unreached to find the first build that comes to it"
_NARROWER = "name a good end that passes, give a --patch for what hides it, or name its signature with --also"


def unfit_base(base: Build, good: Build, *, fix: bool) -> Unfit:
    """The older end left the line before the change, or was repaired on its own branch."""
    what = "already without it" if fix else "already shows it"
    return Unfit(
        "not reproduced",
        f"{base}, from which {good} branched off, {what}: it differs on the branch of {good} alone",
        hint=f"search the other line: name an end before {base}",
    )


def flaky(build: Build, first: Judged, again: Judged) -> Unfit:
    return Unfit(
        "flaky",
        f"{build} was {first.words}, and once more {again.words}",
        hint="it does not fail each time: search with --confidence 0.95",
    )


def no_culprit(first: Build, last: Build, found: NoCulprit) -> Unfit:
    return Unfit(
        "no culprit",
        f"{first} … {last} all behave alike: no build brought it ({found.probability:.0%})",
        hint="it came from elsewhere (a dependency, a driver, the model), or before them: name an older --good",
    )


def nothing_to_judge() -> Unfit:
    return Unfit("no culprit", "none of these builds can be judged", hint="see the marks of the probes")


def answered(culprits: Sequence[str], told: Bisection, reason: str) -> str:
    """The answer in one sentence."""
    title = told.signature.title if told.signature else "the failure"
    what = f"first build without {title}" if told.fix else f"first build with {title}"
    if len(culprits) == 1:
        return f"{culprits[0]} is the {what}"
    return f"the {what} is one of {culprits[0]} … {culprits[-1]} ({len(culprits)} builds): {reason}"
