"""The folder and the first record of a bisection: the same question has the same folder, so it goes on there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from harness import __version__, clock, locks, node, recorder
from harness.bisect import outcome
from harness.bisect.bench import Bench
from harness.bisect.choosing import Ends
from harness.bisect.memory import Memory
from harness.bisect.outcome import Bisection
from harness.bisect.ranges import Range
from harness.bisect.wish import Wish
from harness.errors import NodeError, UsageError
from harness.record import writable


def begin(
    bench: Bench, ends: Ends, builds: Range, wish: Wish, *, fresh: bool, command: str, repo: str = ""
) -> tuple[Bisection, Path, Bench]:
    """The record, its folder under `bench.out`, and the bench with what `fresh` leaves out.

    Two questions never share a folder: the range, the ways around and where they apply are in its name too.

    Raises:
        NodeError: the folder cannot be made.
    """
    here = node.describe()
    scenario = bench.scenario
    asked = [recorder.asked(scenario), str(ends.good), str(ends.bad), ends.fix, here.node_class]
    asked += [wish.signature, wish.also, wish.allow_unreached, wish.confidence, repo]
    asked += [[(patch.key, patch.builds) for patch in bench.patches], list(map(str, builds.builds))]
    name = f"bisect-{scenario.label}-{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]}"
    folder = bench.out / name
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    started = _started(folder) or clock.utc()
    told = Bisection(
        id=name,
        scenario=scenario.name,
        variant=scenario.variant,
        good=str(ends.good),
        bad=str(ends.bad),
        fix=ends.fix,
        also=wish.also,
        node_class=here.node_class,
        command=command,
        started=started,
        harness=__version__,
    )
    return told, folder, replace(bench, memory=Memory(bench.out, since=started)) if fresh else bench


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a bisection against a second process that asks the same.

    Raises:
        NodeError: another one is at it; says which.
    """
    lock = folder / ".lock"
    fd = locks.open_file(lock)
    try:
        if not locks.try_lock(fd):
            raise NodeError(
                f"{folder} is being written by {locks.holder(lock)}", fix="wait for it, or choose another --out"
            )
        locks.sign(fd, "the same bisection")
        yield
    finally:
        os.close(fd)


def _started(folder: Path) -> str:
    """When the one that was broken off here began; empty where there is none to go on with."""
    with suppress(UsageError):
        before = outcome.load(folder)
        return before.started if before.state != "finished" else ""
    return ""
