"""What a person sees while a run goes: a live table in a terminal, plain timestamped lines everywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from harness import clock
from harness.events import Event
from harness.record import Run


class View(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __call__(self, event: Event) -> None: ...


def choose(stream: TextIO) -> View:
    """A live view for a terminal, plain lines for a pipe, a file or a CI log."""
    return LiveView(Console(file=stream)) if stream.isatty() else PlainView(stream)


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
        print(f"{time.strftime('%H:%M:%S')}{at} {event.kind}{outcome}: {event.text}", file=self._stream, flush=True)


class LiveView:
    """Finished rows scroll up and stay; below them the running one: a spinner, its seconds, the last log line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running = ""
        self._since = clock.now()
        self._tail: Callable[[], str] | None = None
        self._spinner = Spinner("dots")
        self._live = Live(get_renderable=self._bottom, console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        if event.kind == "spawned":
            self._tail = event.tail
        if event.kind in ("step", "spawned", "phase"):
            self._finish_row()
            self._running, self._since = event.text, clock.now()
            return
        self._finish_row()
        self._console.print(_row(event))
        if event.kind == "verdict":
            self._tail = None

    def _finish_row(self) -> None:
        if self._running:
            seconds = clock.now() - self._since
            self._console.print(Text.assemble(("  ✓ ", "green"), f"{self._running:<44}", (f"{seconds:8.1f} s", "dim")))
        self._running = ""

    def _bottom(self) -> RenderableType:
        if not self._running:
            return Text("")
        line = Table.grid(padding=(0, 1))
        line.add_row(" ", self._spinner, f"{self._running:<43}", f"{clock.now() - self._since:7.1f} s")
        last = self._tail() if self._tail else ""
        return Group(line, Text(f"    {last}", style="dim", no_wrap=True, overflow="ellipsis"))


def _row(event: Event) -> Text:
    mark, style = {True: ("✓", "green"), False: ("✗", "red"), None: ("·", "blue")}[event.ok]
    bold = "bold" if event.kind in ("run", "verdict") else ""
    return Text.assemble((f"  {mark} ", style), (event.text, bold))


def closing(run: Run, folder: Path) -> str:
    """The last words on a run: verdict, seconds per phase, what the checks measured, where the report is."""
    phases = " · ".join(
        f"{p.label if p.occurrence > 1 else p.name} {p.end - p.start:.1f}"
        for p in run.timeline.phases
        if p.end is not None
    )
    checks = [f"  {c.name:<12} {c.outcome}: {c.message}" for c in run.checks]
    rows = [
        f"{run.verdict} {run.title}: {run.reason}",
        *([f"  do           {run.fix}"] if run.fix else []),
        *([f"  signature    {run.signature.id} {run.signature.title}"] if run.signature else []),
        *([f"  phases (s)   {phases}"] if phases else []),
        *checks,
        f"  report       {folder / 'summary.md'}",
        f"  again        {run.reproduce}",
    ]
    return "\n".join(rows)


def tally(runs: Iterable[Run]) -> Iterator[str]:
    """Of each scenario that ran several times: k/N failed."""
    for title, group in groupby(runs, key=lambda run: run.title):
        verdicts = [run.verdict for run in group]
        yield f"{title}: {sum(v != 'PASS' for v in verdicts)}/{len(verdicts)} did not pass"
