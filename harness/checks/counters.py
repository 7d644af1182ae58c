"""How far the server's own counters grew during a check's requests.

Counters move a moment after the answer that they count, so they are read once as many answers have been counted as were
asked for. A counter that the server does not have is an error, never a 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness import clock
from harness.client import prometheus

if TYPE_CHECKING:
    from harness.checks.base import CheckContext
    from harness.client.prometheus import Metrics

EARLIER_SECONDS = 1.0
"""What answers of earlier checks get to be counted. Usually they are; one that was refused never is."""
SETTLE_SECONDS = 10.0
"""What our own answers get: vLLM takes a few milliseconds, and a loaded node seconds."""
PAUSE = 0.02


class NotCounted(Exception):  # noqa: N818 - what the server does, not an error of ours
    """The server's counters cannot say what the check must know: one sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    metrics: Metrics
    answered: float
    requests: int
    """Requests that the model had been asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """Between two snapshots."""

    before: Snapshot
    after: Snapshot

    def of(self, name: str) -> float:
        """How far a counter grew; one that was born in between began at 0.

        Raises:
            NotCounted: the server does not have it.
        """
        return _value(self.after.metrics, name) - (prometheus.total(self.before.metrics, name) or 0.0)

    def by(self, name: str, label: str) -> Mapping[str, float]:
        """The same by the values of a label; empty where there are none."""
        found = {sample.labels[label] for sample in self.after.metrics.get(name, ()) if label in sample.labels}
        return {
            value: (prometheus.total(self.after.metrics, name, **{label: value}) or 0.0)
            - (prometheus.total(self.before.metrics, name, **{label: value}) or 0.0)
            for value in sorted(found)
        }


def snapshot(context: CheckContext) -> Snapshot:
    """The counters now, after those of all earlier answers moved.

    Raises:
        NotCounted: the server does not count its answers.
        ServerGone, RequestTimedOut, BadAnswer: see harness.answers.
    """
    deadline = clock.Deadline.after(EARLIER_SECONDS)
    taken = _read(context)
    while taken.answered < taken.requests and not deadline.expired:
        clock.sleep(PAUSE)
        taken = _read(context)
    return taken


def settled(context: CheckContext, before: Snapshot, *, seconds: float = SETTLE_SECONDS) -> Growth:
    """What all requests since `before` did to the counters; each must have had its answer.

    Raises:
        NotCounted: not all were counted within `seconds`.
        ServerGone, RequestTimedOut, BadAnswer: see harness.answers.
    """
    deadline = clock.Deadline.after(seconds)
    while True:
        now = _read(context)
        counted, asked = now.answered - before.answered, now.requests - before.requests
        if counted >= asked:
            return Growth(before=before, after=now)
        if deadline.expired:
            raise NotCounted(f"the server counted {counted:g} of {asked} answers within {seconds:g} s")
        clock.sleep(PAUSE)


def _read(context: CheckContext) -> Snapshot:
    metrics = context.client.metrics()
    answered = _value(metrics, context.names.answered)
    return Snapshot(metrics=metrics, answered=answered, requests=context.client.requests)


def _value(metrics: Metrics, name: str) -> float:
    found = prometheus.total(metrics, name)
    if found is None:
        raise NotCounted(f"the server has no counter {name}")
    return found
