"""Silence: no output and no work. A compiler may be mute for minutes, but it burns a core; a hang does not. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from harness.server.proctree import Process

IDLE = 0.05
"""Share of one core, averaged over the silence, below which a whole tree counts as idle: polling loops burn 1-3 %."""


class Quiet:
    """Fed with samples of a tree; knows for how long nothing happened."""

    def __init__(self, limit: float, *, start: float) -> None:
        self._limit = limit
        self._burnt = 0.0
        self._before: dict[int, Process] = {}
        self._samples = deque([(start, 0.0)])
        self.peak_rss = 0
        """Highest sum of resident bytes seen; pages that processes share count for each."""

    def feed(self, now: float, tree: Iterable[Process]) -> None:
        """One sample: the living processes at monotonic second `now`."""
        processes = {process.pid: process for process in tree}
        for pid, process in processes.items():
            old = self._before.get(pid)
            is_same = old is not None and old.started == process.started
            self._burnt += process.cpu - (old.cpu if old and is_same else 0.0)
        self._before = processes
        self.peak_rss = max(self.peak_rss, sum(process.rss for process in processes.values()))
        self._samples.append((now, self._burnt))
        while len(self._samples) > 1 and self._samples[1][0] <= now - self._limit:
            self._samples.popleft()

    def is_hung(self, now: float, last_output: float) -> bool:
        """Neither a byte nor more than `IDLE` of a core in the last `limit` seconds."""
        then, burnt = self._samples[0]
        return now - last_output >= self._limit <= now - then and self._burnt - burnt < IDLE * (now - then)
