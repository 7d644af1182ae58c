"""How a server that refuses to die is made to: one table, and the walk through it.

Why the rows are as they are (vLLM 0.29 to 0.32): a ready server is gone 0.3 s after one SIGTERM. While it reads its
configuration it ignores SIGINT for ever, and SIGTERM until the third. While it loads weights, one SIGINT takes 4.3 s
and leaves nothing, a single SIGTERM is ignored, SIGTERM to the whole group leaves the leader hanging, and SIGTERM every
second ends the leader in 4 s but not its engine. So: SIGINT, patience, then SIGTERM every second. Without a leader the
rest lives on for ever.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

from harness import clock
from harness.clock import Deadline
from harness.server.kept import KeptTree

Condition = Literal["ready", "starting", "hung"]


@dataclass(frozen=True, slots=True)
class Plan:
    signals: tuple[tuple[float, signal.Signals], ...]
    """Seconds since the stop began, and what the leader is sent then."""
    kill: float
    """Seconds after which the whole tree gets SIGKILL; earlier where the budget is short."""


PLANS: dict[Condition, Plan] = {
    "ready": Plan(((0, signal.SIGTERM), (2, signal.SIGTERM), (6, signal.SIGINT)), kill=20),
    "starting": Plan(((0, signal.SIGINT), *((second, signal.SIGTERM) for second in (5, 6, 7, 8))), kill=12),
    "hung": Plan((), kill=0),
}
ORPHANS_GRACE = 2.0
"""Seconds that the others get after the leader's end."""
_KILL_BY = 0.75
"""Share of the budget after which SIGKILL is due: the rest is for the kernel, the proof and the cleaning."""


def take_down(tree: KeptTree, plan: Plan, deadline: Deadline) -> tuple[str, ...]:
    """Walk through a plan until no descendant is left or the deadline is over; gives the steps as sentences."""
    begin = clock.now()
    kill_at = begin + min(plan.kill, _KILL_BY * deadline.budget)
    steps: list[str] = []

    def note(what: str) -> None:
        steps.append(f"{what} +{clock.now() - begin:.1f}s")

    for after, number in plan.signals:
        if begin + after >= kill_at or _leader_gone(tree, until=begin + after):
            break
        note(f"{number.name} leader")
        tree.signal_leader(number)
    if _leader_gone(tree, until=kill_at):
        kill_at = min(kill_at, tree.ended + ORPHANS_GRACE)
    if not _all_gone(tree, until=kill_at):
        note("SIGKILL tree")
        tree.kill()
        _all_gone(tree, until=deadline.at)
    return tuple(steps)


def _leader_gone(tree: KeptTree, *, until: float) -> bool:
    with tree.changed:
        tree.changed.wait_for(lambda: tree.code is not None or tree.lost, max(0.0, until - clock.now()))
    return tree.code is not None


def _all_gone(tree: KeptTree, *, until: float) -> bool:
    with tree.changed:
        tree.changed.wait_for(lambda: tree.empty or tree.lost, max(0.0, until - clock.now()))
    return tree.empty
