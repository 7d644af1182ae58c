"""What a run record says of start-up times, and which question it answers. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # records know the checks, and one check reads these samples
    from harness.record import Run

READY = "ready"
"""Name of the sample that is the time to ready; others are named as their phases, `capture#2`."""


SHORTEST = 1e-3
"""Seconds. A program that listens at all takes longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One measured time of one start."""

    start: str
    """`cold`, `warm`; empty where the scenario has one plain start."""
    name: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Night:
    """An earlier run of the same question on the same class of node, and its times."""

    run: str
    """Its folder's name."""
    started: str
    version: str | None
    seconds: Mapping[str, Mapping[str, float]]
    """By start (`cold`; empty for a plain one), by name (`ready`, `capture#2`)."""


def counts(run: Run) -> bool:
    """Whether a run says what is normal."""
    whole = run.state == "finished" and not run.under and not run.probe and plausible(run)
    return whole and (run.verdict == "PASS" or run.accepted)


def plausible(run: Run) -> bool:
    """Whether its times can be times: a record may have been edited, or a clock set."""
    return all(math.isfinite(each.seconds) and each.seconds >= (each.name == READY) * SHORTEST for each in samples(run))


def samples(run: Run) -> tuple[Sample, ...]:
    """The times of the scenario's own starts that came to ready; a server to compare with is another question."""
    found: list[Sample] = []
    for each in run.own:
        if each.timeline.ready is None:
            continue
        found.append(Sample(start=each.launch, name=READY, seconds=each.timeline.ready))
        found += [
            Sample(start=each.launch, name=phase.label, seconds=round(phase.end - phase.start, 3))
            for phase in each.timeline.phases
            if phase.end is not None and phase.end <= each.timeline.ready
        ]
    return tuple(found)


def question(run: Run) -> str:
    """12 hex digits of what is started: model, flags, variables, starts; not the build, the budgets and the checks.

    Of an absolute path the last two parts count: another checkout asks the same.
    """
    asked = {key: run.resolved.get(key) for key in ("runtime", "model", "revision", "serve", "env", "when", "starts")}
    asked = {"title": run.title, **asked}
    text = json.dumps(_portable(asked), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _portable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _portable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_portable(each) for each in value]
    return "/".join(PurePath(value).parts[-2:]) if isinstance(value, str) and value.startswith("/") else value
