"""One build, judged: run it, and where another bug covers the chased one, run it again under a way around that.

    run ─▶ MASKED, covered by A ─▶ run under A's workaround ─▶ MASKED, covered by B ─▶ run under both … ─▶ the mark

Ways around are the workarounds of known failures and the user's patches. A mark won under one is only as good as the
way around: what takes the chased failure away together with the other would make every build look good. So it is not
believed before a build was seen to show the chased failure under the very same changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from harness.bisect import marks
from harness.bisect.marks import Chased, Judged
from harness.known import Change, KnownFailures, Patch, way_around
from harness.record import Run

Observe = Callable[[tuple[Change, ...]], Run]
"""Run the build that is examined under these changes, or find the run that did."""
Applies = Callable[[Patch, Run], bool]
"""Whether a patch is for the build of this run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """All that was found out about one build."""

    runs: tuple[Run, ...]
    """The plain one first, then one under each more of the ways around."""
    judged: Judged
    """The mark of the last run that has one."""
    under: tuple[Change, ...] = ()
    """What that one was made under."""
    plain: Judged
    """The mark without any way around."""

    @property
    def words(self) -> str:
        """`under patch x.diff`; empty for a plain mark."""
        return f"under {' and '.join(change.words for change in self.under)}" if self.under else ""


def examine(
    observe: Observe,
    chased: Chased,
    *,
    known: KnownFailures,
    patches: Sequence[Patch] = (),
    applies: Applies = lambda _patch, _run: True,
    fix: bool = False,
) -> Trial:
    """Run a build, and again under whatever may get past the bug that covers the chased one."""
    runs = [observe(())]
    plain = best = marks.judge(runs[0], chased, fix=fix)
    tried, under, last = tuple[Change, ...](), tuple[Change, ...](), runs[0]
    while _covered(best) and (more := _more(last, tried, known, patches, applies)):
        tried = (*tried, *more)
        runs.append(observe(_in_order((*under, *more))))
        found = marks.judge(runs[-1], chased, fix=fix)
        if found.mark != "SKIP":  # else this one does not fit the build, and the next may
            best, under, last = found, _in_order((*under, *more)), runs[-1]
    return Trial(runs=tuple(runs), judged=best, under=under, plain=plain)


def _covered(judged: Judged) -> bool:
    return judged.masking in ("covered", "replaced", "refused")


def _more(
    run: Run, tried: tuple[Change, ...], known: KnownFailures, patches: Sequence[Patch], applies: Applies
) -> tuple[Change, ...]:
    """The next way around: of the known failure that was met, else the user's next patch for this build."""
    if found := way_around(run, tried, known):
        return found
    left = (patch for patch in patches if patch not in tried and applies(patch, run))
    return tuple(islice(left, 1))


def _in_order(under: tuple[Change, ...]) -> tuple[Change, ...]:
    """Changes of sources first: what is edited is the same whatever is overridden."""
    return (*(each for each in under if each.touches_sources), *(each for each in under if not each.touches_sources))
