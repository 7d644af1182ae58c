"""A log as lines of processes: the carriers around a line taken off, its tag, level and time read. Pure.

    (Worker_TP0 pid=2673) (Worker_TP1 pid=2674) INFO 11-30 21:56:30 [interface.py:918] Setting attention …
    └ printed over by ┘   └ process, pid     ┘ └level, stamp, source              ┘ └ text

Two line formats are read: as a server prints, and as recorded for the samples (`   6.04 o text`: seconds since the
spawn, o stdout or e stderr; lines that begin with `#` are the recorder's).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from harness import carriers

LONGEST = 20_000
"""Characters of one line that are looked at: nothing that names a cause is longer, and a log may hold 100 MB lines."""
MOST_PIECES = 1000
"""Pieces of one line (progress bars glued with carriage returns) that are looked at."""

RECORDED = re.compile(r" *(\d+\.\d\d) ([oe]) ?(.*)", re.DOTALL)
BAR = re.compile(r".{0,300}?\d+%(?: Completed )?\|.{0,200}?(?:it/s|s/it|B/s)[^\]]{0,60}\]")
"""A progress bar; what another process prints before the next carriage return follows it without a break."""
TAG = re.compile(
    # vLLM; its executors of 2024 (`rank=1`); Ray (`ip=`)
    r"\((?P<process>[A-Za-z][\w.-]{0,60}(?: rank=\d+)?) pid=(?P<pid>\d+)(?:, (?P<ip>ip=[\w.:]+))?\) ?"
    # torch.distributed
    r"|\[(?P<rank>rank\d+)\]: ?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordRule:
    """How one logger begins a record. Groups: `level`, `source`, `stamp`, `process`, all of them optional."""

    name: str
    pattern: re.Pattern[str]


LEVELS = r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
RECORDS: tuple[RecordRule, ...] = (
    # The bracket before the file came in 2025.
    RecordRule(
        name="vllm",
        pattern=re.compile(LEVELS + r" (?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? \[?(?P<source>[^\]\s]+:\d+)\] ?"),
    ),
    RecordRule(
        name="sglang",
        pattern=re.compile(
            r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d+)?(?: (?P<process>[A-Z]{2}\d+(?: [A-Z]{2}\d+)*))?\] ?"
            r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)[: ]+)?"
        ),
    ),
    # glog, as torch's C++ uses it: E1130 21:56:37.123456 4242 ProcessGroupNCCL.cpp:616]
    RecordRule(
        name="glog",
        pattern=re.compile(
            r"\[?(?P<level>[IWEF])\d{4} \d\d:\d\d:\d\d(?:\.\d+)? +(?:\d+ )?(?P<source>[\w./-]+:\d+)\] ?"
        ),
    ),
    RecordRule(
        name="ray core",
        pattern=re.compile(
            r"\[\d{4}-\d\d-\d\d [\d:,]+ (?P<level>[IWEF]) \d+ \d+\] (?:\(\w+\) )?(?P<source>[\w./]+:\d+): "
        ),
    ),
    RecordRule(
        name="tgi",
        pattern=re.compile(
            r" ?(?P<level>TRACE|DEBUG|INFO|WARN|ERROR) (?:[\w-]+(?:\{[^}]*\})?: )*text_generation_\w+(?:::\w+)*: "
            r"(?:(?P<source>[\w/.-]+:\d+): )?"
        ),
    ),
    RecordRule(
        name="logging",
        pattern=re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ (?:- [\w.]+ - )?" + LEVELS + r" (?:- |\S+ -- )"),
    ),
)
ANY = re.compile(
    "|".join(
        "(?:" + re.sub(r"<(level|source|stamp|process)>", rf"<\g<1>{n}>", rule.pattern.pattern) + ")"
        for n, rule in enumerate(RECORDS)
    )
)
"""All rows in one, in their order; each group with the number of its row."""
LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL", "TRACE": "DEBUG", "WARN": "WARNING"}


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
    lane: str | None = None
    """Which of several writers the carrier says."""

    @property
    def stream(self) -> tuple[str | None, str | None, str | None, bool]:
        """Lines of one writer: a logger's traceback and its copy on stderr do not mix."""
        return (self.lane, self.process, self.pid, self.level is not None)


def read(lines: Iterable[str]) -> Iterator[LogLine]:
    """Every line of a log; a carriage return ends a line too, as progress bars use it."""
    return parse(enumerate(lines, 1))


def parse(numbered: Iterable[tuple[int, str]]) -> Iterator[LogLine]:
    """As `read`, for lines that bring their numbers."""
    clock = _Clock()
    for number, raw in numbered:
        line = raw[:LONGEST].rstrip("\r\n")
        if recorded := RECORDED.fullmatch(line):
            clock.at(float(recorded[1]))
            line = recorded[3]
        elif line.startswith("# "):
            continue
        yield from _pieces(number, line, clock)


def _pieces(number: int, line: str, clock: _Clock) -> Iterator[LogLine]:
    """The lines in a line: glued by carriage returns, or packed into JSON by a carrier."""
    if "\0" in line:
        line = line.replace("\0", "")
    packed = carriers.unpack(carriers.strip(line)[1]) if '{"' in line else None
    if packed is not None:
        for piece in packed.splitlines()[:MOST_PIECES]:
            yield _line(number, piece, clock, None)
        return
    before: LogLine | None = None
    pieces = [piece for piece in line.split("\r", MOST_PIECES)[:MOST_PIECES] if piece] if "\r" in line else [line]
    for piece in pieces:  # what stands between two carriage returns is no blank line
        bar = BAR.match(piece) if "it/s" in piece or "s/it" in piece or "B/s" in piece else None
        before = _line(number, bar[0] if bar else piece, clock, before)
        yield before
        if bar and bar.end() < len(piece):
            yield _line(number, piece[bar.end() :], clock, None)  # somebody else's, glued to the bar


def _line(number: int, piece: str, clock: _Clock, before: LogLine | None) -> LogLine:
    """`before`: what was glued in front of it; a piece without a tag is of the same process."""
    lane, text = carriers.strip(carriers.ANSI.sub("", piece) if "\x1b" in piece else piece)
    tag, text = tagged(text)
    process, pid = tag or ((before.process, before.pid) if before else (None, None))
    level = source = None
    if record := ANY.match(text):
        words = {name.rstrip("0123456789"): said for name, said in record.groupdict().items() if said is not None}
        if "stamp" in words:
            clock.stamp(words["stamp"])
        level, source = words.get("level"), words.get("source")
        process = process or words.get("process")
        text = text[record.end() :]
    return LogLine(number, clock.t, process, pid, LETTERS.get(level or "", level), source, text, lane)


def tagged(text: str) -> tuple[tuple[str, str | None] | None, str]:
    """The tag of a line as (name, pid), and the rest; of several tags the last owns the line.

    Ray's pids repeat over nodes, so there the pid carries the node's address.
    """
    owner: tuple[str, str | None] | None = None
    while text[:1] in ("(", "[") and (tag := TAG.match(text)):
        pid = f"{tag['pid']}@{tag['ip']}" if tag["ip"] else tag["pid"]
        owner, text = (tag["process"] or tag["rank"], pid), text[tag.end() :]
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
