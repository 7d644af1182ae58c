"""Logs of eight ranks, made from those of two, until eight GPUs have written some.

What rank 1 wrote, ranks 1 to 7 wrote, each under its tag and a pid of its own; sizes of the world are eight. All else
stays. Either every line is followed by the same one of the other ranks, so that seven tracebacks run into each other,
or each rank has its stretch of lines for itself. Times stay too: in such a log every rank is as fast as rank 1 was.
"""

from __future__ import annotations

import re
from itertools import groupby

RANKS = 8
_SIZES = re.compile(r"\b((?:local_)?world_size|tensor_parallel_size)=2\b")


def eight(lines: list[str], *, together: bool) -> list[str]:
    """`together`: a rank's lines stay together; else the ranks alternate line by line."""
    pid = _pid(lines)
    sized = [_SIZES.sub(r"\g<1>=8", line) for line in lines]
    made: list[str] = []
    for own, group in groupby(sized, key=lambda line: _only_of(line, pid)):
        block = list(group)
        if not own:
            made += block
        elif together:
            made += [_as(line, rank, pid) for rank in range(1, RANKS) for line in block]
        else:
            made += [_as(line, rank, pid) for line in block for rank in range(1, RANKS)]
    return made


def _pid(lines: list[str]) -> str:
    return next(found[1] for line in lines if (found := re.search(r"\(Worker_TP1 pid=(\d+)\)", line)))


def _only_of(line: str, pid: str) -> bool:
    """Written by the process alone: two tags in a line are two writers at once."""
    return f"pid={pid})" in line and line.count(" pid=") == 1


def _as(line: str, rank: int, pid: str) -> str:
    line = line.replace(f"pid={pid})", f"pid={int(pid) + rank - 1})").replace("Worker_TP1", f"Worker_TP{rank}")
    return line.replace("rank=1 local_rank=1", f"rank={rank} local_rank={rank}")
