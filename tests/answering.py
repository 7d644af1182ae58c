"""An HTTP server in this process that answers like vLLM from a table of log-probabilities, or misbehaves on purpose."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from harness.checks import CORPORA
from harness.checks.base import CheckContext
from harness.client.server_client import ServerClient
from harness.runtimes.vllm_facts import COUNTERS

MODEL = "tiny-lm-0badcafe"


@dataclass
class Reply:
    """What goes out: a status and bytes, whole or in chunks with a pause before each; `cut` closes before the end."""

    body: Any = b""
    status: int = 200
    chunks: Sequence[bytes] = ()
    pause: float = 0.0
    before: float = 0.0
    cut: bool = False

    @property
    def raw(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


Route = Callable[[Mapping[str, Any]], Reply]


@dataclass
class Answering:
    """Routes by `METHOD path`, and every request body that came in."""

    routes: dict[str, Route]
    seen: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def serving(self) -> Iterator[Answering]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    def bodies(self, path: str) -> list[Mapping[str, Any]]:
        return [body for call, body in self.seen if call.endswith(path)]


def _handler(answering: Answering) -> type[BaseHTTPRequestHandler]:  # noqa: C901 - one class of small methods
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            call = f"{self.command} {self.path}"
            answering.seen.append((call, body))
            route = answering.routes.get(call)
            self._send(route(body) if route else Reply({"detail": "Not Found"}, status=404))

        def _send(self, reply: Reply) -> None:
            self.close_connection = True
            try:
                time.sleep(reply.before)
                self.send_response(reply.status)
                if reply.chunks:
                    self._send_chunks(reply)
                    return
                self.send_header("Content-Length", str(len(reply.raw)))
                self.end_headers()
                self.wfile.write(reply.raw[: len(reply.raw) // 2] if reply.cut else reply.raw)
            except OSError:
                pass  # the client has gone, which is what the test is about

        def _send_chunks(self, reply: Reply) -> None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in reply.chunks:
                time.sleep(reply.pause)
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self.wfile.flush()
            if not reply.cut:
                self.wfile.write(b"0\r\n\r\n")

    return Handler


def context(client: ServerClient, params: Any, **changes: Any) -> CheckContext:
    """What a check is given, with nothing particular in it."""
    plain: dict[str, Any] = {
        "client": client, "params": params, "node_class": "cpu", "lines": lambda: (),
        "corpora": CORPORA, "names": COUNTERS, "block_tokens": lambda: None, "log": Path("/nowhere/server.log"),
        "health_path": "/health", "ready": 20.0, "cold": None, "compiled": lambda: (),
    }  # fmt: skip
    return CheckContext(**{**plain, **changes})


def models(root: str = "", max_model_len: int | None = 512, name: str = MODEL) -> Route:
    card = {"id": name, "object": "model", "root": root, "max_model_len": max_model_len}
    return lambda _: Reply({"object": "list", "data": [card]})


def tokenizer(*, bos: int | None = None, change: Callable[[list[int]], list[int]] = list) -> Route:
    """A token a byte; a begin-of-text token where special tokens are asked for; `change` is what is wrong with it."""

    def route(body: Mapping[str, Any]) -> Reply:
        tokens = change(list(body["prompt"].encode()))
        prefix = [bos] if bos is not None and body["add_special_tokens"] else []
        return Reply({"tokens": prefix + tokens, "count": len(prefix + tokens), "max_model_len": 512})

    return route


def entry(token: int, value: Any) -> dict[str, Any]:
    return {str(token): {"logprob": value, "rank": 1, "decoded_token": chr(token % 256)}}


def logprobs(value_of: Callable[[Sequence[int], int], Any]) -> Route:
    """`value_of(tokens, index)` is the log-probability of one token: a number, NaN, or None for no entry at all."""

    def route(body: Mapping[str, Any]) -> Reply:
        tokens = body["prompt"]
        values = [value_of(tokens, index) for index in range(1, len(tokens))]
        entries = [None, *(None if v is None else entry(t, v) for t, v in zip(tokens[1:], values, strict=True))]
        return Reply({"choices": [{"text": "!", "prompt_logprobs": entries}], "usage": {"completion_tokens": 1}})

    return route


def stream(tokens: int, *, first: float = 0.0, pause: float = 0.0, done: bool = True) -> Reply:
    """A stream as vLLM sends it: a chunk a token, the usage, the end mark."""
    events: list[Any] = [{"choices": [{"index": 0, "text": f"<{n}>", "finish_reason": None}]} for n in range(tokens)]
    events += [{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}}]
    chunks = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return Reply(chunks=[*chunks, *([b"data: [DONE]\n\n"] if done else [])], before=first, pause=pause)
