"""One HTTP request under way: its deadline is a moment for the whole exchange, and anybody may cut it.

A read time-out alone does not bound a request: a server that sends one byte a second never trips it. So a timer shuts
the socket down at the deadline, which wakes whoever reads from it; `abort` of a dead server's client does the same.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from harness.clock import Deadline

Cut = Literal["deadline", "abort"]


class Flight:
    """The sockets of one request, and who cut them."""

    def __init__(self, seconds: float) -> None:
        self.deadline = Deadline.after(seconds)
        self.cut_by: Cut | None = None
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()

    def opened(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.append(sock)
        if self.cut_by:
            _shut(sock)

    def cut(self, by: Cut) -> None:
        """End the exchange now, from any thread. The first one to cut it is the reason."""
        with self._lock:
            self.cut_by = self.cut_by or by
            sockets = list(self._sockets)
        for sock in sockets:
            _shut(sock)

    @contextmanager
    def session(self) -> Iterator[requests.Session]:
        """A session for this request alone, cut at the deadline.

        A connection that is kept open may be closed by the server just as the next request goes out, which would look
        like a dead server; a new one costs less than a millisecond here.
        """
        timer = threading.Timer(self.deadline.left, self.cut, args=("deadline",))
        timer.daemon = True
        timer.start()
        try:
            with requests.Session() as session:
                session.trust_env = False  # no proxy, no .netrc: the server is on this node
                session.mount("http://", _Adapter(self))
                yield session
        finally:
            timer.cancel()


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):  # closed meanwhile
        sock.shutdown(socket.SHUT_RDWR)


class _Adapter(HTTPAdapter):
    """Tells a flight of every socket that is opened for it. Never retries."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        flight = self._flight

        class Connection(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                flight.opened(self.sock)

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

        self.poolmanager.pool_classes_by_scheme = {"http": Pool}
