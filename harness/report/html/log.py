"""A server's log inside a page: whole where it fits, in compressed chunks that a browser opens as they are looked at.

server.log ─▶ blocks of whole lines ─▶ visible text ─▶ zlib ─▶ base64
└ too large: head, around the evidence, tail; what is left out becomes a gap that says so
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.report.text import visible

BLOCK_BYTES = 1 << 20
"""Of one chunk, about: a browser opens one in some 10 ms."""
WHOLE_BYTES = 64 << 20
"""A larger log is cut."""
END_BYTES = 24 << 20
"""Of a log that is cut: what is kept of its head, and of its tail."""
AROUND_LINES, MOST_AROUND = 2_000, 8
"""Lines kept before and after each evidence, and blocks kept for all of them."""
PAGE_BYTES = 24 << 20
"""Most base64 in one page; a log that does not compress is cut further."""
SHRINK = (1, 4, 16, 64, 256)

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Lines of a log, or a gap where lines are left out."""

    first: int
    """Number of its first line; 1 is the first of the log."""
    lines: int
    size: int
    """Bytes in the log."""
    data: str = ""
    """base64 of zlib of UTF-8; empty for a gap."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Packed:
    name: str
    size: int
    lines: int
    chunks: tuple[Chunk, ...]
    cut_lines: int = 0
    """Lines of which the middle is not there, for they are longer than a block."""

    @property
    def gaps(self) -> tuple[Chunk, ...]:
        return tuple(chunk for chunk in self.chunks if not chunk.data)

    @property
    def cut(self) -> str:
        """What is not in the page, as a sentence; empty where all of it is."""
        spans = ", ".join(f"{gap.first:,} to {gap.first + gap.lines - 1:,}" for gap in self.gaps)
        missing = f"Not in this page, for the log has {self.size / 1e6:,.0f} MB: lines {spans}." if spans else ""
        long = f"Lines longer than 1 MiB are cut, and say so: {self.cut_lines}." if self.cut_lines else ""
        return " ".join(filter(None, (missing, long)))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    first: int
    at: int
    raw: bytes
    lines: int
    size: int
    cut: int = 0
    """Bytes of its last line that were passed over."""


def pack(file: Path, evidence: Spans = (), *, room: int = PAGE_BYTES) -> Packed | None:
    """A log for a page, in at most `room` bytes of base64; None where there is no log, or an empty one."""
    if not file.is_file() or not file.stat().st_size:
        return None
    for shrink in SHRINK:
        with file.open("rb") as log:
            packed = _pack(log, file, evidence, shrink, room)
        if packed is not None:
            return packed
    return _nothing(file)


def _nothing(file: Path) -> Packed:
    """So little room that not a block fits: all of it is a gap."""
    with file.open("rb") as log:
        lines = sum(block.lines for block in _blocks(log))
    size = file.stat().st_size
    return Packed(name=file.name, size=size, lines=lines, chunks=(Chunk(first=1, lines=lines, size=size),))


def _pack(log: BinaryIO, file: Path, evidence: Spans, shrink: int, room: int) -> Packed | None:
    """None where it does not fit: the log is random, or written to hurt."""
    size = file.stat().st_size
    whole, ends = size <= WHOLE_BYTES // shrink, END_BYTES // shrink
    chunks: list[Chunk] = []
    cut_lines, around = 0, MOST_AROUND
    for block in _blocks(log):
        near = around > 0 and _near(block, evidence, AROUND_LINES // shrink)
        at_an_end = whole or block.at < ends or block.at + block.size > size - ends
        if at_an_end or near:
            around -= not at_an_end
            chunks.append(_chunk(block))
            cut_lines += bool(block.cut)
            room -= len(chunks[-1].data)
        else:
            _leave_out(chunks, block)
        if room < 0:
            return None
    lines = sum(chunk.lines for chunk in chunks)
    return Packed(name=file.name, size=size, lines=lines, chunks=tuple(chunks), cut_lines=cut_lines)


def _near(block: _Block, evidence: Spans, distance: int) -> bool:
    last = block.first + block.lines
    return any(block.first <= span[1] + distance and span[0] - distance <= last for span in evidence)


def _leave_out(chunks: list[Chunk], block: _Block) -> None:
    gap = Chunk(first=block.first, lines=block.lines, size=block.size)
    if chunks and not chunks[-1].data:
        before = chunks.pop()
        gap = Chunk(first=before.first, lines=before.lines + gap.lines, size=before.size + gap.size)
    chunks.append(gap)


def _chunk(block: _Block) -> Chunk:
    text = visible(block.raw.removesuffix(b"\n").decode("utf-8", "surrogateescape"))
    note = f" [… {block.cut:,} bytes of this line are not in this page …]" if block.cut else ""
    packed = zlib.compress((text + note).encode("utf-8", "backslashreplace"), 6)
    return Chunk(first=block.first, lines=block.lines, size=block.size, data=base64.b64encode(packed).decode("ascii"))


def _blocks(log: BinaryIO) -> Iterator[_Block]:
    """Whole lines, about a block of bytes each; of a line that is longer than a block its beginning."""
    first, at = 1, 0
    while raw := log.read(BLOCK_BYTES):
        raw += b"" if raw.endswith(b"\n") else log.readline(BLOCK_BYTES)
        cut = 0 if raw.endswith(b"\n") else _pass_over_line(log)
        lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
        yield _Block(first=first, at=at, raw=raw, lines=lines, size=len(raw) + cut, cut=cut)
        first, at = first + lines, at + len(raw) + cut


def _pass_over_line(log: BinaryIO) -> int:
    passed = 0
    while raw := log.readline(BLOCK_BYTES):
        passed += len(raw)
        if raw.endswith(b"\n"):
            break
    return passed
