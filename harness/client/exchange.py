"""One question to the server and its answer, with one deadline for all of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import requests

from harness import clock
from harness.client.answers import BadAnswer, RequestFailed, RequestTimedOut, ServerGone
from harness.client.flight import Flight

CONNECT_SECONDS = 5.0
"""The server is on this node and was healthy: a connection takes less than a millisecond."""
MOST_BYTES = 256 << 20
"""No answer that a check asks for comes near it: log-probabilities take about 100 bytes a token."""
SHOWN = 300
"""Characters of an error's body that a message repeats."""


class _Busy:
    """The seconds in which at least one of several overlapping things was going on. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open, self._since, self._seconds = 0, 0.0, 0.0

    def __enter__(self) -> None:
        with self._lock:
            if self._open == 0:
                self._since = clock.now()
            self._open += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._seconds += clock.now() - self._since

    @property
    def seconds(self) -> float:
        with self._lock:
            return self._seconds + (clock.now() - self._since if self._open else 0.0)


class Http:
    """One server's address, and every exchange with it that is under way."""

    def __init__(self, url: str, *, seconds: float, connect_seconds: float = CONNECT_SECONDS) -> None:
        self._url = url.rstrip("/")
        self._seconds = seconds
        self._connect = min(connect_seconds, seconds)
        self._lock = threading.Lock()
        self._flights: set[Flight] = set()
        self._aborted = False
        self._asked = _Busy()

    @property
    def asking(self) -> float:
        """Seconds in which at least one numbered call was under way."""
        return self._asked.seconds

    def abort(self) -> None:
        with self._lock:
            self._aborted = True
            flights = list(self._flights)
        for flight in flights:
            flight.cut("abort")

    @contextmanager
    def open(self, call: Call) -> Iterator[requests.Response]:
        flight = Flight(self._seconds)
        with self._lock:
            if self._aborted:
                raise ServerGone(call.name, "was not sent: the server has ended", request=call.number)
            self._flights.add(flight)
        try:
            with self._asked if call.number else nullcontext(), flight.session() as session:
                timeout = (self._connect, flight.deadline.left)
                yield session.request(
                    call.method,
                    self._url + call.path,
                    json=call.asked,
                    stream=True,
                    timeout=timeout,
                    allow_redirects=False,
                )
            if flight.cut_by:  # a body without a length ends where it is cut, and nothing else says so
                raise self._failed(call, flight, None)
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            raise self._failed(call, flight, error) from error
        finally:
            with self._lock:
                self._flights.discard(flight)

    def _failed(self, call: Call, flight: Flight, error: Exception | None) -> RequestFailed:
        if flight.cut_by == "abort":
            return ServerGone(call.name, "was cut: the server has ended", request=call.number)
        if flight.cut_by == "deadline" or flight.deadline.expired or isinstance(error, requests.ReadTimeout):
            return RequestTimedOut(call.name, f"had no complete answer within {self._seconds:g} s", request=call.number)
        if isinstance(error, requests.ConnectTimeout):
            return RequestTimedOut(call.name, f"was not accepted within {self._connect:g} s", request=call.number)
        if "refused" in str(error):
            return ServerGone(call.name, "was refused: nobody listens", request=call.number)
        return ServerGone(call.name, "was cut by the server before the answer was complete", request=call.number)


class Call:
    """One request and what came back. Reading starts it; errors name it."""

    def __init__(
        self, http: Http, method: str, path: str, *, asked: Mapping[str, Any] | None = None, number: int | None = None
    ) -> None:
        self._http, self.method, self.path, self.asked, self.number = http, method, path, asked, number
        self.name = f"{method} {path}"
        self.status = 0
        self.body = b""

    def bad(self, what: str) -> BadAnswer:
        body = self.body.decode("utf-8", "replace")
        return BadAnswer(self.name, what, request=self.number, status=self.status, body=body, asked=self.asked)

    def json(self) -> Mapping[str, Any]:
        """The whole answer, a JSON object. NaN and Infinity are let through: what they mean is the caller's to say."""
        self._fetch()
        return self._object(self.body)

    def text(self) -> str:
        self._fetch()
        return self.body.decode("utf-8", "replace")

    def events(self) -> Iterator[Mapping[str, Any]]:
        """The events of a stream, each when it arrives, up to its end mark."""
        with self._http.open(self) as response:
            self._refuse(response)
            for line in _lines(self._chunks(response)):
                if not line.startswith(b"data:"):
                    continue
                data = line[len(b"data:") :].strip()
                if data == b"[DONE]":
                    return
                event = self._object(data)
                if "error" in event:
                    raise self.bad(f"broke off: {_message(data)}")
                yield event
        raise self.bad("ended without its end mark")

    def first_choice(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        choices = answer.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            return choices[0]
        raise self.bad("has no choices")

    def _fetch(self) -> None:
        with self._http.open(self) as response:
            self._refuse(response)
            self.body = b"".join(self._chunks(response))

    def _refuse(self, response: requests.Response) -> None:
        self.status = response.status_code
        if self.status >= 300:  # noqa: PLR2004 - HTTP
            self.body = b"".join(self._chunks(response))
            raise self.bad(f"answered HTTP {self.status}: {_message(self.body)}")

    def _chunks(self, response: requests.Response) -> Iterator[bytes]:
        size = 0
        for chunk in response.iter_content(None):
            size += len(chunk)
            if size > MOST_BYTES:
                raise self.bad(f"sent more than {MOST_BYTES >> 20} MiB")
            yield chunk

    def _object(self, data: bytes) -> Mapping[str, Any]:
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        if isinstance(value, dict):
            return value
        self.body = self.body or data
        raise self.bad("is not a JSON object")


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    yield rest


def _message(body: bytes) -> str:
    """The sentence in an error's body, in one of the usual shapes, or what is there."""
    text = body.decode("utf-8", "replace")
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        value = value.get("error", value)
    for key in ("message", "detail"):
        if isinstance(value, dict) and isinstance(value.get(key), str):
            text = value[key]
    return " ".join(text.split())[:SHOWN] or "no message"
