"""`--peel`: past a known failure to the one behind it. Pure; the caller launches.

launch ─▶ known failure A ─▶ launch under A's edits ─▶ known failure B ─▶ launch under both … ─▶ the end
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from harness.known.catalogue import KnownFailures
from harness.known.format import Step
from harness.known.patches import Patch
from harness.record import Run

Under = tuple[Step, ...]


def peel(launch: Callable[[Under], Run], known: KnownFailures) -> Iterator[Run]:
    """Launch, and again under the workaround of each known failure that is met; one run a rung.

    The end is a run that passes, an ERROR, a failure that nobody knows, or one without another way around it.
    """
    under: Under = ()
    while True:
        run = launch(under)
        yield run
        more = way_around(run, under, known)
        if not more:
            return
        both = (*under, *more)
        under = (*(step for step in both if step.edit), *(step for step in both if not step.edit))


def way_around(run: Run, under: Sequence[Step | Patch], known: KnownFailures) -> Under:
    """The next stage of the workaround that was not tried yet."""
    entry = known.met(run.signature, run.version)
    if entry is None or run.verdict not in ("FAIL", "PASS"):  # PASS: a reproduction that failed as foretold
        return ()
    return next((stage for stage in entry.stages() if not all(step in under for step in stage)), ())
