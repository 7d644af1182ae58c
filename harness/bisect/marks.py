"""What one run says about the failure that is chased: GOOD, BAD, MASKED or SKIP. Pure.

    PASS, the subject shown on, the chased check answered              GOOD
    the chased failure, in whatever phase                              BAD
    another failure, later than where the chased one strikes           GOOD   where the chased one is synchronous
    another failure, before that or who knows when                     MASKED covered by it
    a refusal, a similar failure, a subject that was not on            MASKED refused, maybe the same, not exercised
    trouble of the node, the scenario or the harness; no such build    SKIP

*Stop* of the chased failure: the first occurrence that the verified bad run began and did not complete. *Reach* of a
run: the occurrences that it completed, each shown by a line or an answer. Occurrences, never names: vLLM captures
graphs twice, and a run that died in `capture#1` has said nothing about `capture#2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harness import launches, triage, wanted
from harness.errors import Blame
from harness.known import Known
from harness.record import Launched, Run
from harness.signature import Signature

Mark = Literal["GOOD", "BAD", "MASKED", "SKIP"]
Masking = Literal["covered", "replaced", "refused", "maybe the same", "not exercised"]

ASYNCHRONOUS = frozenset({"cuda_error", "killed_signal", "hang", "nccl", "oom_gpu", "oom_kv_cache", "oom_host"})
"""Kinds that strike elsewhere than their cause: to have come past the place proves nothing."""
REFUSALS = frozenset({"config_invalid", "cli_usage", "model_unsupported"})
"""Kinds with which a server says no, where that is before it starts workers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """The mark of one run, and why, in words."""

    mark: Mark
    why: str
    """`passed`, `covered by TITLE`, `refused: TITLE`, the reason of an error."""
    masking: Masking | None = None
    cover: Signature | None = None
    """The failure that was met in place of the chased one."""
    blame: Blame | None = None
    """Of a SKIP: whose trouble it was."""

    @property
    def words(self) -> str:
        return f"{self.mark} ({self.why})"

    @property
    def cause(self) -> str:
        """The same for neighbours that cannot be judged for the same reason."""
        return self.cover.id if self.cover else re.sub(r"\d+", "#", self.why)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chased:
    """The failure whose first build is looked for, as the verified bad run showed it."""

    signature: Signature
    stop: str | None = None
    """`capture#1`, `warm: capture#2`, `prefix_cache`; None: no bad run is at hand, so nobody can come past it."""
    shown: frozenset[str] = frozenset()
    """Words of the subject that were on in the bad run."""
    also: tuple[str, ...] = ()
    """Ids, prefixes of ids or titles that are the same failure in other words."""
    known: Known | None = None
    """The known failure that it is: all its signatures are this failure."""

    def is_it(self, signature: Signature) -> bool:
        if signature.id == self.signature.id or any(wanted.named(word, signature) for word in self.also):
            return True
        return self.known is not None and self.known.is_seen_in(signature)


def chased(run: Run, *, also: tuple[str, ...] = (), known: Known | None = None) -> Chased:
    """What a run that failed lets us chase."""
    assert run.signature is not None, "a run without a failure shows nothing to chase"
    shown = frozenset(word for word, on in run.subject.items() if on)
    return Chased(signature=run.signature, stop=stop(run), shown=shown, also=also, known=known)


def unseen(word: str, *, also: tuple[str, ...] = ()) -> Chased:
    """A failure of which only its name is known: where it strikes is not, so no other failure can be past it."""
    named = Signature(
        id=word, kind="other", exception=None, message="", normalised="", frames=(), process=None, phase=None,
        ranks=None, title=word,
    )  # fmt: skip
    return Chased(signature=named, also=(word, *also))


def unjudged(run: Run) -> Judged:
    """Of a bad end that shows nothing to chase: what it did instead."""
    if run.verdict not in ("PASS", "FAIL"):
        return Judged(mark="SKIP", why=run.reason, blame=run.blame)
    if run.signature is None:
        return Judged(mark="GOOD", why="passed")
    return _masked("covered", f"covered by {run.signature.title}", run.signature)


def stop(run: Run) -> str:
    """The first occurrence that a failed run began and did not complete: a phase, or the check that failed."""
    if run.timeline.ready is not None and (check := _failed_check(run)):
        return check
    begun = (phase for phase in run.timeline.phases if phase.name != "stop" and not phase.completed)
    return _label(run.launch, next((phase.label for phase in begun), "spawn#1"))


def reach(run: Run) -> frozenset[str]:
    """The occurrences that a run completed: phases of all its servers, and checks that were passed."""
    passed = {launches.case(check.name, check.launch) for check in run.checks if check.outcome == "pass"}
    return frozenset({*(label for each in run.launches for label in _completed(each)), *passed})


def judge(run: Run, chased: Chased, *, fix: bool = False) -> Judged:
    """The mark of a run. `fix`: it is the first build without the failure that is looked for."""
    if run.state != "finished" or run.verdict not in ("PASS", "FAIL"):
        return Judged(mark="SKIP", why=run.reason or f"the run is {run.state}", blame=run.blame)
    found = run.signature
    if found is None:
        return _quiet(run, chased)
    if chased.is_it(found):
        return Judged(mark="BAD", why=found.title)
    if triage.similar(found, chased.signature):
        return _masked("maybe the same", f"maybe the same: {found.title}", found)
    if found.kind in REFUSALS and not _began_workers(run):
        return _masked("refused", f"refused: {found.title}", found)
    return _otherwise(run, found, chased, fix=fix)


def _quiet(run: Run, chased: Chased) -> Judged:
    """Of a run in which nothing failed."""
    if run.verdict != "PASS":
        return _masked("covered", f"failed without a signature: {run.reason}", None)
    if dark := [word for word, on in run.subject.items() if not on]:
        return _masked("not exercised", f"not exercised: nothing showed that {', '.join(dark)} was on", None)
    if gone := sorted(chased.shown - run.subject.keys()):
        return _masked("not exercised", f"not exercised: {', '.join(gone)} was taken away", None)
    if chased.stop and _is_check(chased.stop) and chased.stop not in reach(run):
        return _masked("not exercised", f"not exercised: the check {chased.stop} was not answered", None)
    return Judged(mark="GOOD", why="passed")


def _otherwise(run: Run, found: Signature, chased: Chased, *, fix: bool) -> Judged:
    """Of a run with another failure: it speaks for the build only from beyond the place of the chased one."""
    past = chased.stop is not None and chased.stop in reach(run)
    if past and chased.signature.kind not in ASYNCHRONOUS:
        if off := sorted(word for word in chased.shown if not run.subject.get(word)):
            return _masked("not exercised", f"not exercised: nothing showed that {', '.join(off)} was on", found)
        return Judged(mark="GOOD", why=f"came past {chased.stop}, then: {found.title}", cover=found)
    if fix and chased.stop == stop(run):
        return _masked("replaced", f"replaced, not fixed: {found.title}", found)
    return _masked("covered", f"covered by {found.title}", found)


def _masked(masking: Masking, why: str, cover: Signature | None) -> Judged:
    return Judged(mark="MASKED", why=why, masking=masking, cover=cover)


def _failed_check(run: Run) -> str | None:
    failed = (check for check in run.checks if check.outcome == "fail")
    return next((launches.case(check.name, check.launch) for check in failed), None)


def _completed(launched: Launched) -> Iterator[str]:
    yield from (_label(launched.launch, phase.label) for phase in launched.timeline.phases if phase.completed)


def _label(launch: str, occurrence: str) -> str:
    return f"{launch}: {occurrence}" if launch else occurrence


def _is_check(stop: str) -> bool:
    return "#" not in stop


def _began_workers(run: Run) -> bool:
    return any(phase.name not in ("spawn", "config") for phase in run.timeline.phases)
