"""The time to ready, held against what is normal for this scenario on this class of node, and against fixed limits.

Judged when the server is gone, from the history of runs (baseline/judgement.py states the rule). A regression is a
failure with a signature as any other, so that it can be bisected; the phase that grew most is measured with it. The
history belongs to a node and moves; a fixed limit says the same of every build, which a bisection needs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from harness.baseline.judgement import FEWEST, Normal, normal
from harness.baseline.samples import READY, Sample, samples
from harness.checks.base import AfterStop, CheckContext, CheckResult, Measurement, Params
from harness.timeline import PhaseName
from harness.units import Duration

if TYPE_CHECKING:
    from harness.baseline.history import History

NAME = "startup_time"
Past = Mapping[tuple[str, str], Sequence[float]]
"""Seconds of the runs before by (start, name), oldest first."""


class StartupTimeParams(Params):
    fewest: Annotated[int, Field(ge=FEWEST, le=10_000)] = FEWEST
    """Runs in the history below which nothing is judged."""
    max_slowdown: Annotated[float, Field(gt=1)] | None = None
    """Also a limit: this many times the median, however noisy the history is."""

    max: Duration | None = None
    """Longest time to ready of any start, whatever is normal: `90s`."""
    max_phase: dict[PhaseName, Duration] = Field(default_factory=dict)
    """Longest that a phase may take, each time it comes: `{weights: 30s}`."""

    @property
    def fixed(self) -> bool:
        """Whether anything is limited that no history is needed for."""
        return self.max is not None or bool(self.max_phase)


class StartupTime:
    name = NAME
    params: type[Params] = StartupTimeParams

    def prepare(self, params: StartupTimeParams, *, model: str, corpora: Path) -> None:
        """Look whether the history can be read, before minutes are spent on a start."""
        del params, model, corpora  # it is the same for all
        _history().check()

    def run(self, context: CheckContext) -> AfterStop:
        params: StartupTimeParams = context.params

        return AfterStop(finish=lambda run: judge(params, samples(run), _history().past(run)))


def judge(params: StartupTimeParams, now: Sequence[Sample], past: Past) -> CheckResult:
    """`now`: the times of this run's own starts. Pure."""
    starts = [sample for sample in now if sample.name == READY]
    measurements, faults = _fixed(params, now)
    unknown = []
    for sample in starts:
        before = past.get((sample.start, READY), ())
        usual = normal(before) if len(before) >= params.fewest else None
        of = f"_{sample.start}" if sample.start else ""
        limit = _limit(params, usual)
        slow = limit is not None and sample.seconds > limit
        measurements += [
            _seconds(f"time_to_ready{of}", sample.seconds, limit, ok=not slow),
            Measurement(name=f"history{of}", value=len(before), unit="runs"),
            *([_seconds(f"median{of}", usual.median), _seconds(f"spread{of}", usual.spread)] if usual else []),
        ]
        if usual is None:
            unknown.append(f"{len(before)} of {params.fewest} runs")
        elif slow:
            faults.append(_fault(sample, usual.median, limit))
            measurements += _grown(sample.start, now, past)
    few = f"nothing to compare with yet: the history has {', '.join(unknown)}" if unknown else ""
    shown = "; ".join(f"{each.start} ready after {each.seconds:.1f} s".lstrip() for each in starts)
    return CheckResult(
        name=NAME,
        outcome="fail" if faults else "not_tested" if unknown and not params.fixed else "pass",
        message="; ".join(faults) or (few if not params.fixed else "") or shown,
        measurements=tuple(measurements),
    )


def _history() -> History:
    from harness.baseline.history import History  # noqa: PLC0415 - it knows environments, they records, those the checks

    return History()


def _fixed(params: StartupTimeParams, now: Sequence[Sample]) -> tuple[list[Measurement], list[str]]:
    """What has a limit of its own, and a sentence for each that is above it."""
    limits = [(sample, _fixed_limit(params, sample)) for sample in now]
    rows = [(sample, limit, sample.seconds > limit) for sample, limit in limits if limit is not None]
    measurements = [
        _seconds("_".join(filter(None, (sample.name, sample.start))), sample.seconds, limit, ok=not slow)
        for sample, limit, slow in rows
    ]
    return measurements, [
        f"{f'{sample.start} start: ' if sample.start else ''}{sample.name} "
        f"{'after' if sample.name == READY else 'took'} {sample.seconds:.1f} s, {limit:.1f} s is its limit"
        for sample, limit, slow in rows
        if slow
    ]


def _fixed_limit(params: StartupTimeParams, sample: Sample) -> float | None:
    if sample.name == READY:
        return params.max
    name: PhaseName = sample.name.partition("#")[0]  # type: ignore[assignment]  # phases are named so: `capture#2`
    return params.max_phase.get(name)


def _limit(params: StartupTimeParams, usual: Normal | None) -> float | None:
    if usual is None:
        return None
    factor = params.max_slowdown
    return usual.limit if factor is None else min(usual.limit, factor * usual.median)


def _fault(sample: Sample, median: float, limit: float | None) -> str:
    lead = f"{sample.start} start: " if sample.start else ""
    return f"{lead}ready after {sample.seconds:.1f} s, at most {limit:.1f} s is normal (median {median:.1f} s)"


def _grown(start: str, now: Sequence[Sample], past: Past) -> list[Measurement]:
    """The phase that took most longer than its median; nothing where no phase did.

    Not in the sentence: in a noisy night the same regression shows most in another phase, and it must keep its name.
    """
    more = {
        sample.name: sample.seconds - statistics.median(before)
        for sample in now
        if sample.start == start and sample.name != READY and (before := past.get((start, sample.name)))
    }
    worst = max(more, key=lambda name: more[name], default=None)
    if worst is None or more[worst] <= 0:
        return []
    of = f"_{start}" if start else ""
    return [Measurement(name=f"grew_most{of}", value=f"{worst} by {more[worst]:.1f} s", unit="")]


def _seconds(name: str, value: float, limit: float | None = None, *, ok: bool = True) -> Measurement:
    rounded = None if limit is None else round(limit, 3)
    return Measurement(name=name, value=round(value, 3), unit="s", limit=rounded, ok=ok)
