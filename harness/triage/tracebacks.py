"""Tracebacks out of a log in which several processes speak at once. Pure.

Each writer (process, and whether through a logger or raw on stderr) is followed on its own, so two workers that are
interleaved line by line give two tracebacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from harness.loglines import LogLine
from harness.signature import Frame

HEAD = "Traceback (most recent call last):"
FRAME = re.compile(r'\s+File "([^"]+)", line (\d+), in (.+)')
RAISED = re.compile(r"(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_<]\w*>?)*)(?:: ?(?P<message>.*))?")
LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"})
LINKS: tuple[tuple[str, Literal["cause", "context"]], ...] = (
    ("The above exception was the direct cause of the following exception:", "cause"),
    ("During handling of the above exception, another exception occurred:", "context"),
)
LONGEST_MESSAGE = 40
"""Lines of a message that are kept."""
DEEPEST = 500
"""Frames that are kept: of an endless recursion the outermost."""
PATIENCE = 2000
"""Lines of others that may stand between two lines of one traceback."""
NEAR = 3
"""A header stands right before its traceback, a line or two of another process between."""
OTHERS = re.compile(r"Process \S+:$|\S+:\d+: \w*Warning|\[[WE]\d{4}|INFO: |usage: |nanobind: |\s+warnings\.warn\(")
"""Lines on a shared stderr that continue nobody's message."""


@dataclass(slots=True)
class Traceback:
    process: str | None
    pid: str | None
    level: str | None
    first: int
    """Line numbers, 1 for the first line of the log."""
    last: int
    header: str
    """The line before it by the same writer: `EngineCore failed to start.`"""
    phase: str | None
    """What the start was doing when it was printed."""
    frames: list[Frame] = field(default_factory=list)
    """Outermost first, as printed."""
    exception: str = ""
    """Class name with its module; empty where the log ends before it."""
    message: list[str] = field(default_factory=list)
    before: Traceback | None = None
    """The exception that this one was raised from or during."""
    link: Literal["cause", "context"] | None = None

    @property
    def name(self) -> str:
        return self.exception.rsplit(".", 1)[-1]

    @property
    def text(self) -> str:
        return "\n".join(self.message).strip()

    def chain(self) -> Iterator[Traceback]:
        """From this one back to the first that it was raised from."""
        block: Traceback | None = self
        while block is not None:
            yield block
            block = block.before


@dataclass(slots=True)
class _Writer:
    block: Traceback | None = None
    speaking: bool = False
    """The exception line has come; message lines may follow."""
    source: str | None = None
    previous: tuple[int, str] = (0, "")
    """Number and text of its last line."""
    link: Literal["cause", "context"] | None = None


class Collector:
    """Takes lines in the order of the log; `found` are the tracebacks, each chain by its last link."""

    def __init__(self) -> None:
        self._writers: dict[object, _Writer] = {}
        self._all: list[Traceback] = []
        self._busy_until = 0

    def busy(self, number: int) -> bool:
        """Whether a traceback is open, so that line `number` may belong to it whatever it says."""
        return number <= self._busy_until

    @property
    def found(self) -> list[Traceback]:
        inner = {id(block.before) for block in self._all if block.before is not None}
        return [block for block in self._all if id(block) not in inner and block.exception]

    def add(self, line: LogLine, phase: str | None) -> None:
        writer = self._writers.setdefault(line.stream, _Writer())
        if line.text.endswith(HEAD):
            self._start(writer, line, phase)
        elif writer.block is not None:
            self._continue(writer, writer.block, line)
        if line.text:
            writer.previous = (line.number, line.text)
        if writer.block is not None:
            self._busy_until = line.number + PATIENCE

    def _start(self, writer: _Writer, line: LogLine, phase: str | None) -> None:
        before = writer.block if writer.link else None
        number, text = writer.previous
        block = Traceback(
            process=line.process, pid=line.pid, level=line.level, first=line.number, last=line.number,
            header=text if line.number - number <= NEAR else "", phase=phase, before=before,
            link=writer.link if before else None,
        )  # fmt: skip
        self._all.append(block)
        writer.block, writer.speaking, writer.source, writer.link = block, False, line.source, None

    def _continue(self, writer: _Writer, block: Traceback, line: LogLine) -> None:
        link = next((kind for words, kind in LINKS if line.text.startswith(words)), None)
        if link and writer.speaking:
            writer.link = link
        elif not writer.speaking:
            self._frame_or_end(writer, block, line)
        elif writer.link is None and line.text.strip():
            self._message(writer, block, line)
        elif not line.text.strip():
            writer.source = ""  # a blank line ends the message; only a link may follow

    def _frame_or_end(self, writer: _Writer, block: Traceback, line: LogLine) -> None:
        if found := FRAME.match(line.text):
            if len(block.frames) < DEEPEST:
                block.frames.append(Frame(function=found[3], file=found[1], line=int(found[2])))
            block.last = line.number
        elif (raised := RAISED.fullmatch(line.text)) and raised["name"] not in LEVELS and _is_class(raised["name"]):
            block.exception, block.last, writer.speaking = raised["name"], line.number, True
            block.message.append(raised["message"] or "")

    def _message(self, writer: _Writer, block: Traceback, line: LogLine) -> None:
        same = line.source == writer.source if line.level else not OTHERS.match(line.text)
        # On a stderr that nobody tags, only what is indented (or announced by the first line) is surely a continuation.
        sure = (
            line.process is not None
            or line.text[:1].isspace()
            or block.message[0].endswith(":")
            or "validation error" in block.message[0]
        )
        if same and sure and writer.source != "" and len(block.message) < LONGEST_MESSAGE:
            block.message.append(line.text)
            block.last = line.number
        else:
            writer.block, writer.speaking = None, False


def _is_class(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    return last[:1].isupper() or last.endswith(("error", "exception"))
