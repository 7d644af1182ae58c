"""The page of a bisection: the answer, the range as a strip, which bug hides which, every probe, how to ask again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from harness.bisect.outcome import Bisection, Probe
from harness.report.html import plots, run_page
from harness.report.html.page import fill
from harness.report.text import one_line

MOST_ALONE = 3
"""So many builds next to each other that were not probed stand alone; more are one stretch."""
WORDS = 300
Step = tuple[str, str]
"""Title of a bug, and the builds in which it was met behind the one before it."""
Chain = tuple[Step, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A build of the range, or a stretch of those that were not probed."""

    mark: str
    builds: tuple[str, ...]
    why: str
    label: str
    """`last before it`, `suspect`; empty for any other."""

    @property
    def name(self) -> str:
        return self.builds[0] if len(self.builds) == 1 else f"{self.builds[0]} … {self.builds[-1]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """A log that shows one side of the change."""

    build: str
    mark: str
    log: str


def render(
    told: Bisection, out: Path, *, title: str, headline: str, commands: Sequence[str], sides: Sequence[Side]
) -> str:
    """The page; `out` is the folder that holds the runs, beside the bisection's own."""
    shares = [(one_line(build, 60), share) for build, share in told.posterior.items()]
    return fill(
        "bisection.html",
        told=told,
        word=told.ending or told.state,
        title=title,
        headline=headline,
        cells=list(cells(told)),
        ladders=list(ladders(told)),
        picture=plots.shares(shares, name="shares"),
        pictures=plots.available(),
        without=plots.WITHOUT,
        commands=commands,
        sides=sides,
        met=met,
        links={name: link for probe in told.probes for name in probe.runs if (link := _link(out, name))},
    )


def _link(out: Path, name: str) -> str:
    """Of a run that is still there the best to read."""
    found = (each for each in (run_page.NAME, "summary.md", "run.json") if (out / name / each).is_file())
    return next((f"../{name}/{each}" for each in found), "")


def met(probe: Probe) -> list[str]:
    """What its runs failed with, where the reason for its mark does not say the same already."""
    titles = [title or "passed" for title in probe.met]
    return [] if len(titles) == 1 and titles[0] in probe.why else titles


def cells(told: Bisection) -> Iterator[Cell]:
    """The range in its order; where a build was judged several times, what was said of it last."""
    last = {probe.build: probe for probe in told.probes if probe.role != "proof"}
    for label, group in groupby(told.range, key=lambda build: _kind(told, build, last)):
        builds = tuple(group)
        if builds[0] in last or len(builds) <= MOST_ALONE:
            yield from (_cell(told, (build,), last) for build in builds)
        else:
            yield Cell(mark="untested", builds=builds, why=f"{len(builds)} builds, not probed", label=label[1])


def _kind(told: Bisection, build: str, last: Mapping[str, Probe]) -> tuple[str, str]:
    """What may be one stretch: builds without a probe that are all suspects, or all none."""
    return (build if build in last else "", _label(told, build))


def _cell(told: Bisection, builds: tuple[str], last: Mapping[str, Probe]) -> Cell:
    probe, label = last.get(builds[0]), _label(told, builds[0])
    if probe is None:
        return Cell(mark="untested", builds=builds, why="not probed", label=label)
    met = next((title for title in reversed(probe.met) if title), "")
    why = f"{probe.why}; {probe.under}" if probe.under else probe.why
    said = why if not met or met in why or probe.mark == "GOOD" else f"{why}: {met}"
    return Cell(mark=probe.mark, builds=builds, why=one_line(said, WORDS), label=label)


def _label(told: Bisection, build: str) -> str:
    if build == told.before:
        return "last bad" if told.fix else "last good"
    if build not in told.culprits:
        return ""
    first = "first fixed" if told.fix else "first bad"
    return first if len(told.culprits) == 1 else f"{first}, maybe"


def ladders(told: Bisection) -> Iterator[Chain]:
    """Chains of bugs, each hidden by the one before it."""
    behind: dict[str, list[Step]] = {}
    for rung in told.ladder:
        behind.setdefault(rung.cover, []).append((rung.hidden, ", ".join(rung.builds)))
    hidden = {rung.hidden for rung in told.ladder}
    tops = [cover for cover in behind if cover not in hidden] or list(behind)[:1]
    for top in tops:
        yield from _down(((top, ""),), behind)


def _down(chain: Chain, behind: Mapping[str, list[Step]]) -> Iterator[Chain]:
    seen = {title for title, _ in chain}
    further = [rung for rung in behind.get(chain[-1][0], ()) if rung[0] not in seen]
    if not further:
        yield chain
    for rung in further:
        yield from _down((*chain, rung), behind)
