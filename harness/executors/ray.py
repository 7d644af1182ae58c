"""Runs on the nodes of a Ray cluster: the only module that knows Ray.

    Cluster.execute ─ parcel ─▶ Hand (an actor with the GPUs) ─▶ child process ─▶ run.execute
          ▲                      │ one stream: Began, events, pieces of the run's folder, heartbeats, Ended
          └──────────────────────┘ stop() ─▶ SIGTERM to the child, and the stream goes on until it has ended

One actor a launch: it lives as long as the run, so its end is heard, whoever brought it about. The child is the one
that `--jobs` uses; it ends with its parent, and its keeper with it: what Ray kills leaves nothing behind.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeLabelSchedulingStrategy, NotIn

from harness import clock
from harness.errors import HarnessError, Interrupted, UsageError
from harness.events import Event
from harness.executors import demand, errand
from harness.executors.base import Executor
from harness.executors.demand import Resources
from harness.executors.errand import Ended
from harness.executors.pools import TEARDOWN_SECONDS, Vanished
from harness.executors.remote import Cluster, Lost, Need

SILENT_SECONDS = 120.0
"""Without a word, after which a node counts as lost though the cluster still believes in it."""
IN_FLIGHT = 16
"""Items that a node may be ahead of us."""
_QUEUED_SECONDS = 10.0
_LOOK_SECONDS = 0.5
_CONNECT_SECONDS = 10.0


# --- on the node


@dataclass(frozen=True, kw_only=True, slots=True)
class Began:
    """The first item of a stream."""

    node_id: str
    host: str


class Hand:
    """The actor. Of its two threads one streams, and the other can be told to stop."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        # Children would import the program of Ray's worker, as multiprocessing does with whatever is `__main__`.
        sys.modules["__main__"].__file__ = None

    def stop(self) -> None:
        self._stop.set()

    def work(self, code: str, packed: bytes) -> Iterator[object]:
        """Everything that there is to tell: Began, events, pieces, None as a heartbeat, Ended."""
        yield Began(node_id=ray.get_runtime_context().get_node_id(), host=socket.gethostname())
        yield from errand.work(code, packed, stop=self._stop, declared=_declared)


def _declared(resource: str) -> float:
    """How much of it this node has in all."""
    mine = ray.get_runtime_context().get_node_id()
    return next(float(each["Resources"][resource]) for each in ray.nodes() if each["NodeID"] == mine)


# --- with the driver


class Ray:
    """The engine."""

    def nodes(self) -> list[Resources]:
        return _living()

    def stream(self, need: Need, order: bytes, *, avoid: str, stop: threading.Event) -> Iterator[object]:
        return _Hearing(need, order, avoid=avoid, stop=stop).items()


def _living(*, but: str = "") -> list[Resources]:
    return [each["Resources"] for each in ray.nodes() if each["Alive"] and each["NodeID"] != but]


class _Hearing:
    """One actor, and what is heard of it."""

    def __init__(self, need: Need, order: bytes, *, avoid: str, stop: threading.Event) -> None:
        self._need, self._order, self._avoid, self._stop = need, order, avoid, stop
        self._began: Began | None = None
        self._heard = clock.Deadline.after(_QUEUED_SECONDS)
        self._until: clock.Deadline | None = None
        self._waited = False

    def items(self) -> Iterator[object]:
        actor = self._actor()
        try:
            work = actor.work.options(num_returns="streaming", _generator_backpressure_num_objects=IN_FLIGHT)
            stream = work.remote(errand.digest(), self._order)
            yield from self._listen(actor, stream)
        finally:
            with suppress(RayError):
                ray.kill(actor)

    def _actor(self) -> Any:
        need = self._need(_living())
        options: dict[str, Any] = {"num_cpus": 0, "num_gpus": need.gpus, "resources": dict(need.others)}
        if not any(map(need.fits, _living(but=self._avoid))):
            self._avoid = ""  # there is no elsewhere: again where it was is better than never
        if self._avoid:
            options["scheduling_strategy"] = NodeLabelSchedulingStrategy(hard={"ray.io/node-id": NotIn(self._avoid)})
        return ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=2, **options)(Hand).remote()

    def _listen(self, actor: Any, stream: Any) -> Iterator[object]:
        while True:
            self._obey(actor)
            if not ray.wait([stream], timeout=_LOOK_SECONDS)[0]:
                yield from self._nothing()
                continue
            item = self._next(stream)
            self._heard = clock.Deadline.after(SILENT_SECONDS)
            if isinstance(item, Began):
                self._began = item
                yield Event(kind="notice", text=f"on {item.host} (node {item.node_id[:8]} of the cluster)")
            elif item is not None:
                yield self._as_lost(item)
            if isinstance(item, Ended):
                return

    def _obey(self, actor: Any) -> None:
        """If it is to stop: at once where nothing has begun, else when the node has told its end."""
        if self._stop.is_set() and self._until is None:
            if self._began is None:
                raise Interrupted("before it began")
            actor.stop.remote()
            self._until = clock.Deadline.after(TEARDOWN_SECONDS)
        if self._until and self._until.expired:
            raise Interrupted(f"told to stop, and not heard of for {TEARDOWN_SECONDS:.0f} s")

    def _nothing(self) -> Iterator[Event]:
        """Nothing was heard: it is lost, or still queued, or there is no node any more on which it could begin."""
        if not self._heard.expired:
            return
        if self._began:
            raise self._lost(f"was not heard of for {SILENT_SECONDS:.0f} s")
        need = self._need(_living(but=self._avoid))
        if not self._waited:
            yield Event(kind="notice", text=f"waiting for {need.words} of the cluster")
        self._waited, self._heard = True, clock.Deadline.after(_QUEUED_SECONDS)

    def _next(self, stream: Any) -> object:
        try:
            return ray.get(next(stream), timeout=SILENT_SECONDS)
        except StopIteration:
            raise self._lost("ended without a word") from None
        except RayTaskError as error:
            raise HarnessError(f"unexpected {type(error.cause).__name__}: {error.cause}", fix="report it") from error
        except RayError as error:
            raise self._gone(error) from error

    def _as_lost(self, item: object) -> object:
        """A child that was killed on its node is a run that is lost like any other."""
        if isinstance(item, Ended) and isinstance(item.error, Vanished):
            return Ended(error=self._lost(f"lost it: {item.error.what}"))
        return item

    def _gone(self, error: RayError) -> Lost:
        """The end of a connection is all that is seen at first: which of the two ends it was, Ray learns much later."""
        if self._began is None:
            return Lost(f"the cluster could not begin the run: {' '.join(str(error).split())[:500]}")
        return self._lost("was lost, or the process on it that kept the run was killed")

    def _lost(self, what: str) -> Lost:
        assert self._began is not None
        host, node_id = self._began.host, self._began.node_id
        return Lost(f"{host} (node {node_id[:8]} of the cluster) {what}", node_id=node_id)


@contextmanager
def connected(address: str, *, node_class: str | None) -> Iterator[Executor]:
    """The cluster at an address, as long as the block goes on.

    Raises:
        UsageError: none answers, or none of its nodes is of that class.
    """
    _connect(address)
    try:
        engine = Ray()
        yield Cluster(engine, node_class=demand.class_of(engine.nodes(), node_class))
    finally:
        ray.shutdown()


def _connect(address: str) -> None:
    if "://" in address:
        fix = "run this on a node of the cluster with --ray auto, or give HOST:PORT of its head"
        raise UsageError(f"--ray {address}: results cannot come back through a Ray client", fix=fix)
    place = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    if ":" in place:
        _check_listens(place, address)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except HarnessError:  # an interruption
        raise
    except Exception as error:  # Ray has no class for it
        what = f"--ray {address}: no cluster answers: {' '.join(str(error).split())[:300]}"
        fix = "start one (`ray start --head`), with the same versions of Ray and Python as here"
        raise UsageError(what, fix=fix) from error
    finally:
        for number, handler in handlers.items():  # Ray puts its own in their place
            signal.signal(number, handler)


def _check_listens(place: str, address: str) -> None:
    """Ray asks a port where nobody listens again and again, for minutes."""
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        what = f"--ray {address}: no cluster answers at {place}: {error}"
        raise UsageError(what, fix="start one (`ray start --head`), or name its head as HOST:PORT") from error
