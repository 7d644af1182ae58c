"""Who does the jobs: this process, one after the other, several child processes, or threads that wait for other nodes.

A job in a child is cancelled with SIGTERM, which is an interruption like any other: its server is taken down, and its
record says `interrupted`, so that it never counts.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Self

from harness import signals
from harness.errors import HarnessError, Interrupted, NodeError
from harness.events import Event, OnEvent
from harness.executors.base import Job

TEARDOWN_SECONDS = 120.0
"""For a cancelled job to take its server down."""


class Inline:
    """One at a time, here: what is seen of it is what `harness run` shows."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._jobs: dict[int, Job] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.clear()

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(self._jobs)

    def submit(self, position: int, job: Job, *, label: str | None = None) -> None:
        del label  # nothing else is told meanwhile
        self._jobs[position] = job

    def wait(self) -> tuple[int, Any]:
        position = next(iter(self._jobs))
        return position, self._jobs.pop(position)(self._on_event)

    def cancel(self, position: int) -> None:
        self._jobs.pop(position, None)


class Vanished(NodeError):  # noqa: N818 - it happened to the job
    """The process of a job was killed: it gave neither a result nor an error."""


class Processes:
    """Each in a child of its own; leases keep them from each other's GPUs."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._context = multiprocessing.get_context("spawn")  # a fork would share our threads' locks
        self._children: dict[int, tuple[BaseProcess, Connection, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for position in self.running:
            self.interrupt(position)
        for position in self.running:
            self.cancel(position)

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(self._children)

    def submit(self, position: int, job: Job, *, label: str | None = None) -> None:
        ours, theirs = self._context.Pipe()
        child = self._context.Process(target=_work, args=(theirs, pickle.dumps(job)), name=f"job {position}")
        child.start()
        theirs.close()
        self._children[position] = child, ours, str(position) if label is None else label

    def wait(self) -> tuple[int, Any]:
        """Raises the error of a job that could not be done; Interrupted where somebody else stopped a child."""
        while not (done := self.hear(None)):
            pass
        return done

    def hear(self, seconds: float | None) -> tuple[int, Any] | None:
        """What is told next within so many seconds: the end of a job, or None after an event or their end.

        Raises: as `wait`.
        """
        pipes = {pipe: position for position, (_, pipe, _label) in self._children.items()}
        for pipe in multiprocessing.connection.wait(list(pipes), seconds):
            position = pipes[pipe]  # type: ignore[index]  # wait() gives back what it was given
            done, result = self._hear(position)
            if done:
                return position, result
        return None

    def _hear(self, position: int) -> tuple[bool, Any]:
        child, pipe, label = self._children[position]
        try:
            said = pipe.recv()
        except EOFError:
            self._end(position)
            raise Vanished(
                f"the process of a run ended with {child.exitcode} and no result", fix="run the same command again"
            ) from None
        if isinstance(said, Event):
            self._on_event(labelled(said, label))
            return False, None
        self._end(position)
        if isinstance(said, BaseException):
            raise said
        return True, said

    def interrupt(self, position: int) -> None:
        """Tell a job to stop; it is heard of until it has taken its server down."""
        self._children[position][0].terminate()

    def cancel(self, position: int) -> None:
        if position in self._children:
            self.interrupt(position)
            self._end(position)

    def _end(self, position: int) -> None:
        child, pipe, _ = self._children.pop(position)
        pipe.close()
        child.join(TEARDOWN_SECONDS)
        if child.is_alive():  # its keeper takes the server down when it is gone
            child.kill()
            child.join()


class Threads:
    """Each in a thread that waits for runs made elsewhere; what those tell is told in the thread that waits here."""

    def __init__(self, on_event: OnEvent, stop: Callable[[threading.Thread], None]) -> None:
        """`stop` is given a thread whose runs are to be interrupted, now and from now on."""
        self._on_event, self._stop = on_event, stop
        self._said: queue.SimpleQueue[tuple[threading.Thread, Event | _Done]] = queue.SimpleQueue()
        self._threads: dict[int, tuple[threading.Thread, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for thread, _label in self._threads.values():
            self._stop(thread)
        for position in self.running:
            self.cancel(position)

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(self._threads)

    def submit(self, position: int, job: Job, *, label: str | None = None) -> None:
        thread = threading.Thread(target=self._work, args=(job,), name=f"job {position}", daemon=True)
        self._threads[position] = thread, str(position) if label is None else label
        thread.start()

    def _work(self, job: Job) -> None:
        me = threading.current_thread()
        try:
            done = _Done(result=job(lambda event: self._said.put((me, event))))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            done = _Done(error=error)
        self._said.put((me, done))

    def wait(self) -> tuple[int, Any]:
        """Raises the error of a job that could not be done."""
        while True:
            thread, said = self._said.get()
            position = next((at for at, (mine, _) in self._threads.items() if mine is thread), None)
            if position is None:  # cancelled meanwhile
                continue
            if isinstance(said, Event):
                self._on_event(labelled(said, self._threads[position][1]))
                continue
            del self._threads[position]
            if said.error:
                raise said.error
            return position, said.result

    def cancel(self, position: int) -> None:
        if position in self._threads:
            thread, _ = self._threads.pop(position)
            self._stop(thread)
            thread.join(TEARDOWN_SECONDS)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Done:
    result: object = None
    error: BaseException | None = None


def labelled(event: Event, label: str) -> Event:
    """An event that says of which of several it is."""
    return replace(event, text=f"[{label}] {event.text}") if label else event


def _work(pipe: Connection, job: bytes) -> None:
    """The child's life: do the job, tell of it, give back the result or the error."""

    def tell(event: Event) -> None:
        with suppress(OSError):  # nobody listens any more: the parent goes away, and we with it
            pipe.send(replace(event, tail=None))

    threading.Thread(target=_end_with_parent, daemon=True).start()
    with signals.interrupting():
        try:
            result: object = pickle.loads(job)(tell)  # noqa: S301 - made by our own parent
        except (Interrupted, KeyboardInterrupt) as error:
            result = Interrupted(str(error))
        except HarnessError as error:
            result = error
        except Exception as error:  # noqa: BLE001 - the outermost line of a process: our own bug, never a mark
            result = HarnessError(f"unexpected {type(error).__name__}: {error}", fix="report it")
        with suppress(OSError):
            pipe.send(result)


def _end_with_parent() -> None:
    """A parent that was killed cannot cancel us any more."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
