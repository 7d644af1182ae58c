"""The keeper: a small process that answers for the server and outlives the harness by just as long as it takes to kill.

    harness ──socket──▶ worker ─▶ server ─▶ engine ─▶ workers …       (own session each: keeper, server)
       └──▶ guard ────────┘

Both guard and worker are child subreapers, so a descendant that changed its session or lost its parent is still below
them, and the kernel's "no child left" (ECHILD) *proves* that none lives. Who dies decides who cleans:
    harness gone (socket closed, at any moment)  → worker kills the tree, cleans, ends; then guard ends
    worker gone                                  → its children become the guard's, which kills and cleans
    guard gone                                   → worker notices, kills and cleans
Nothing polls: the loop wakes for the socket, a dead child or a dead relative. The launch (with its secrets) comes
through the socket, never through argv. Started as `python -I -S keeper.py CONTROL OUT ERR HARNESS_PID TEMP_FOLDER`.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import sys
import time
import traceback
from typing import Any, NoReturn

_ROOT = os.path.abspath(__file__).rsplit(os.sep, 3)[0]  # noqa: PTH100 - pathlib would double the time to start
sys.path.append(_ROOT)  # isolated mode knows no other place

from harness.server import leftovers, proctree  # noqa: E402 - the line above makes it findable

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_EVERY = 1.0  # seconds between looks at /dev/shm
_KILL_EVERY = 0.01  # seconds between two passes over a tree that is being killed
_PASSES = 200
_FREEZE = 0.05  # seconds for a tree to stand still
_DEAF = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)


def kill_all(root: int, shm: leftovers.SharedMemory) -> None:
    """One pass. Frozen first, so that nobody forks or makes shared memory between our look and its death."""
    _freeze(root)
    shm.look()
    _signal_all(proctree.descendants(root), signal.SIGKILL)


def _freeze(root: int) -> None:
    deadline = time.monotonic() + _FREEZE
    while moving := [process for process in proctree.descendants(root) if process.state not in "TtD"]:
        _signal_all(moving, signal.SIGSTOP)
        if time.monotonic() >= deadline:
            return
        time.sleep(0.001)


def _signal_all(tree: list[proctree.Process], number: signal.Signals) -> None:
    for process in tree:
        try:
            os.kill(process.pid, number)
        except OSError:
            continue


def reap() -> tuple[list[tuple[int, int]], bool]:
    """Dead children as (pid, status), and whether any child is left."""
    dead: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return dead, False
        if pid == 0:
            return dead, True
        dead.append((pid, status))


class Worker:
    """Starts the server, reports its end, obeys the harness, and kills everything when the harness is gone."""

    def __init__(self, control: int, pipes: tuple[int, int], relatives: list[int], temp: str) -> None:
        self._control, self._pipes, self._temp = control, pipes, temp
        self._leader = 0
        self._received = b""
        self._killing = self._alone = self._done = False
        self._shm = leftovers.SharedMemory(os.getpid())
        self._wake, wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._relatives = relatives
        self._poll = select.poll()
        for fd in (control, self._wake, *relatives):
            self._poll.register(fd, select.POLLIN)
        self._spawned = False
        self._next_look = 0.0
        self._passes = 0

    def run(self) -> None:
        while not self._done:
            ready = [fd for fd, _ in self._poll.poll(1000 * self._patience())]
            if self._wake in ready:
                os.read(self._wake, 4096)
            if any(fd in ready for fd in self._relatives):
                self._is_alone()
            elif self._control in ready:
                self._receive()
            self._step()

    def _patience(self) -> float:
        if not self._killing:
            return _LOOK_EVERY
        return _KILL_EVERY if self._passes < _PASSES else _LOOK_EVERY  # a process stuck in a driver takes its time

    def _step(self) -> None:
        if self._spawned and time.monotonic() >= self._next_look:
            self._look()
        if self._killing:
            self._passes += 1
            kill_all(os.getpid(), self._shm)
        dead, has_children = reap()
        for pid, status in dead:
            if pid == self._leader:
                self._leader = 0
                self._send(event="exit", code=os.waitstatus_to_exitcode(status), t=time.monotonic())
        if not has_children:
            self._nobody_left()

    def _look(self) -> None:
        start = time.monotonic()
        self._shm.look()
        now = time.monotonic()
        self._next_look = now + max(_LOOK_EVERY, 20 * (now - start))  # at most 5 % of a core, whatever runs here

    def _nobody_left(self) -> None:
        self._killing = False
        if self._spawned:
            self._spawned = False
            self._send(event="empty", t=time.monotonic())
        if self._alone:
            self._clean()
            self._done = True

    def _is_alone(self) -> None:
        if not self._alone:
            for fd in (self._control, *self._relatives):
                self._poll.unregister(fd)
            self._alone = self._killing = True

    def _receive(self) -> None:
        try:
            data = os.read(self._control, 1 << 16)
        except OSError:
            data = b""
        if not data:
            self._is_alone()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "spawn":
                self._spawn(order)
            case "signal":
                self._shm.look()
                if self._leader:
                    os.kill(self._leader, order["signal"])
            case "kill":
                self._killing = True
            case "clean":
                self._send(event="clean", removed=self._clean(), left=self._shm.left())

    def _clean(self) -> list[str]:
        return self._shm.remove() + leftovers.remove_folder(self._temp)

    def _spawn(self, order: dict[str, Any]) -> None:
        trouble, trouble_in = os.pipe2(os.O_CLOEXEC)
        started = time.monotonic()
        self._leader = os.fork()
        if self._leader == 0:
            _become_server(order, self._pipes, trouble_in)
        for fd in (*self._pipes, trouble_in):
            os.close(fd)
        self._spawned = True
        problem = os.read(trouble, 4096).decode(errors="replace")
        os.close(trouble)
        if problem:
            self._send(event="refused", of_words=problem[0] == "w", what=problem[1:])
        else:
            self._send(event="spawned", pid=self._leader, worker=os.getpid(), t=started)

    def _send(self, **event: Any) -> None:
        if not self._alone:
            try:
                os.write(self._control, json.dumps(event).encode() + b"\n")
            except OSError:
                self._is_alone()


def _become_server(order: dict[str, Any], pipes: tuple[int, int], trouble: int) -> NoReturn:
    try:
        os.setsid()
        for number in (*_DEAF, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(order["cwd"])
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (pipes[0], 1), (pipes[1], 2)):
            os.dup2(source, target)
        os.execve(order["argv"][0], order["argv"], order["env"])  # noqa: S606
    except BaseException as error:  # noqa: BLE001 - a fork of the keeper must never go on as a second keeper
        # An illegal name of a variable, or more words than the kernel takes: no fault of the program.
        of_words = isinstance(error, ValueError) or getattr(error, "errno", None) == errno.E2BIG
        os.write(trouble, f"{'w' if of_words else 'p'}{error}".encode())
    os._exit(127)


def guard(worker: int, temp: str) -> None:
    """Wait for the worker; whatever it left behind has become ours."""
    shm = leftovers.SharedMemory(os.getpid())
    while True:
        try:
            if os.waitpid(-1, 0)[0] == worker:
                break
        except ChildProcessError:
            break
    while reap()[1]:
        kill_all(os.getpid(), shm)
        time.sleep(_KILL_EVERY)
    shm.remove()
    leftovers.remove_folder(temp)


def _watch(pid: int) -> list[int]:
    """A descriptor that becomes readable when the process ends; none where a sandbox forbids it."""
    try:
        return [os.pidfd_open(pid)]
    except OSError:
        return []


def main() -> None:
    control, out, err, harness = (int(word) for word in sys.argv[1:5])
    temp = sys.argv[5]
    for fd in (control, out, err):
        os.set_inheritable(fd, False)
    for number in _DEAF:  # a CI agent that signals everybody must not take away the one who cleans up
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parents = _watch(harness)
    if os.getppid() != harness:
        return
    os.mkdir(temp, 0o700)  # noqa: PTH102
    me = os.getpid()
    worker = os.fork()
    if worker == 0:
        code = 1
        try:
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            relatives = parents + _watch(me)
            if os.getppid() == me:
                Worker(control, (out, err), relatives, temp).run()
            else:
                leftovers.remove_folder(temp)
            code = 0
        except BaseException:  # noqa: BLE001 - said to the harness; the guard kills and cleans
            os.write(control, json.dumps({"event": "broken", "what": traceback.format_exc()}).encode() + b"\n")
        os._exit(code)
    for fd in (control, out, err, *parents):
        os.close(fd)
    guard(worker, temp)


if __name__ == "__main__":
    main()
