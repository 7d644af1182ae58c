"""The folder and the first record of a bisection: the same question has the same folder, so it goes on there."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from harness import __version__, clock, node, recorder
from harness.bisect import outcome
from harness.bisect.bench import Bench
from harness.bisect.choosing import Ends
from harness.bisect.memory import Memory
from harness.bisect.outcome import Bisection
from harness.bisect.wish import Wish
from harness.errors import UsageError
from harness.record import writable


def begin(bench: Bench, ends: Ends, wish: Wish, *, fresh: bool, command: str) -> tuple[Bisection, Path, Bench]:
    """The record, its folder under `bench.out`, and the bench with what `fresh` leaves out.

    Raises:
        NodeError: the folder cannot be made.
    """
    here = node.describe()
    scenario = bench.scenario
    asked = [recorder.asked(scenario), str(ends.good), str(ends.bad), ends.fix, here.node_class]
    asked += [wish.signature, wish.also, wish.allow_unreached, wish.confidence, [patch.key for patch in bench.patches]]
    label = f"{scenario.name}.{scenario.variant}" if scenario.variant else scenario.name
    name = f"bisect-{label}-{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]}"
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


def _started(folder: Path) -> str:
    """When the one that was broken off here began; empty where there is none to go on with."""
    with suppress(UsageError):
        before = outcome.load(folder)
        return before.started if before.state != "finished" else ""
    return ""
