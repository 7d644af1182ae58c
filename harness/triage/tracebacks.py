"""Tracebacks out of a log in which several processes speak at once. Pure; how they look stands in `layouts.py`.

Each writer (process, and whether through a logger or raw on stderr) is followed on its own, so two workers that are
interleaved line by line give two tracebacks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from harness.loglines import LogLine
from harness.triage.layouts import (
    BOX,
    BOX_FRAME,
    DEEPEST,
    DUMP,
    DUMP_FRAME,
    DUMP_THREAD,
    FRAME,
    HANDLER,
    HEAD,
    LONELY,
    MARGIN,
    OTHERS,
    PROGRESS,
    REMOTE,
    SUFFIXES,
    Traceback,
    frame,
    link_in,
    names_class,
    raised_in,
)

LONGEST_MESSAGE = 40
"""Lines of a message that are kept."""
MOST_CHARACTERS = 8000
"""Characters of a message that are kept, its first line aside."""
MOST = 300
"""Different tracebacks that are kept: the first ones. A server that fails every request must not fill the memory."""
MOST_WRITERS = 2000
PATIENCE = 2000
"""Lines of others that may stand between two lines of one traceback."""
NEAR = 3
"""A header stands right before its traceback, a line or two of another process between."""


@dataclass(slots=True)
class _Writer:
    block: Traceback | None = None
    speaking: bool = False
    """The exception line has come; message lines may follow."""
    closed: bool = False
    """A blank line ended the message, or what follows may be somebody else's: only a link can tell."""
    pending: list[str] = field(default_factory=list)
    """Lines since then: of the message, if a link follows."""
    boxed: bool = False
    dump: Literal["", "head", "current", "others"] = ""
    """Where in a dump of faulthandler it is."""
    margin: bool = False
    source: str | None = None
    previous: tuple[int, str] = (0, "")
    """Number and text of its last line."""
    link: Literal["cause", "context"] | None = None
    lonely: LogLine | None = None
    """An exception without a head: one that was never raised, if a link follows."""
    after_frame: bool = False
    """The last line was a frame without indentation: the next one is its source."""


class Collector:
    """Takes lines in the order of the log; `found` are the tracebacks, each chain by its last link."""

    def __init__(self) -> None:
        self._writers: dict[object, _Writer] = {}
        self._all: list[Traceback] = []
        self.busy_until = 0
        """A traceback is open: the lines up to this number may belong to it whatever they say."""
        self.dropped = 0
        """Tracebacks beyond those that are kept."""

    @property
    def found(self) -> list[Traceback]:
        """Each chain by its last link that is whole: the log may be cut inside the one after it."""
        whole = [block for block in self._all if block.exception]
        inner = {id(block.before) for block in whole if block.before is not None}
        return [block for block in whole if id(block) not in inner]

    @property
    def cut(self) -> Traceback | None:
        """The last one that the log ends inside of."""
        return next((b for b in reversed(self._all) if not b.exception and b.frames), None)

    @property
    def full(self) -> bool:
        """No further traceback will be kept."""
        return len(self._all) >= MOST

    def forget(self, before: int) -> None:
        """What stands before that line belongs to an attempt that was followed by a healthy start."""
        self._all = [block for block in self._all if block.first >= before]

    def add(self, line: LogLine, phase: str | None) -> bool:
        """Returns whether the line belongs to a traceback, or may do so."""
        writer = self._writer(line)
        if "%" in line.text and PROGRESS.match(line.text):
            return writer.block is not None
        if writer.margin:
            line = _without_margin(writer, line)
        if line.text.endswith(HEAD) or BOX.match(line.text):
            self._start(writer, line, phase)
        elif fatal := DUMP.match(line.text):
            self._dump(writer, line, phase, fatal)
        elif writer.dump:
            self._dumped(writer, line)
        elif writer.block is not None and not (
            writer.speaking and FRAME.match(line.text) and self._adopt(writer, line)
        ):
            self._continue(writer, writer.block, line)
        elif writer.block is None:
            self._outside(writer, line, phase)
        if line.text:
            writer.previous = (line.number, line.text)
        if writer.block is not None:
            self.busy_until = line.number + PATIENCE
        return writer.block is not None

    def _outside(self, writer: _Writer, line: LogLine, phase: str | None) -> None:
        """No traceback of this writer is open."""
        if (found := FRAME.match(line.text)) and found[3]:
            self._headless(writer, line, phase)
        elif LONELY.match(line.text):
            writer.lonely = line
        elif writer.lonely is not None:
            self._after_lonely(writer, writer.lonely, line, phase)

    def _writer(self, line: LogLine) -> _Writer:
        if len(self._writers) > MOST_WRITERS and line.stream not in self._writers:
            self._writers.clear()  # nobody has so many processes: this is noise
        return self._writers.setdefault(line.stream, _Writer())

    def _start(self, writer: _Writer, line: LogLine, phase: str | None) -> None:
        number, text = writer.previous
        words = line.text.removesuffix(HEAD).strip(" +|")
        writer.margin = words.endswith("Exception Group") or (writer.margin and writer.block is not None)
        writer.boxed = not line.text.endswith(HEAD)
        header = words or (text if line.number - number <= NEAR else "")
        self._open(writer, line, phase, header)

    def _open(self, writer: _Writer, line: LogLine, phase: str | None, header: str = "") -> Traceback:
        before = writer.block if writer.link else None
        block = Traceback(
            process=line.process, pid=line.pid, level=line.level, first=line.number, last=line.number,
            header=header, phase=phase, before=before, link=writer.link if before else None,
        )  # fmt: skip
        if len(self._all) < MOST:
            self._all.append(block)
        else:
            self.dropped += 1
        writer.block, writer.speaking, writer.closed = block, False, False
        writer.source, writer.link, writer.after_frame, writer.dump = line.source, None, False, ""
        writer.pending = []
        return block

    def _dump(self, writer: _Writer, line: LogLine, phase: str | None, fatal: re.Match[str]) -> None:
        writer.link = None
        block = self._open(writer, line, phase)
        block.exception = "Fatal Python error"
        block.message = [fatal["what"] or "Segmentation fault"]
        writer.dump = "current" if fatal["banner"] else "head"

    def _dumped(self, writer: _Writer, line: LogLine) -> None:
        block = writer.block
        if thread := DUMP_THREAD.match(line.text):
            writer.dump = "current" if thread[0].startswith("Current") else "others"
        elif block is not None and (found := DUMP_FRAME.match(line.text)):
            if writer.dump == "current" and not HANDLER.search(found[1]) and len(block.frames) < DEEPEST:
                block.frames.appendleft(frame(found[1], found[2], found[3]))
                block.last = line.number
        elif line.text.strip() and not line.text.startswith("<"):
            writer.dump, writer.block = "", None

    def _after_lonely(self, writer: _Writer, lonely: LogLine, line: LogLine, phase: str | None) -> None:
        if line.number - lonely.number > LONGEST_MESSAGE:
            writer.lonely = None
        elif link := link_in(line.text):
            self._frame_or_end(writer, self._open(writer, lonely, phase), lonely)
            writer.link, writer.lonely = link, None

    def _headless(self, writer: _Writer, line: LogLine, phase: str | None) -> None:
        """A frame of no open traceback: its head was logged by a logger that tags only first lines, or is cut off."""
        if not self._adopt(writer, line):
            self._continue(writer, self._open(writer, line, phase), line)

    def _adopt(self, writer: _Writer, line: LogLine) -> bool:
        """Take over a head that another writer just printed, of a logger that tags first lines only."""
        for other in reversed(self._writers.values()):
            block = other.block
            if block is None or other is writer or block.frames or other.speaking:
                continue
            if line.number - block.last <= NEAR:
                writer.block, writer.speaking, writer.closed, writer.source = block, False, False, line.source
                writer.link, writer.pending, other.block = None, [], None
                self._continue(writer, block, line)
                return True
        return False

    def _continue(self, writer: _Writer, block: Traceback, line: LogLine) -> None:
        text = line.text.strip("│| ") if writer.boxed else line.text.lstrip()
        link = link_in(text)
        if link and writer.speaking:
            writer.link = link
            block.message += writer.pending
            writer.pending = []
        elif not writer.speaking:
            self._frame_or_end(writer, block, line)
        elif writer.link is not None and text and raised_in(line.text):
            # One that was never raised has no head and no frames.
            self._frame_or_end(writer, self._open(writer, line, block.phase), line)
        elif writer.link is None and text and not writer.closed:
            self._message(writer, block, line)
        elif not text:
            writer.closed = True
            writer.pending += [""] if writer.pending else []
        elif writer.closed and writer.link is None:
            self._after_message(writer, block, line)

    def _after_message(self, writer: _Writer, block: Traceback, line: LogLine) -> None:
        """A logger that tags every line shows that its record goes on; on a raw stderr only a link can tell."""
        if line.level and line.source is not None and line.source == writer.source and not writer.pending:
            block.message.append("")
            writer.closed = False
            self._message(writer, block, line)
        elif not self._hold(writer, line):
            writer.block, writer.speaking = None, False

    def _hold(self, writer: _Writer, line: LogLine) -> bool:
        """Keep a line that may belong to the message; False where it cannot."""
        ours = not line.level and not OTHERS.match(line.text) and not LONELY.match(line.text)
        if not ours or len(writer.pending) >= LONGEST_MESSAGE:
            return False
        writer.closed = True
        writer.pending.append(line.text[: MOST_CHARACTERS // LONGEST_MESSAGE])
        return True

    def _frame_or_end(self, writer: _Writer, block: Traceback, line: LogLine) -> None:
        if found := (BOX_FRAME if writer.boxed else FRAME).match(line.text):
            file, number, function = found.groups()
            if function:
                block.frames.append(frame(file, number, function))
            block.last, writer.after_frame = line.number, not line.text[:1].isspace()
            return
        source, writer.after_frame = writer.after_frame, False
        raised = raised_in(line.text)
        if raised is None:
            return
        name = raised["name"]
        if source and not (name.lower().endswith(SUFFIXES) or (raised["message"] and names_class(name))):
            return  # without indentation the line after a frame is its source
        if REMOTE.search(name):
            block.frames.clear()  # the other process's frames follow
            return
        block.exception, block.last, writer.speaking, writer.closed = name, line.number, True, False
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
        kept = sum(map(len, block.message[1:])) < MOST_CHARACTERS and len(block.message) < LONGEST_MESSAGE
        if same and sure and kept:
            block.message.append(line.text)
            block.last = line.number
        elif not (same and self._hold(writer, line)):
            writer.block, writer.speaking = None, False


def _without_margin(writer: _Writer, line: LogLine) -> LogLine:
    """Inside a group of exceptions every line has a margin, and lines of dashes stand between the exceptions."""
    found = MARGIN.match(line.text)
    if found is None:
        writer.margin = False
        return line
    if "-" not in found[0]:
        return line._replace(text=line.text[found.end() :])
    writer.link = None
    if found[0].strip(" +-"):
        return line._replace(text=HEAD)  # the next of the group; some have no head of their own
    writer.block, writer.speaking = None, False
    return line._replace(text="")
