"""What the processes of a hung server were doing, as `server/evidence.py` wrote it down: `stacks/*.txt`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.report.text import cut_middle, one_line, visible

FILE_BYTES, MOST_FILES, FRAMES = 60_000, 64, 3
SUMMARY = "summary.txt"
_MAIN = re.compile(r'^Thread \d+ \([^\n]*\): "MainThread"\n((?:[ \t]+[^\n]+\n?)+)', re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    file: str
    text: str
    where: tuple[str, ...]
    """The deepest Python frames of its main thread; empty where py-spy saw none."""


def read(folder: Path) -> tuple[tuple[Stack, ...], int]:
    """The files of a run, the summary first, and how many more there are."""
    files = sorted((folder / "stacks").glob("*.txt"), key=lambda file: (file.name != SUMMARY, file.name))
    return tuple(map(_stack, files[:MOST_FILES])), max(0, len(files) - MOST_FILES)


def _stack(file: Path) -> Stack:
    raw = file.read_text(encoding="utf-8", errors="surrogateescape")
    return Stack(file=file.name, text=cut_middle(visible(raw), FILE_BYTES), where=tuple(_frames(raw)))


def _frames(text: str) -> Iterator[str]:
    if found := _MAIN.search(text):
        yield from (one_line(line, 200) for line in found[1].splitlines()[:FRAMES])
