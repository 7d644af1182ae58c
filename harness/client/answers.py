"""What a server may answer, and the three ways in which it may fail to. No HTTP here: records need the types too.

    ServerGone        the connection was refused, cut or aborted
    RequestTimedOut   no complete answer within the request budget
    BadAnswer         an answer, but HTTP >= 300, or not what was asked for

These are data about the product, not errors of the harness: whoever runs the checks makes a verdict of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class RequestFailed(Exception):  # noqa: N818 - what happened to the product, not an error of ours
    """A request was not answered as asked."""

    def __init__(self, call: str, what: str, *, request: int | None) -> None:
        super().__init__(f"{call} {what}")
        self.call = call
        """`POST /v1/completions`"""
        self.what = what
        self.request = request
        """Its number after ready, counted from 1; None for a question that the model does not answer (metrics)."""


class ServerGone(RequestFailed):
    """The connection was refused, cut, or aborted because the server had ended."""


class RequestTimedOut(RequestFailed):
    """No complete answer within the budget."""


class BadAnswer(RequestFailed):
    """An answer of `status` with `body`, which is not what was asked for."""

    def __init__(
        self,
        call: str,
        what: str,
        *,
        request: int | None,
        status: int,
        body: str,
        asked: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(call, what, request=request)
        self.status = status
        self.body = body
        self.asked = asked or {}
        """The fields of the request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One answer. Times in seconds from before the connection was made."""

    text: str
    tokens: int | None
    """Generated tokens, as the server counted them; None where it did not say."""
    seconds: float
    first_token_seconds: float | None = None
    """To the first chunk of a stream that holds a choice; None for an answer in one piece."""
    choice: Mapping[str, Any]
    """`choices[0]` as sent; of a stream, the last one."""
    usage: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Generated:
    """The tokens of one answer, with what the model thought of them. Log-probabilities in nats."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each token."""
    top: tuple[Mapping[int, float], ...]
    """At each position, the likeliest tokens and theirs, the chosen one among them."""
    text: str
    seconds: float
    cached: int | None = None
    """Tokens of the prompt that came from the prefix cache; None: the server does not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    name: str
    arguments: str
    """JSON, as the server wrote it; of a stream, its pieces put together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chat:
    """One answer of the assistant, in the parts that the server's parsers made of it; a missing part is empty."""

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None
    usage: Mapping[str, Any]
    seconds: float
    """From before the connection was made."""
    request: int
    """Its number after ready, counted from 1."""
    prompt: tuple[int, ...] | None = None
    """Token ids of the prompt that the server made of the messages; None: not asked for, or not said."""
    tokens: tuple[int, ...] | None = None
    """Token ids that the model generated; None as above."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInfo:
    id: str
    root: str | None
    """What the server says it loaded: a folder or an id on the hub."""
    max_model_len: int | None
    """Tokens of prompt and answer together."""
