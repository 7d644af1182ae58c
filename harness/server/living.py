"""The living server: one process tree, from the spawn to the proof that nothing of it is left.

    keeper ──exit──┐
    prober ──200───┼─▶ one condition ─▶ wait_ready: Ready | Exited | Hung   (nothing polls, nothing waits for a probe)
    watch ──quiet──┘
    log pump ─▶ server.log, server.times, on_line

Times are seconds since the spawn. A server that fails is an outcome; a port that is somebody else's, a full disk or a
killed keeper is an exception. Whatever happens inside the `with`, nothing of the server lives after it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from harness import clock
from harness.clock import Deadline
from harness.errors import NodeError
from harness.launch import Launch
from harness.masking import Masker
from harness.record import Teardown
from harness.server import evidence, leftovers, probe, proctree, stopping
from harness.server.kept import KeptTree, lost_error
from harness.server.logpump import Line, LogPump
from harness.server.quiet import Quiet

_SETTLE = 2.0
"""Seconds that the log may take to catch up with a death. It takes none where the machine has time for its pump; under
load 0.1 s was too short, and a server "died without a word" whose last words were on disk a moment later."""
_CLEAN = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    t: float
    """The first 200 that was provably ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exited:
    """The leader ended by itself: `exit 0` is as bad as any other, vLLM ends so when its engine dies."""

    how: str
    """`exit 1` or `SIGKILL`."""
    t: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Hung:
    reason: Literal["silence", "startup"]
    quiet_seconds: float
    """Seconds since the last byte of output."""
    t: float
    stacks: tuple[str, ...]
    """Files of evidence, relative to the run's folder."""


Outcome = Ready | Exited | Hung


class Server:
    """A context manager; `stop` is safe to call twice, and leaving the `with` calls it."""

    def __init__(
        self,
        launch: Launch,
        *,
        folder: Path,
        health_path: str,
        literals: tuple[bytes, ...],
        startup: float,
        silence: float,
        stop: float,
        masker: Masker,
        on_line: Callable[[Line], None],
    ) -> None:
        self._launch, self._folder, self._masker = launch, folder, masker
        self._literals, self._on_line = literals, on_line
        self._startup, self._silence, self._stop_budget = startup, silence, stop
        self._changed = threading.Condition(threading.RLock())
        self._kept = KeptTree(self._changed)
        self._prober = probe.Prober(launch.url + health_path, on_ok=self._check_owner)
        self._over = threading.Event()
        self._pump: LogPump | None = None
        self._quiet = Quiet(silence, start=clock.now())
        self._ready: float | None = None
        self._foreign: str | None = None
        self._hung = self._stuck = False
        self._stopping = float("inf")
        self._teardown: Teardown | None = None

    def __enter__(self) -> Self:
        """Spawn it.

        Raises:
            BuildError: its program cannot be executed.
            NodeError: the keeper process cannot be started, or the folder cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            pipes = self._kept.spawn(self._launch.argv, self._launch.env)
            self._quiet = Quiet(self._silence, start=self._kept.started)
            self._start_pump(pipes)
            self._prober.start()
            threading.Thread(target=self._watch, name="watch", daemon=True).start()
        except OSError as error:
            self._release()
            raise NodeError(
                f"the server cannot be started: {error}", fix=f"see whether {self._folder} is writable"
            ) from error
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._release()

    @property
    def pid(self) -> int:
        """The leader's."""
        return self._kept.leader

    @property
    def started(self) -> float:
        """Monotonic second of the spawn: what every `t` counts from."""
        return self._kept.started

    @property
    def peak_rss(self) -> int:
        """Highest sum of resident bytes of all processes, sampled every second; shared pages count for each."""
        return self._quiet.peak_rss

    def wait_ready(self) -> Outcome:
        """Wait for health, an end or a hang, whichever is first; the evidence of a hang is on disk when this returns.

        Raises:
            NodeError: the port is somebody else's, the log cannot be written, or the keeper was killed.
        """
        deadline = Deadline(at=self._kept.started + self._startup, budget=self._startup)
        with self._changed:
            self._changed.wait_for(self._is_decided, deadline.left)
        self._raise_ours()
        exited = self.exited()
        if exited:
            return exited
        if self._foreign:
            raise NodeError(
                f"another server answers on port {self._launch.port}: {self._foreign}",
                fix="end it or run again; a free port is chosen for every run",
            )
        if self._ready is not None:
            return Ready(t=self._ready - self._kept.started)
        return self._hang("silence" if self._hung else "startup")

    def exited(self) -> Exited | None:
        """How and when the leader ended by itself, without waiting; None while it runs, or where we stopped it.

        Raises:
            NodeError: the keeper was killed, so nobody knows.
        """
        self._raise_ours()
        if self._kept.code is None or self._kept.ended >= self._stopping:
            return None
        if self._pump:
            self._pump.settle(_SETTLE)
        return Exited(how=_how(self._kept.code), t=self._kept.ended - self._kept.started)

    def on_exit(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from a thread, when the leader ends; at once where it has ended."""
        self._kept.on_exit(callback)

    def collect_hang(self) -> tuple[str, ...]:
        """Write the evidence of a hang into `stacks/`; gives the names of the files. A later `stop` kills at once."""
        self._stuck = True
        tree = self._kept.tree()
        return evidence.collect(
            tree, self._folder, masker=self._masker, quiet=self._quiet_seconds(), tail=self.tail(40)
        )  # fmt: skip

    def tail(self, n: int) -> list[str]:
        return self._pump.tail(n) if self._pump else []

    def stop(self, *, within: float | None = None) -> Teardown:
        """Take the whole tree down and prove it: at most `within` seconds (the stop budget if None).

        Interrupted in the middle, everything is killed at once before the interruption goes on.
        """
        if self._teardown is None:
            self._prober.stop()
            self._stopping = min(self._stopping, clock.now())
            budget = self._stop_budget if within is None else min(within, self._stop_budget)
            try:
                self._teardown = self._take_down(Deadline.after(budget))
            except BaseException:
                self._release()
                raise
        return self._teardown

    def _take_down(self, deadline: Deadline) -> Teardown:
        begin = clock.now()
        kept = self._kept
        steps = stopping.take_down(kept, stopping.PLANS[self._condition()], deadline)
        kept.clean(Deadline.after(max(_CLEAN, deadline.left)))
        self._release()
        removed, left = kept.removed, kept.left
        if removed is None:
            removed = tuple(leftovers.remove_folder(kept.temp))
            left = (f"{leftovers.SHM} was not looked at: the keeper was killed",)
        return Teardown(
            seconds=clock.now() - begin,
            steps=steps,
            survivors=tuple(f"{process.pid} {proctree.title(process)}" for process in kept.survivors),
            removed=removed,
            left=left,
        )

    def _condition(self) -> stopping.Condition:
        if self._stuck or any(process.state in "Tt" for process in self._kept.tree()):
            return "hung"
        return "starting" if self._ready is None else "ready"

    def _release(self) -> None:
        """End every thread and, where it still lives, the tree. The keeper kills even if we are interrupted here."""
        self._over.set()
        self._prober.stop()
        self._kept.close()
        if self._pump:
            self._pump.stop()

    def _start_pump(self, pipes: tuple[int, int]) -> None:
        try:
            self._pump = LogPump(
                pipes, self._folder, started=self._kept.started,
                masker=self._masker, literals=self._literals, on_line=self._on_line,
            )  # fmt: skip
        except OSError:
            for fd in pipes:
                os.close(fd)
            raise
        self._pump.start()

    def _check_owner(self, t: float) -> bool:
        """Somebody answered 200 at `t`; False: ask again."""
        host, port = self._launch.host, self._launch.port
        if not proctree.listening_sockets(host, port):
            return False
        foreign = probe.foreign_owner(host, port, self._kept.tree())
        with self._changed:
            self._foreign, self._ready = foreign, None if foreign else t
            self._changed.notify_all()
        return True

    def _watch(self) -> None:
        pause = least = min(1.0, self._silence / 5)
        while self._pump and not self._over.wait(pause):
            start = clock.now()
            self._quiet.feed(start, self._kept.tree())
            pause = max(least, 20 * (clock.now() - start))  # at most 5 % of a core, however many processes there are
            is_hung = self._ready is None and self._quiet.is_hung(start, self._pump.last_output)
            if is_hung or self._pump.problem:
                with self._changed:
                    self._hung = self._hung or is_hung
                    self._changed.notify_all()

    def _is_decided(self) -> bool:
        kept, pump = self._kept, self._pump
        is_over = kept.code is not None or bool(kept.lost) or self._hung
        return (
            is_over or self._ready is not None or bool(self._foreign) or (pump is not None and pump.problem is not None)
        )

    def _raise_ours(self) -> None:
        problem = self._pump.problem if self._pump else None
        if isinstance(problem, OSError):
            raise NodeError(f"the server's log cannot be written: {problem}", fix=f"make room for {self._folder}")
        if problem:
            raise problem
        if self._kept.lost:
            raise lost_error(self._kept.lost)

    def _hang(self, reason: Literal["silence", "startup"]) -> Hung:
        now, quiet = clock.now(), self._quiet_seconds()
        return Hung(reason=reason, quiet_seconds=quiet, t=now - self._kept.started, stacks=self.collect_hang())

    def _quiet_seconds(self) -> float:
        return clock.now() - (self._pump.last_output if self._pump else self._kept.started)


def _how(code: int) -> str:
    return f"exit {code}" if code >= 0 else signal.Signals(-code).name
