"""The harness's side of the keeper: spawn a server below it, learn of its end at once, signal it, prove it gone."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness import clock
from harness.clock import Deadline
from harness.errors import BuildError, HarnessError, NodeError, ScenarioError
from harness.server import proctree
from harness.server.proctree import Process

_KEEPER = Path(__file__).with_name("keeper.py")
_PIPE_SIZE = 1 << 20
_SPAWN_SECONDS = 30.0


class KeptTree:
    """The processes below one keeper. `changed` is notified whenever one of the public attributes changes."""

    def __init__(self, changed: threading.Condition) -> None:
        self.changed = changed
        self.leader = 0
        """Pid of the server's first process; 0 before the spawn."""
        self.started = 0.0
        self.ended = 0.0
        """Monotonic seconds at the spawn and at the leader's end."""
        self.code: int | None = None
        """The leader's exit code, or minus the signal that killed it; None while it runs."""
        self.empty = False
        """The kernel says that no descendant is left."""
        self.lost = ""
        """Why the keeper does not answer any more, while it should."""
        self.removed: tuple[str, ...] | None = None
        self.left: tuple[str, ...] = ()
        self.temp = _temp_folder()
        self.survivors: tuple[Process, ...] = ()
        """Who still lived after `close`."""
        self.known: dict[int, Process] = {}
        """The tree as last seen: what must be found again if the keeper itself is killed."""
        self._callbacks: list[Callable[[], None]] = []
        self._worker = 0
        self._refused, self._of_words = "", False
        self._closing = False
        self._control: socket.socket | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def spawn(self, argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, int]:
        """Start the server in a session of its own; gives the read ends of its stdout and stderr.

        Raises:
            BuildError: its program cannot be executed.
            ScenarioError: its variables or flags cannot be given to a program.
            NodeError: the keeper did not start.
        """
        (out, out_in), (err, err_in) = _pipe(), _pipe()
        try:
            self._start_keeper(out_in, err_in)
            self._order(do="spawn", argv=argv, env=dict(env) | {"TMPDIR": self.temp}, cwd=self.temp)
            self._await_spawn(argv[0])
        except BaseException:
            os.close(out)
            os.close(err)
            raise
        finally:
            os.close(out_in)
            os.close(err_in)
        return out, err

    def tree(self) -> list[Process]:
        """The server's living processes, the leader first."""
        guard = self._guard.pid if self._guard else 0
        found = [p for p in proctree.descendants(guard) if p.pid != self._worker] if guard else []
        if found:
            self.known = {process.pid: process for process in found}
        return found

    def on_exit(self, callback: Callable[[], None]) -> None:
        """Call once, from a thread, when the leader ends or the keeper is lost; at once where that has happened."""
        with self.changed:
            self._callbacks.append(callback)
            is_over = self.code is not None or self.lost
        if is_over:
            self._tell()

    def signal_leader(self, number: signal.Signals) -> None:
        self._order(do="signal", signal=int(number))

    def kill(self) -> None:
        """SIGKILL for every descendant, again and again until none is left; `empty` tells."""
        self._order(do="kill")

    def clean(self, deadline: Deadline) -> None:
        """Remove the temporary folder and the server's shared memory; fills `removed` and `left`."""
        self._order(do="clean")
        with self.changed:
            self.changed.wait_for(lambda: self.removed is not None or self.lost, deadline.left)

    def close(self, seconds: float = 5.0) -> None:
        """Let the keeper go, which kills what still lives; `survivors` tells who outlived that. Safe to call twice."""
        deadline = Deadline.after(seconds)
        self._closing = True
        if self._control:
            with contextlib.suppress(OSError):  # not connected any more
                self._control.shutdown(socket.SHUT_RDWR)
            self._control.close()
        if self._guard:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(deadline.left)
                self.empty = self.empty or not self.lost  # it ends after the last of them
        while (orphans := self._orphans()) and not deadline.expired:
            for process in orphans:
                with contextlib.suppress(OSError):
                    os.kill(process.pid, signal.SIGKILL)
            clock.sleep(0.01)
        self.survivors = tuple(orphans)

    def _orphans(self) -> list[Process]:
        """Members of the server's session and processes seen in its tree before, wherever they hang now."""
        if self.empty or not self.leader:
            return []
        alive = [p for p in proctree.everything().values() if p.state not in "ZX"]
        seen = {(p.pid, p.started) for p in self.known.values()}
        return [p for p in alive if p.session == self.leader or (p.pid, p.started) in seen]

    def _start_keeper(self, out: int, err: int) -> None:
        self._control, theirs = socket.socketpair()
        fds = (theirs.fileno(), out, err)
        words = (*map(str, fds), str(os.getpid()), self.temp)
        with theirs:
            self._guard = subprocess.Popen(
                (sys.executable, "-I", "-S", str(_KEEPER), *words),
                pass_fds=fds,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        threading.Thread(target=self._listen, args=(self._control,), name="keeper", daemon=True).start()

    def _await_spawn(self, program: str) -> None:
        with self.changed:
            done = self.changed.wait_for(lambda: self.leader or self._refused or self.lost, _SPAWN_SECONDS)
        if self._refused:
            raise _refusal(program, self._refused, of_words=self._of_words)
        if self.lost or not done:
            raise NodeError(
                f"the keeper process did not start: {self.lost or 'no answer in 30 s'}",
                fix=f"see whether {sys.executable} runs and {self.temp} can be made",
            )

    def _order(self, **order: Any) -> None:
        try:
            if self._control:
                self._control.sendall(json.dumps(order).encode() + b"\n")
        except OSError:
            self._lose("it does not listen any more")

    def _listen(self, control: socket.socket) -> None:
        why = "it was killed"
        try:
            with control.makefile("rb") as events:
                for line in events:
                    event = json.loads(line)
                    why = event.get("what", why) if event["event"] == "broken" else why
                    self._learn(event)
        except (OSError, ValueError) as error:
            why = str(error)
        if not self._closing:
            self._lose(why)

    def _learn(self, event: Mapping[str, Any]) -> None:
        with self.changed:
            match event["event"]:
                case "spawned":
                    self.leader, self._worker, self.started = event["pid"], event["worker"], event["t"]
                case "refused":
                    self._of_words = event["of_words"]
                    self._refused = event["what"]
                case "exit":
                    self.code, self.ended = event["code"], event["t"]
                case "empty":
                    self.empty = True
                case "clean":
                    self.removed, self.left = tuple(event["removed"]), tuple(event["left"])
            self.changed.notify_all()
        if event["event"] == "exit":
            self._tell()

    def _lose(self, why: str) -> None:
        with self.changed:
            self.lost = self.lost or why
            self.changed.notify_all()
        self._tell()

    def _tell(self) -> None:
        with self.changed:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            threading.Thread(target=callback, name="on exit", daemon=True).start()


def lost_error(why: str) -> HarnessError:
    return NodeError(
        f"the process that keeps the server ended: {why}",
        fix="see whether somebody or the kernel's out-of-memory killer ended it (dmesg), then run again",
    )


def _refusal(program: str, why: str, *, of_words: bool) -> HarnessError:
    if of_words:
        text = f"{program} cannot be started with these variables and flags: {why}"
        return ScenarioError(text, fix="correct `env` and `serve` of the scenario")
    return BuildError(f"{program} cannot be started: {why}", fix="make the environment again")


def _temp_folder() -> str:
    """A path for the server's temporary files: short, because the path of a Unix socket in it has 108 bytes at most."""
    base = "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()  # noqa: S108
    return str(Path(base) / f"hns-{secrets.token_hex(4)}")


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    with contextlib.suppress(OSError):  # over the user's limit for pipes: the default size works too
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    return read, write
