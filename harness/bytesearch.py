"""Find a few literals in megabytes of log, fast: libc's `memmem` does 9 to 19 GB/s where `bytes.find` does 2.5 to 4.

A regular expression over the alternatives does 16 MB/s. memmem also releases the interpreter's lock, so that a flood of
output does not disturb the clock of a check in another thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

Finder = Callable[[bytes, int], int]


def _libc_memmem() -> Callable[[int, int, bytes, int], int | None] | None:
    try:
        memmem = ctypes.CDLL(None).memmem
    except (OSError, AttributeError):
        return None
    memmem.restype = ctypes.c_void_p
    memmem.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    found: Callable[[int, int, bytes, int], int | None] = memmem
    return found


_MEMMEM = _libc_memmem()


def lines_with(block: bytes, literals: tuple[bytes, ...], *, longest: int) -> Iterator[bytes]:
    r"""The lines of a block that contain one of the literals, in order, without line end, cut at `longest` bytes.

    A carriage return ends a line too (progress bars, and `\r\n`).
    """
    spans = {begin: end for literal in literals for begin, end in _spans(block, literal)}
    for begin in sorted(spans):
        yield block[begin : min(spans[begin], begin + longest)]


def _spans(block: bytes, literal: bytes) -> Iterator[tuple[int, int]]:
    find = finder(block)
    at = find(literal, 0)
    while at >= 0:
        begin = block.rfind(b"\n", 0, at) + 1
        begin = max(begin, block.rfind(b"\r", begin, at) + 1)
        end = block.find(b"\n", at)
        end = len(block) if end < 0 else end
        turn = block.find(b"\r", at, end)
        end = end if turn < 0 else turn
        yield begin, end
        at = find(literal, end)


def finder(block: bytes) -> Finder:
    """A function from a literal and a start to the literal's next place in the block, or -1."""
    if _MEMMEM is None:
        return block.find
    memmem, size = _MEMMEM, len(block)
    base = ctypes.cast(ctypes.c_char_p(block), ctypes.c_void_p).value or 0  # the caller's `block` keeps it alive

    def find(literal: bytes, start: int) -> int:
        found = memmem(base + start, size - start, literal, len(literal))
        return -1 if found is None else found - base

    return find
