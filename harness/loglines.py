"""A log as lines of processes: the carriers around a line taken off, its tag, level and time read. Pure.

    (Worker_TP0 pid=2673) (Worker_TP1 pid=2674) INFO 11-30 21:56:30 [interface.py:918] Setting attention …
    └ printed over by ┘   └ process, pid     ┘ └level, stamp, source              ┘ └ text

Two line formats are read: as a server prints, and as recorded for the samples (`   6.04 o text`: seconds since the
spawn, o stdout or e stderr; lines that begin with `#` are the recorder's).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

LONGEST = 20_000
"""Characters of one line that are looked at: nothing that names a cause is longer, and a log may hold 100 MB lines."""

RECORDED = re.compile(r" *(\d+\.\d\d) ([oe]) ?(.*)", re.DOTALL)
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
TAG = re.compile(r"\(([A-Za-z][\w.-]{0,60})(?: rank=\d+)? pid=(\d+)\) ?")
RECORD = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? \[([^\]\s]+:\d+)\] ?")


class LogLine(NamedTuple):
    number: int
    """1 for the first line of the file."""
    t: float | None
    """Seconds since the spawn (recorded) or since the first stamp in the log; None before the first."""
    process: str | None
    """Tag without its pid; None where the line has none."""
    pid: str | None
    level: str | None
    source: str | None
    """`core.py:1374`: the same for all lines of one record."""
    text: str

    @property
    def stream(self) -> tuple[str | None, str | None, bool]:
        """Lines of one writer: a logger's traceback and its copy on stderr do not mix."""
        return (self.process, self.pid, self.level is not None)


def read(lines: Iterable[str], *, keep: Callable[[str, int], bool] | None = None) -> Iterator[LogLine]:
    """Every line of a log; a carriage return ends a line too, as progress bars use it.

    `keep` sees each line as it is and its number, and says whether it is worth taking apart: that is what costs time.
    """
    clock = _Clock()
    for number, raw in enumerate(lines, 1):
        if keep is not None and not keep(raw, number):
            continue
        line = raw[:LONGEST].rstrip("\r\n")
        if recorded := RECORDED.fullmatch(line):
            clock.at(float(recorded[1]))
            line = recorded[3]
        elif line.startswith("# "):
            continue
        yield from _pieces(number, line, clock)


def _pieces(number: int, line: str, clock: _Clock) -> Iterator[LogLine]:
    process, pid = None, None
    for piece in line.split("\r") if "\r" in line else (line,):
        tag, text = tagged(ANSI.sub("", piece) if "\x1b" in piece else piece)
        process, pid = tag or (process, pid)
        record = RECORD.match(text)
        if record:
            clock.stamp(record[2])
            level, source, text = record[1], record[3], text[record.end() :]
            yield LogLine(number=number, t=clock.t, process=process, pid=pid, level=level, source=source, text=text)
        else:
            yield LogLine(number=number, t=clock.t, process=process, pid=pid, level=None, source=None, text=text)


def tagged(text: str) -> tuple[tuple[str, str] | None, str]:
    """The tag of a line as (name, pid), and the rest; of several tags the last owns the line."""
    owner = None
    while text.startswith("(") and (tag := TAG.match(text)):
        owner, text = (tag[1], tag[2]), text[tag.end() :]
    return owner, text


class _Clock:
    """Seconds: of the recorder where there is one, else between the log's own stamps."""

    def __init__(self) -> None:
        self.t: float | None = None
        self._recorded = False
        self._first: dt.datetime | None = None
        self._last = ""

    def at(self, seconds: float) -> None:
        self.t, self._recorded = seconds, True

    def stamp(self, words: str) -> None:
        if self._recorded or words == self._last:
            return
        self._last = words
        try:
            # The stamp has no year: 2000 has a 29 February.
            now = dt.datetime.strptime(f"2000-{words}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=dt.UTC)
        except ValueError:
            return
        self._first = self._first or now
        self.t = (now - self._first).total_seconds()
