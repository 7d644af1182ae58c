"""The lines of a log that are worth taking apart, fast and in bounded memory. Reads a stream, decides nothing.

Of 1 GB of a busy server's log a few hundred lines can name a cause. A literal is found at 10 GB/s, a line taken apart
at 50 MB/s: so a block is searched for literals first, and only the lines around a hit, and those that a reader asks for
(`busy`: the rest of an open traceback), become text.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Iterator
from typing import BinaryIO

from harness import carriers
from harness.bytesearch import Finder, finder

BLOCK = 1 << 20
"""Bytes read at once; a line that is longer comes in pieces that share its number."""
TAIL = 64 << 10
"""Bytes at the end of a log that are read whole: how a process ended is said last, in words that nobody can list."""
SAMPLE = 20_000
"""Lines by which a terminal's width is told."""
NARROWEST, WIDEST = 40, 500
FULL_LINES = 2
"""Lines that fill the width, at least, before it counts as one."""
TAGGED = (
    r"\(\w[\w.-]*(?: rank=\d+)? pid=|\[rank\d|\[\d{4}-|\d{4}-\d\d-\d\d|(?:DEBUG|INFO|WARN\w*|ERROR|CRITICAL)\b"
    r"| *\d+\.\d\d [oe] |[A-Z][a-z]{2} [ \d]\d \d\d:|\w+ +\| "
)
SPEAKS = re.compile(TAGGED + r"|\s*$|Traceback ")
"""How a line begins that continues no tagged one."""
BEGINS = re.compile(SPEAKS.pattern + r"|\s{2}|File \"|[\w.]+(?:Error|Exception): ")
"""How a line begins that continues none without a tag: a frame or its source is indented."""


class Sieve:
    """Iterate once for (number, text) of each line; numbers count line feeds, 1 is the first line."""

    def __init__(self, log: BinaryIO, literals: tuple[bytes, ...]) -> None:
        self._log = log
        self.literals = literals
        """What a line must hold; a reader that has seen enough asks for less, from the next block on."""
        self.busy = 0
        """Every line up to this number is wanted, whatever it holds; the reader moves it."""
        self.lines = 0
        """Lines seen so far."""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        blocks = self._blocks()
        first = next(blocks, b"")
        whole = itertools.chain((first,), blocks)
        if (width := wrapped_at(first)) is not None:
            yield from self._unwrapped(whole, width)
            return
        held = b""
        for block in whole:
            if len(block) < TAIL:
                held += block  # the last one, or a line of it: the end may reach back into the one before
                continue
            if held:
                yield from self._wanted(held, whole_from=len(held))
            held = block
        yield from self._wanted(held, whole_from=max(0, len(held) - TAIL))

    def _blocks(self) -> Iterator[bytes]:
        """Blocks that end with a line, but for the last one and inside a line that is longer than a block."""
        rest = b""
        while more := self._log.read(BLOCK):
            end = more.rfind(b"\n") + 1
            if end or len(rest) >= BLOCK:
                yield rest + more[:end] if end else rest
                rest = more[end:]
            else:
                rest += more
        if rest:
            yield rest

    def _wanted(self, block: bytes, *, whole_from: int) -> Iterator[tuple[int, str]]:
        """Lines with a hit, and those from `whole_from` on."""
        find = finder(block)
        hits = [(at, literal) for literal in self.literals if (at := find(literal, 0)) >= 0]
        heapq.heapify(hits)
        begin, number = 0, self.lines + 1
        while begin < len(block):
            if number > self.busy and begin < whole_from:
                while hits and hits[0][0] < begin:
                    _again(hits, find, begin)
                at = min(hits[0][0] if hits else whole_from, whole_from)
                if at == len(block):
                    break
                line = block.rfind(b"\n", begin, at) + 1 or begin
                # The line before may be the header of what was hit: `Scheduler hit an exception:`.
                line = block.rfind(b"\n", begin, max(line - 1, begin)) + 1 or begin
                number += block.count(b"\n", begin, line)
                begin = line
            end = block.find(b"\n", begin)
            end = len(block) if end < 0 else end
            yield number, block[begin:end].decode("utf-8", "replace")
            begin, number = end + 1, number + 1
        self.lines = number - 1 + block.count(b"\n", begin)

    def _unwrapped(self, blocks: Iterator[bytes], width: int) -> Iterator[tuple[int, str]]:
        """Every line, each with what a terminal broke off it."""
        held: tuple[int, str] | None = None
        last = 0
        for block in blocks:
            for raw in block.decode("utf-8", "replace").removesuffix("\n").split("\n"):
                self.lines += 1
                piece = raw.rstrip("\r")
                if held is not None and last == width and len(held[1]) < BLOCK and _goes_on(held[1], piece):
                    held = (held[0], held[1] + piece)
                else:
                    if held is not None:
                        yield held
                    held = (self.lines, piece)
                last = len(piece)
        if held is not None:
            yield held


def _again(hits: list[tuple[int, bytes]], find: Finder, begin: int) -> None:
    """The literal of the first hit, from `begin` on."""
    literal = hits[0][1]
    at = find(literal, begin)
    if at < 0:
        heapq.heappop(hits)
    else:
        heapq.heapreplace(hits, (at, literal))


def _goes_on(line: str, after: str) -> bool:
    """Whether `after` may be what was broken off `line`: no carrier stands in front of it, and it begins like none."""
    bare = carriers.ANSI.sub("", after)
    if after.startswith("\x1b_") or bare.startswith('{"') or carriers.strip(bare)[1] != bare:
        return False
    line = carriers.strip(carriers.ANSI.sub("", line))[1]
    return not (SPEAKS if re.match(TAGGED, line) else BEGINS).match(after)


def wrapped_at(block: bytes) -> int | None:
    """The width of the terminal at which the lines of a log were broken, or None.

    No line is longer, several differ and fill it, and most of them go on in a line that begins like none.
    """
    lines = [line.rstrip("\r") for line in block[: SAMPLE * 100].decode("utf-8", "replace").split("\n")[:SAMPLE]]
    width = max(map(len, lines), default=0)
    if not NARROWEST <= width <= WIDEST:
        return None
    full = [(line, after) for line, after in itertools.pairwise(lines) if len(line) == width]
    goes_on = [line for line, after in full if _goes_on(line, after)]
    return width if len(set(goes_on)) >= FULL_LINES and len(goes_on) * 2 > len(full) else None
