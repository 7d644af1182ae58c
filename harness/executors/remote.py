"""Runs on other nodes, whatever engine brings them there: one attempt, once more elsewhere, an end in any case.

Cluster.execute ─ parcel ─▶ Engine.stream ─▶ … another node … ─▶ events, pieces of the run's folder, Ended
"""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from harness import run
from harness.build import Build
from harness.errors import HarnessError, Interrupted, NodeError
from harness.events import Event, OnEvent
from harness.executors import demand
from harness.executors.arriving import Arriving
from harness.executors.base import Ask, Facts, Pool
from harness.executors.demand import Demand, Resources
from harness.executors.errand import Ended, Order
from harness.executors.mirror import Piece
from harness.executors.parcel import Parcel, pack
from harness.executors.pools import Threads
from harness.record import Run

Need = Callable[[Sequence[Resources]], Demand]
"""What is asked of the nodes that there are. Raises: HarnessError where none of them could ever give it."""


class Lost(NodeError):  # noqa: N818 - it happened to the run
    """The node, or the process on it that kept the run, is gone."""

    def __init__(self, what: str, *, node_id: str = "") -> None:
        super().__init__(
            what, fix="see why (`ray status`, the kernel's log of that node); it is made once more elsewhere"
        )
        self.node_id = node_id


class Engine(Protocol):
    def nodes(self) -> list[Resources]:
        """What the living nodes declare."""

    def stream(self, need: Need, order: bytes, *, avoid: str, stop: threading.Event) -> Iterator[object]:
        """Have an order (a pickled `Order`) done on one node, not on node `avoid` if there is another, until `stop`.

        Gives events, pieces and at last Ended.

        Raises:
            Lost: there will be no end.
            Interrupted: it was stopped before it began, or did not end then.
        """


class Cluster:
    """The executor of an engine; `node_class` is that of the nodes to use, None where they declare none."""

    remote = True

    def __init__(self, engine: Engine, *, node_class: str | None) -> None:
        self._engine, self._class = engine, node_class
        self._lock = threading.Lock()
        self._talks: dict[threading.Thread, Talk] = {}
        self._stopped: set[threading.Thread] = set()
        self._facts: dict[Build, Facts] = {}

    def pool(self, jobs: int, on_event: OnEvent) -> Pool:
        del jobs  # what is submitted at once is queued by the cluster
        return Threads(on_event, self._interrupt)

    def facts(self, build: Build, on_event: OnEvent) -> Facts:
        if build not in self._facts:
            need = partial(demand.to_look, build, node_class=self._class)
            order = self._order(build, None, need(self._engine.nodes()))
            found = self._talk(self._begin(need, order), _events_only(on_event))
            assert isinstance(found, Facts)
            self._facts[build] = found
        return self._facts[build]

    def execute(self, ask: Ask, on_event: OnEvent) -> Run:
        done, lost = self._once(ask, on_event)
        if lost and self._fits(ask, on_event):
            on_event(Event(kind="notice", text=f"{ask.scenario.title} is made once more, elsewhere"))
            done, _ = self._once(ask, on_event, avoid=lost.node_id)
        run.remember(done, on_event)
        return done

    def _fits(self, ask: Ask, on_event: OnEvent) -> bool:
        try:
            self._need(ask)(self._engine.nodes())
        except HarnessError as error:
            on_event(Event(kind="notice", text=f"{ask.scenario.title} is not made once more: {error.what}"))
            return False
        return True

    def _once(self, ask: Ask, on_event: OnEvent, *, avoid: str = "") -> tuple[Run, Lost | None]:
        """One attempt; Lost where it came to no end of its own. Its record is closed in any case."""
        arriving = Arriving(ask)

        def take(item: object) -> None:
            if isinstance(item, Piece):
                arriving.write(item)
            elif isinstance(item, Event):
                on_event(arriving.told(item))

        try:
            need = self._need(ask)
            order = self._order(ask.build, pack(ask), need(self._engine.nodes()))
            self._talk(self._begin(need, order, avoid=avoid), take)
            return arriving.ended, None  # noqa: TRY300 - a record that did not come is an end like any other
        except (Interrupted, KeyboardInterrupt) as error:
            arriving.interrupt(error)
            raise
        except HarnessError as error:
            if (complete := arriving.complete) is not None:
                return complete, None
            failed = arriving.close(error)
            on_event(Event(kind="verdict", text=f"{failed.verdict} {failed.title}: {failed.reason}", ok=False))
            return failed, error if isinstance(error, Lost) else None

    def _need(self, ask: Ask) -> Need:
        return partial(demand.of_run, ask.scenario, ask.build, node_class=self._class)

    def _order(self, build: Build, parcel: Parcel | None, need: Demand) -> bytes:
        counted = "GPU" if need.gpus else demand.CPU
        return pickle.dumps(Order(build=build, parcel=parcel, node_class=self._class, counted=counted))

    def _begin(self, need: Need, order: bytes, *, avoid: str = "") -> Talk:
        return Talk(lambda stop: self._engine.stream(need, order, avoid=avoid, stop=stop))

    # --- one conversation a thread, which can be told to stop from outside

    def _talk(self, talk: Talk, take: Callable[[object], None]) -> object:
        me = threading.current_thread()
        with self._lock:
            if me in self._stopped:
                raise Interrupted("cancelled")
            self._talks[me] = talk
        try:
            talk.start()
            return talk.result(take)
        except BaseException:
            talk.stop()
            while not talk.over:
                with suppress(HarnessError):
                    talk.result(take)
            raise
        finally:
            with self._lock:
                del self._talks[me]

    def _interrupt(self, thread: threading.Thread) -> None:
        with self._lock:
            self._stopped.add(thread)
            if thread in self._talks:
                self._talks[thread].stop()


class Talk:
    """One stream, heard in a thread of its own.

    Engines may swallow what a handler of signals raises (Ray does), so who is to be interrupted waits at a queue.
    """

    def __init__(self, stream: Callable[[threading.Event], Iterator[object]]) -> None:
        self._stream = stream
        self._said: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self.over = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="stream", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def result(self, take: Callable[[object], None]) -> object:
        """Everything that is said goes to `take`, the end is returned or raised."""
        while True:
            said = self._said.get()
            if not isinstance(said, Ended):
                take(said)
                continue
            self.over = True
            if said.error:
                raise said.error
            return said.result

    def _run(self) -> None:
        try:
            for item in self._stream(self._stopping):
                self._said.put(item)
        except HarnessError as error:
            self._said.put(Ended(error=error))
        except BaseException as error:  # noqa: BLE001 - the outermost line of a thread: raised where it is waited for
            self._said.put(Ended(error=HarnessError(f"unexpected {type(error).__name__}: {error}", fix="report it")))


def _events_only(on_event: OnEvent) -> Callable[[object], None]:
    def take(item: object) -> None:
        if isinstance(item, Event):
            on_event(item)

    return take
