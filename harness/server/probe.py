"""Is it up, and is it ours? Asks /health until somebody says 200, then looks who owns the listening socket.

vLLM lets two servers on one port both "start up"; only one of them listens, and a 200 says nothing about which.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import requests

from harness import clock
from harness.server import proctree
from harness.server.proctree import Process

EVERY = 0.05
"""Seconds between probes while the port refuses or the answer is not 200."""
PATIENCE = 1.0
"""Seconds for a connection, and again for an answer, before a probe gives up."""
_OK = 200


class Prober:
    """Probes in a thread of its own, so that a server that accepts and never answers delays nobody."""

    def __init__(self, url: str, *, on_ok: Callable[[float], bool]) -> None:
        self._url, self._on_ok = url, on_ok
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        import requests  # noqa: PLC0415 - 0.15 s that a starting server hides, and a refused scenario need not pay

        with requests.Session() as session:
            session.trust_env = False  # a proxy has nothing to say about our own port
            while not self._stop.is_set():
                start = clock.now()
                if self._is_up(session, requests.RequestException) and self._on_ok(clock.now()):
                    return
                self._stop.wait(max(0.0, start + EVERY - clock.now()))

    def _is_up(self, session: requests.Session, refusals: type[Exception]) -> bool:
        try:
            with session.get(self._url, timeout=(PATIENCE, PATIENCE), stream=True, allow_redirects=False) as answer:
                return answer.status_code == _OK
        except refusals:
            return False


def foreign_owner(host: str, port: int, tree: Iterable[Process]) -> str | None:
    """Who listens there besides the processes of a tree; None: only they do, or nobody."""
    sockets = proctree.listening_sockets(host, port)
    for process in tree:
        sockets -= proctree.open_files(process.pid)
    if not sockets:
        return None
    for process in proctree.everything().values():
        if sockets & proctree.open_files(process.pid):
            return f"process {process.pid} ({proctree.title(process)})"
    return "a process that this user or container cannot see"
