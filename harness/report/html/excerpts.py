"""What stands open on a page of a failure: the lines that the signature was read from, without what carried them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from harness import loglines
from harness.report.text import cut_middle, visible

MOST_LINES = 400
"""Of one traceback."""
LINE_BYTES = 16_000
"""Most of a line that is read."""
EXCERPT_BYTES = 60_000
MOST_EXCERPTS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Excerpt:
    first: int
    """Of its lines in the log, from 1."""
    last: int
    process: str
    """Who wrote it: `Worker_TP0`; empty where the lines do not say."""
    text: str


def read(file: Path, spans: Sequence[tuple[int, int]]) -> tuple[Excerpt, ...]:
    """The spans of a log, in their order; none where there is no log. Reads no further than the last of them."""
    wanted = spans[:MOST_EXCERPTS]
    if not wanted or not file.is_file():
        return ()
    lines = _lines(file, wanted)
    every = (_excerpt(span, [(n, lines[n]) for n in range(span[0], span[1] + 1) if n in lines]) for span in wanted)
    return tuple(each for each in every if each.text)


def _lines(file: Path, spans: Sequence[tuple[int, int]]) -> dict[int, str]:
    """The lines of all spans by number, of each span so many from its beginning and as many from its end."""
    half = MOST_LINES // 2
    kept = {n for a, b in spans for n in (*range(a, min(b, a + half) + 1), *range(max(a, b - half), b + 1))}
    found: dict[int, str] = {}
    with file.open("rb") as log:
        for number, raw in enumerate(islice(_raw(log), max(kept, default=0)), 1):
            if number in kept:
                found[number] = raw.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
    return found


def _raw(log: BinaryIO) -> Iterator[bytes]:
    while raw := log.readline(LINE_BYTES):
        rest = raw
        while rest and not rest.endswith(b"\n"):
            rest = log.readline(1 << 20)
        yield raw


def _excerpt(span: tuple[int, int], numbered: Sequence[tuple[int, str]]) -> Excerpt:
    parsed = list(loglines.parse(numbered))
    writers = [line.process for line in parsed if line.process]
    text: list[str] = []
    before = span[0] - 1
    for line in parsed:
        if line.number > before + 1:
            text.append(f"[… lines {before + 1} to {line.number - 1} …]")
        text.append(visible(line.text))
        before = line.number
    said = cut_middle("\n".join(text).strip("\n"), EXCERPT_BYTES)
    return Excerpt(first=span[0], last=span[1], process=writers[0] if writers else "", text=said)
