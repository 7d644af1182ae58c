"""The live view of a run in a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from harness import clock
from harness.events import Event
from harness.report.text import visible


class LiveView:
    """Finished rows scroll up and stay; below them the running one: a spinner, its seconds, the last log line."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream)
        self._running = ""
        self._since = clock.now()
        self._tail: Callable[[], str] | None = None
        self._spinner = Spinner("dots")
        self._live = Live(get_renderable=self._bottom, console=self._console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        if event.kind == "spawned":
            self._tail = event.tail
        if event.kind in ("step", "spawned", "phase"):
            self._leave_row()
            self._running, self._since = event.text, clock.now()
            return
        if event.kind == "verdict":
            self._leave_row()
            self._tail = None
        if event.kind == "check":
            self._running = ""  # its own row says more
        self._console.print(_row(event))

    def _leave_row(self) -> None:
        # No tick: a phase that is over is not a phase that went well, the verdict says that.
        if self._running:
            seconds = clock.now() - self._since
            self._console.print(Text.assemble(f"  · {self._running:<44}", (f"{seconds:8.1f} s", "dim")))
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
    return Text.assemble((f"  {mark} ", style), (visible(event.text), bold))
