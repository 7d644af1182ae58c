"""What an actor is to do on its node, and does in a child process; knows the variables of Ray, but not Ray."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import socket
import threading
import zlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import harness
from harness import leases, node
from harness.baseline.history import VARIABLE
from harness.build import Build
from harness.environment import scratch
from harness.errors import HarnessError, NodeError
from harness.events import Event, OnEvent
from harness.executors import demand, local
from harness.executors.base import Facts
from harness.executors.mirror import Source
from harness.executors.parcel import Parcel, unpack
from harness.executors.pools import Processes

BEAT_SECONDS = 1.0
"""Between two things that are told at most."""
_DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What an actor is to do: make a run, or for none look at a build."""

    build: Build
    parcel: Parcel | None
    node_class: str | None
    counted: str
    """The resource whose amount says how many runs a node may have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The last item."""

    result: Any = None
    error: HarnessError | None = None


def work(
    code: str, packed: bytes, *, stop: threading.Event, declared: Callable[[str], float]
) -> Generator[object, None, None]:
    """Do a pickled order and tell all of it: events, pieces of the run's folder, None as a heartbeat, at last Ended.

    `code` is the digest of the sources of whoever asks, `declared` says how much of a resource this node has. When
    `stop` is set the run is interrupted, and told until its server is down.
    """
    try:
        check(code)
        order: Order = pickle.loads(packed)  # noqa: S301 - made by our own driver, from these sources
        job = partial(There, order=order, environ=environ(order, declared(order.counted)))
        with scratch.folder("arriving") as place:
            ended = yield from _do(job(out=place), place, stop)
    except HarnessError as error:
        ended = Ended(error=error)
    yield ended


def _do(job: There, place: Path, stop: threading.Event) -> Generator[object, None, Ended]:
    source, events, ended, told = Source(place), list[Event](), None, False
    with Processes(events.append) as pool:
        pool.submit(0, job, label="")
        while ended is None:
            if stop.is_set() and not told:
                pool.interrupt(0)
                told = True
            ended = _heard(pool)
            for event in events:  # noqa: UP028 - a list takes nothing, and Ray sends into what it iterates
                yield event
            events.clear()
            yield from source.changes(last=ended is not None)
            yield None
    return ended


def _heard(pool: Processes) -> Ended | None:
    try:
        done = pool.hear(BEAT_SECONDS)
    except HarnessError as error:
        return Ended(error=error)
    return Ended(result=done[1]) if done else None


def check(code: str) -> None:
    """Raises: NodeError: `code` is not the digest of our sources."""
    if code != digest():
        host, here = socket.gethostname(), Path(harness.__file__).parent
        fix = "install the same harness on every node of the cluster"
        raise NodeError(f"{host} has other sources of harness in {here} than whoever asks for a run", fix=fix)


@dataclass(frozen=True, kw_only=True, slots=True)
class There:
    """What the child process of an actor does; of a run only its folder comes back, where secrets are masked."""

    order: Order
    out: Path
    environ: Mapping[str, str]

    def __call__(self, on_event: OnEvent) -> Facts | None:
        os.environ.clear()
        os.environ.update(self.environ)
        self._check_class()
        parcel = self.order.parcel
        if parcel is None:
            return local.look(self.order.build, on_event)
        os.environ.update(parcel.variables)
        history = self.out / ".history.sqlite"  # of the driver, who is told of this run: it does not travel back
        self.out.mkdir(parents=True, exist_ok=True)
        history.write_bytes(zlib.decompress(parcel.history))
        os.environ[VARIABLE] = str(history)
        here, there = str(self.out), str(parcel.ask.out)
        local.make(
            replace(unpack(parcel), out=self.out),
            lambda event: on_event(replace(event, text=event.text.replace(here, there))),
            reproduce=parcel.reproduce,
        )
        return None

    def _check_class(self) -> None:
        declared, found = self.order.node_class, node.read().node_class
        if declared is not None and declared != found:
            what = f"{socket.gethostname()} declares {demand.CLASS}{declared}, and is {found}"
            raise NodeError(what, fix=f"start Ray there with the resource {demand.CLASS}{found}")


def environ(order: Order, shares: float) -> dict[str, str]:
    """What Ray on this node was started with, as a run from a shell there would have it, and what is assigned to us.

    `shares` is how much of the counted resource the node declares.
    """
    given = {name: value for name, value in _raylet().items() if not name.startswith("RAY_")}
    if order.counted == demand.CPU:
        given[_DEVICES] = ""
    elif order.parcel and shutil.which("nvidia-smi"):
        given[_DEVICES] = os.environ.get(_DEVICES, "")
    elif order.parcel:  # its GPUs are only a number
        given.pop(_DEVICES, None)
    if order.parcel and (order.counted == demand.CPU or _DEVICES not in given):
        given[leases.CPU_SHARES] = str(int(shares))
    return given


def _raylet() -> dict[str, str]:
    """The environment of Ray's own process on this node: a worker's has Ray's additions, OMP_NUM_THREADS too."""
    try:
        raw = Path(f"/proc/{os.environ.get('RAY_RAYLET_PID') or os.getppid()}/environ").read_bytes()
    except OSError:
        return dict(os.environ)
    pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs}


@lru_cache
def digest() -> str:
    """Of our sources: what is sent is understood only by the same ones."""
    total, root = hashlib.sha256(), Path(harness.__file__).parent
    for file in sorted(root.rglob("*.py")):
        total.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return total.hexdigest()[:16]
