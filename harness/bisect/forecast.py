"""What a search will cost, said before it begins, and environments made while a probe runs."""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from harness import environment, node
from harness.bisect.bench import Bench
from harness.bisect.confidence import probes
from harness.bisect.ladder import seconds
from harness.build import Build
from harness.errors import HarnessError
from harness.events import Event, OnEvent
from harness.record import Run

AGAIN = 2
"""The two builds that are found are run once more."""
COMMON_RATE, RARE_RATE = 0.8, 0.5


def rounds(size: int, *, jobs: int = 1) -> int:
    """Probes, or with several workers rounds of probes, to find the change among `size` builds with verified ends."""
    return math.ceil(math.log(size - 1, jobs + 1) - 1e-9) if size > 1 else 0


def words(size: int, bench: Bench, *, jobs: int = 1, asked: float | None = None) -> str:
    """`5 builds, 4 of them possible: 2 probes and 2 more to confirm, about 2.8 minutes (0.7 each, from 4 runs)`.

    `asked`: where failures come and go, the confidence that is asked for.
    """
    lead = f"{size} builds, {size - 1} of them possible"
    if asked:
        return _timed(f"{lead}: {_weighed(size, asked)}", probes(size, rate=COMMON_RATE, asked=asked), bench)
    count = rounds(size, jobs=jobs)
    what = f"{count} round{_s(count)} of {jobs} probes" if jobs > 1 else f"{count} probe{_s(count)}"
    return _timed(f"{lead}: {what} and {AGAIN} more to confirm", count + AGAIN, bench)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _weighed(size: int, asked: float) -> str:
    often, seldom = (probes(size, rate=rate, asked=asked) for rate in (COMMON_RATE, RARE_RATE))
    return f"{often} probes if it fails in {COMMON_RATE:.0%} of runs, {seldom} in {RARE_RATE:.0%}"


def _timed(lead: str, count: int, bench: Bench) -> str:
    spent = [seconds(run) for run in _alike(bench)]
    if not spent:
        return f"{lead}; how long one takes is not known yet"
    minutes = statistics.median(spent) / 60
    total = minutes * count
    return f"{lead}, about {total:.1f} minutes ({minutes:.1f} each, from {len(spent)} runs)"


def _alike(bench: Bench) -> Sequence[Run]:
    title = bench.scenario.title
    return [run for run in bench.memory.runs() if run.title == title]


@contextmanager
def prefetched(builds: Sequence[Build], *, on_event: OnEvent) -> Iterator[None]:
    """While the block runs, make these builds ready; what cannot be made will say so when its turn comes."""
    if not builds:
        yield
        return
    worker = threading.Thread(target=_make, args=(builds, on_event), daemon=True)
    worker.start()
    yield
    worker.join()


def _make(builds: Sequence[Build], on_event: OnEvent) -> None:
    for build in builds:
        try:
            environment.provide(
                build, node.read(), on_step=lambda text: on_event(Event(kind="notice", text=f"meanwhile: {text}"))
            )
        except HarnessError as error:
            on_event(Event(kind="notice", text=f"meanwhile: {build} cannot be made: {error.what}"))
