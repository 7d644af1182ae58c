"""Who makes the probes: this process, one after the other, or several child processes at once.

A probe in a child is cancelled with SIGTERM, which is an interruption like any other: its server is taken down, and its
record says `interrupted`, so that it never counts.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Protocol, Self

from harness import signals
from harness.errors import HarnessError, Interrupted
from harness.events import Event, OnEvent

TEARDOWN_SECONDS = 120.0
"""For a cancelled probe to take its server down."""

Job = Callable[[OnEvent], Any]
"""What is to be done; told whom to tell of it. For child processes it must pickle."""


class Pool(Protocol):
    """Runs jobs by their position in the range."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def running(self) -> tuple[int, ...]: ...
    def submit(self, position: int, job: Job) -> None: ...
    def wait(self) -> tuple[int, Any]:
        """The next that is done, and its result."""

    def cancel(self, position: int) -> None: ...


def choose(jobs: int, on_event: OnEvent) -> Pool:
    return Processes(on_event) if jobs > 1 else Inline(on_event)


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

    def submit(self, position: int, job: Job) -> None:
        self._jobs[position] = job

    def wait(self) -> tuple[int, Any]:
        position = next(iter(self._jobs))
        return position, self._jobs.pop(position)(self._on_event)

    def cancel(self, position: int) -> None:
        self._jobs.pop(position, None)


class Processes:
    """Each in a child of its own; leases keep them from each other's GPUs."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._context = multiprocessing.get_context("spawn")  # a fork would share our threads' locks
        self._children: dict[int, tuple[BaseProcess, Connection]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for position in self.running:
            self.cancel(position)

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(self._children)

    def submit(self, position: int, job: Job) -> None:
        ours, theirs = self._context.Pipe()
        child = self._context.Process(target=_work, args=(theirs, pickle.dumps(job)), name=f"probe {position}")
        child.start()
        theirs.close()
        self._children[position] = child, ours

    def wait(self) -> tuple[int, Any]:
        """Raises the error of a probe that could not be made; Interrupted where somebody else stopped a child."""
        while True:
            pipes = {pipe: position for position, (_, pipe) in self._children.items()}
            for pipe in multiprocessing.connection.wait(list(pipes)):
                position = pipes[pipe]  # type: ignore[index]  # wait() gives back what it was given
                done, result = self._hear(position)
                if done:
                    return position, result

    def _hear(self, position: int) -> tuple[bool, Any]:
        child, pipe = self._children[position]
        try:
            said = pipe.recv()
        except EOFError:
            self._end(position)
            raise HarnessError(
                f"the process of a probe ended with {child.exitcode} and no result", fix="run the same command again"
            ) from None
        if isinstance(said, Event):
            self._on_event(replace(said, text=f"[{position}] {said.text}"))
            return False, None
        self._end(position)
        if isinstance(said, BaseException):
            raise said
        return True, said

    def cancel(self, position: int) -> None:
        if position in self._children:
            self._children[position][0].terminate()
            self._end(position)

    def _end(self, position: int) -> None:
        child, pipe = self._children.pop(position)
        pipe.close()
        child.join(TEARDOWN_SECONDS)
        if child.is_alive():  # its keeper takes the server down when it is gone
            child.kill()
            child.join()


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
