"""Which bug hides which, read off the probes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from harness.bisect.examine import Trial
from harness.bisect.outcome import Probe, Rung
from harness.build import Build
from harness.clock import between
from harness.known import Patch
from harness.record import Run
from harness.wanted import named


def probe(build: Build, trial: Trial, role: Any) -> Probe:
    """A trial as it stands in the file."""
    return Probe(
        build=str(build),
        role=role,
        mark=trial.judged.mark,
        why=trial.judged.why,
        runs=tuple(run.id for run in trial.runs),
        under=trial.words,
        met=tuple(run.signature.title if run.signature else "" for run in trial.runs if run.verdict != "ERROR"),
        seconds=round(sum(map(seconds, trial.runs)), 1),
    )


def seconds(run: Run) -> float:
    """From the first line of its record to the last; 0 for one that was cut off."""
    return between(run.started, run.ended) if run.ended else 0.0


def idle(patches: Sequence[Patch], also: Sequence[str], trials: Mapping[Build, Sequence[Trial]]) -> Iterator[str]:
    """What was named and did nothing: patches that no build took, signatures that no run met."""
    every = [trial for each in trials.values() for trial in each]
    runs = [run for trial in every for run in trial.runs]
    for patch in patches:
        tried = [run for run in runs if patch.words in run.under]
        took = [run for run in tried if run.verdict in ("PASS", "FAIL")]
        if tried and not took:
            yield f"{patch.words} fitted none of the builds that it was tried on: {tried[0].reason}"
        elif not tried and any(trial.judged.masking == "covered" for trial in every):
            yield f"{patch.words} was for none of the builds in which another bug covers the chased one"
    met = [run.signature for run in runs if run.signature]
    yield from (f"no run met {word}, named with --also" for word in also if not any(named(word, each) for each in met))


def rungs(probes: Iterable[Probe]) -> tuple[Rung, ...]:
    """Every pair of bugs of which one was met behind the other, and the builds in which that was seen."""
    seen: dict[tuple[str, str], dict[str, None]] = {}
    for each in probes:
        for cover, hidden in pairwise(each.met):
            if cover and hidden and cover != hidden:
                seen.setdefault((cover, hidden), {})[each.build] = None
    return tuple(Rung(cover=cover, hidden=hidden, builds=tuple(builds)) for (cover, hidden), builds in seen.items())
