"""What a person sees while a run goes: a live table in a terminal, plain timestamped lines everywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TextIO

from harness import launches
from harness.bisect.outcome import Bisection
from harness.events import Event
from harness.record import Launched, Run
from harness.report.text import visible

PACKAGES = 8
"""Of those in which two builds differ so many are named here; the report has all."""


class View(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __call__(self, event: Event) -> None: ...


def choose(stream: TextIO, *, several: bool = False) -> View:
    """A live view for a terminal, plain lines for a pipe, a file or a CI log, and where several runs go at once."""
    if several or not stream.isatty():
        return PlainView(stream)
    from harness.live import LiveView  # noqa: PLC0415 - rich is for terminals only

    return LiveView(stream)


class PlainView:
    """One line an event, each with the wall-clock time and, after the spawn, its second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def __call__(self, event: Event) -> None:
        at = f" {event.t:8.2f}s" if event.t is not None else ""
        outcome = {True: " ok", False: " FAILED", None: ""}[event.ok]
        text = visible(event.text)
        print(f"{time.strftime('%H:%M:%S')}{at} {event.kind}{outcome}: {text}", file=self._stream, flush=True)


def closing(run: Run, folder: Path) -> str:
    """The last words on a run: verdict, seconds per phase, what the checks measured, where the report is."""
    checks = [f"  {launches.case(c.name, c.launch):<12} {c.outcome}: {c.message}" for c in run.checks]
    rows = [
        f"{run.verdict} {run.title}: {run.reason}",
        *([f"  do           {run.fix}"] if run.fix else []),
        *([f"  signature    {run.signature.id} {run.signature.title}"] if run.signature else []),
        *([f"  known        {run.known.words}{' (expected)' if run.expected else ''}"] if run.known else []),
        *(f"  under        {words}" for words in run.under),
        *(f"  phases (s)   {line}" for each in run.launches if (line := _phases(each))),
        *checks,
        f"  report       {folder / 'summary.md'}",
        f"  again        {run.reproduce}",
    ]
    return visible("\n".join(rows))


def _phases(launched: Launched) -> str:
    spent = [
        f"{p.label if p.occurrence > 1 else p.name} {p.end - p.start:.1f}"
        for p in launched.timeline.phases
        if p.end is not None
    ]
    return f"{f'{launched.launch}: ' if launched.launch and spent else ''}{' · '.join(spent)}"


def ladder(runs: Sequence[Run]) -> Iterator[str]:
    """What `--peel` found, one line a rung: what it was made under, what failed there, where, and who knows it."""
    for number, run in enumerate(runs, start=1):
        lead = f"under {' and '.join(run.under)}: " if run.under else ""
        yield f"{number}. {lead}{_rung(run)}"


def _rung(run: Run) -> str:
    if run.signature is None:
        return f"{run.verdict} {run.reason}"
    phase = f" in {run.signature.phase}" if run.signature.phase else ""
    who = f"known: {run.known.words}" if run.known else "not known"
    return f"{run.signature.title}{phase} ({run.signature.id}), {who}"


def sweep(rows: Sequence[tuple[object, Run]]) -> Iterator[str]:
    """Of each build: its verdict, how far it came, what stopped it."""
    yield f"{'build':<32} {'verdict':<8} {'reach':<18} signature"
    for build, run in rows:
        said = f"{run.signature.id} {run.signature.title}" if run.signature else run.reason
        yield visible(f"{build!s:<32} {run.verdict or 'ERROR':<8} {_reach(run):<18} {said}")


def _reach(run: Run) -> str:
    """The last thing that was completed: a phase, or a check that was passed."""
    passed = [launches.case(check.name, check.launch) for check in run.checks if check.outcome == "pass"]
    phases = [phase.label for phase in run.timeline.phases if phase.completed and phase.name not in ("checks", "stop")]
    return next(iter((*reversed(passed), *reversed(phases))), "nothing")


def bisected(told: Bisection, folder: Path) -> Iterator[str]:
    """The last words on a bisection: the answer, every probe, which bug hides which, where the report is."""
    return map(visible, _bisected(told, folder))


def _bisected(told: Bisection, folder: Path) -> Iterator[str]:
    yield f"{(told.ending or told.state).upper()} {told.sentence}"
    if told.fix_hint:
        yield f"  do           {told.fix_hint}"
    yield from (f"  note         {note}" for note in told.notes)
    for probe in told.probes:
        yield f"  {probe.mark:<12} {probe.build} ({probe.role}): {probe.why}{f'; {probe.under}' if probe.under else ''}"
    for build, share in sorted(told.posterior.items(), key=lambda pair: -pair[1]):
        yield f"  {share:<12.1%} {build}"
    for rung in told.ladder:
        yield f"  hides        {rung.cover} hides {rung.hidden} in {', '.join(rung.builds)}"
    if told.packages:
        more = f" and {len(told.packages) - PACKAGES} more" if len(told.packages) > PACKAGES else ""
        yield f"  packages     {', '.join(told.packages[:PACKAGES])}{more}"
    yield f"  report       {folder / 'bisection.md'}"
    yield f"  again        {told.command}"


def tally(runs: Iterable[Run]) -> Iterator[str]:
    """Of each scenario that ran several times: k/N failed."""
    for title, group in groupby(runs, key=lambda run: run.title):
        verdicts = [run.verdict for run in group]
        yield f"{title}: {sum(v != 'PASS' for v in verdicts)}/{len(verdicts)} did not pass"
