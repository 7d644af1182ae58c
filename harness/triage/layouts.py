"""How tracebacks look: Python's own layout, groups of exceptions, rich's boxes, Ray's messages, native stacks. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from harness.signature import Frame

HEAD = "Traceback (most recent call last):"
BOX = re.compile(r"\W*Traceback \(most recent call last\) \W*$")
BOX_FRAME = re.compile(r"[│|❱> ]*(\S+\.py):(\d+) in (\S+)")
FRAME = re.compile(r'\s*(?:> )?File "([^"]+)", line (\d+)(?:, in (.+))?$')
RAISED = re.compile(
    r"(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_<]\w*>?)*(?:\([A-Za-z_]\w*\))?)(?:: ?(?P<message>.*))?", re.DOTALL
)
DUMP = re.compile(r"Fatal Python error: (?P<what>.+)|!{3,} *(?P<banner>Segfault) encountered *!{3,}")
DUMP_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+")
DUMP_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+),? in (.+)$')
"""What faulthandler, or a library's own handler, prints for a fatal signal: the innermost frame first."""
HANDLER = re.compile(r"sysdeps/|nptl/|^<unknown>$")
"""Files of the C library: the signal's handler, and what was called last in vain."""
REMOTE = re.compile(r"(?:RayTaskError\(\w+\)|RemoteTraceback)$")
"""What stands for an exception of another process: its traceback follows, inside the message."""
MARGIN = re.compile(r" *(?:\| ?|\+-\+-+ \d+ -+|\+-+(?: \d+ -+)?)")
SUFFIXES = ("error", "exception", "interrupt", "exit", "warning", "failure", "fault")
LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "WARN", "FATAL", "TRACE"})
LINKS: tuple[tuple[str, Literal["cause", "context"]], ...] = (
    ("The above exception was the direct cause of the following exception:", "cause"),
    ("During handling of the above exception, another exception occurred:", "context"),
)
LONGEST_NAME = 300
"""Characters of a function's or a file's name."""
DEEPEST = 200
"""Frames that are kept, the innermost."""
OTHERS = re.compile(
    r"Process \S+:$|\S+:\d+: \w*Warning|\[[WE]\d{4}|(?:INFO|WARNING|ERROR): |usage: |nanobind: |\s+warnings\.warn\("
    r"|Exception ignored |Exception in thread |Fatal Python error|terminate called|Error: \w+$"
)
"""Lines on a shared stderr that continue nobody's message."""
PROGRESS = re.compile(r".{0,200}?\d+%(?: Completed )?\|")
"""A bar, glued or not to what somebody else says."""
LONELY = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): \S")
"""An exception on a line of its own."""


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
    frames: deque[Frame] = field(default_factory=lambda: deque(maxlen=DEEPEST))
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


def frame(file: str, line: str, function: str) -> Frame:
    """A log may print any number of digits and letters; no file has so many lines, and no function such a name."""
    return Frame(function=function[:LONGEST_NAME], file=file[:LONGEST_NAME], line=int(line[:9]))


def link_in(text: str) -> Literal["cause", "context"] | None:
    return next((kind for words, kind in LINKS if text.startswith(words)), None)


def raised_in(text: str) -> re.Match[str] | None:
    """A line that names an exception, alone or with its message."""
    found = RAISED.fullmatch(text)
    return found if found and found["name"] not in LEVELS and _is_class(found["name"]) else None


def _is_class(name: str) -> bool:
    return "." in name or names_class(name)


def names_class(name: str) -> bool:
    """Whether its last word is written as the names of exceptions are."""
    last = name.rsplit(".", 1)[-1]
    return last[:1].isupper() or last.lower().endswith(SUFFIXES)
