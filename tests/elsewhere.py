"""A cluster of nodes that all are this machine: an engine for `remote.Cluster` that needs no Ray, and can lose runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from harness.errors import Interrupted
from harness.events import Event
from harness.executors import errand
from harness.executors.remote import Lost

NODE = {"GPU": 4.0, "node-class:cpu": 1.0}


@dataclass
class Engine:
    """`loses` says of each item, with the number of the stream, whether the node is lost before it comes."""

    declared: list[dict[str, float]] = field(default_factory=lambda: [dict(NODE)])
    loses: Callable[[int, object], bool] = lambda _number, _item: False
    avoided: list[str] = field(default_factory=list)
    most: int = 0
    """Streams that went at once."""
    _going: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def nodes(self):
        return self.declared

    def stream(self, need, order, *, avoid, stop) -> Iterator[object]:
        need(self.nodes())
        with self._lock:
            number = len(self.avoided)
            self.avoided.append(avoid)
            self._going += 1
            self.most = max(self.most, self._going)
        try:
            if stop.is_set():
                raise Interrupted("before it began")
            for item in errand.work(errand.digest(), order, stop=stop, declared=lambda name: NODE[name]):
                if self.loses(number, item):
                    raise Lost("one (node 1 of the cluster) was lost", node_id="one")
                yield item
        finally:
            with self._lock:
                self._going -= 1


def at(kind: str, stream: int = 0) -> Callable[[int, object], bool]:
    """Loses the run of a stream at its first event of a kind."""
    return lambda number, item: number == stream and isinstance(item, Event) and item.kind == kind
