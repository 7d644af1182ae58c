"""Many requests at once: every one must be answered, and the server must live on.

Some crashes need several requests in one step, or one that arrives while another is being prefilled. `concurrency`
clients ask, one request after the other, prompts from a few tokens to as long as fits, for a bounded time (a closed
loop). Every prompt has a salt of its own, so that none is answered from the prefix cache.

That clients wait at once does not yet mean that the engine works on several requests at once: a fast model is done with
a short answer before a busy front end has handed on the next request. So `generating_at_once` is measured too, from the
times of first and last tokens, and answers are long enough that they overlap.

Percentiles are nearest-rank: the smallest value that at least so many percent do not exceed.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from harness import clock
from harness.checks import greedy
from harness.checks.base import (
    MOST_AT_ONCE,
    MOST_REQUESTS,
    MOST_TOKENS,
    CheckContext,
    CheckResult,
    Measurement,
    Params,
    measured,
)
from harness.checks.greedy import Tokens
from harness.client.answers import BadAnswer, Completion, RequestFailed
from harness.errors import ScenarioError
from harness.units import Duration

if TYPE_CHECKING:
    from harness.client.server_client import ServerClient

NAME = "load"
SHORTEST = 8
"""Tokens of the shortest prompt; others have twice as many, four times, … the longest `longest-prompt`."""


class LoadParams(Params):
    concurrency: Annotated[int, Field(ge=1, le=MOST_AT_ONCE)] = 8
    """Requests that are under way at any moment."""
    duration: Duration = 2.0
    """How long new requests are begun; those under way are waited for."""
    max_requests: Annotated[int, Field(ge=1, le=MOST_REQUESTS)] = 64
    """Most requests in all."""
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 64
    """Tokens that each one generates."""
    longest_prompt: Annotated[int, Field(ge=SHORTEST, le=MOST_TOKENS)] = 1024
    """Tokens; shorter where the model's context has no room for it."""
    max_p99: Duration | None = None
    """Limit of the 99th percentile of whole requests."""
    max_first_token_p99: Duration | None = None
    """Limit of the 99th percentile of the time to the first token."""


@dataclass
class Record:
    """What came of the requests; filled by many threads."""

    answers: list[Completion] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    """Of each answer, when its first token came and when it was whole; seconds on one clock."""
    failures: list[RequestFailed] = field(default_factory=list)
    begun: int = 0
    seconds: float = 0.0
    longest: int = 0
    """Tokens of the longest prompt."""


class Load:
    name = NAME
    params: type[Params] = LoadParams

    def prepare(self, params: LoadParams, *, model: str, corpora: Path) -> None:
        """Nothing: its text comes with the harness."""

    def run(self, context: CheckContext) -> CheckResult:
        record = _Clients(context).run()
        health = HTTPStatus.OK.value
        if not record.failures or all(map(_is_answer, record.failures)):
            health = context.client.health(context.health_path)
        if record.failures and (health != HTTPStatus.OK or not all(map(_is_answer, record.failures))):
            raise record.failures[0]  # what the server died of, or hangs in, is in its log
        return judge(context.params, record, health=health)


class _Clients:
    """The closed loop: each client takes the next prompt until the time, or the number of requests, is used up."""

    def __init__(self, context: CheckContext) -> None:
        self._client, self._params = context.client, context.params
        self._prompts = _prompts(context.client, context.params, context.corpora)
        self._lock = threading.Lock()
        self._record = Record(longest=max(map(len, self._prompts)))

    def run(self) -> Record:
        begun = clock.now()
        deadline = clock.Deadline.after(self._params.duration)
        self._client.together([partial(self._loop, deadline)] * self._params.concurrency)
        self._record.seconds = clock.now() - begun
        return self._record

    def _loop(self, deadline: clock.Deadline) -> None:
        while (number := self._next(deadline)) is not None:
            begun = clock.now()
            try:
                answer = self._client.stream_completion(
                    self._prompts[number % len(self._prompts)],
                    max_tokens=self._params.max_tokens,
                    ignore_eos=True,
                    cache_salt=f"{NAME} {number}",
                )
                with self._lock:
                    self._record.answers.append(answer)
                    self._record.spans.append((begun + (answer.first_token_seconds or 0.0), begun + answer.seconds))
            except RequestFailed as failure:
                with self._lock:
                    self._record.failures.append(failure)

    def _next(self, deadline: clock.Deadline) -> int | None:
        """Each client begins at least one; after a request without an answer none is begun."""
        with self._lock:
            record = self._record
            over = deadline.expired and record.begun >= self._params.concurrency
            if over or record.begun >= self._params.max_requests or not all(map(_is_answer, record.failures)):
                return None
            record.begun += 1
            return record.begun - 1


def _is_answer(failure: RequestFailed) -> bool:
    """Whether the server did answer, if only to refuse: it may well be alive."""
    return isinstance(failure, BadAnswer) and failure.status >= HTTPStatus.BAD_REQUEST


def _prompts(client: ServerClient, params: LoadParams, corpora: Path) -> list[Tokens]:
    """Prompts of mixed lengths, short and long in turn, as token ids."""
    most = client.models().max_model_len
    room = min(params.longest_prompt, most - params.max_tokens if most else params.longest_prompt)
    if room < 1:
        raise ScenarioError(
            f"check {NAME}: {params.max_tokens} tokens to generate leave no room for a prompt in a context of {most}",
            fix=f"lower `checks.{NAME}.max-tokens`, or raise `max-model-len` in `serve`",
        )
    text = greedy.text(client, corpora)
    return [text.piece(length) for length in lengths(room)]


def lengths(room: int) -> tuple[int, ...]:
    """8, 16, 32 … up to `room` tokens, the longest and the shortest in turn."""
    rising = [SHORTEST << n for n in range(room.bit_length()) if SHORTEST << n < room] + [room]
    return tuple(rising[-1 - n // 2] if n % 2 == 0 else rising[n // 2] for n in range(len(rising)))


def most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    """How many of the spans have a moment in common, at most; one that begins as another ends does not meet it."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    return max(accumulate((change for _, change in changes), initial=0))


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Nearest rank; None of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)] if ordered else None


def judge(params: LoadParams, record: Record, *, health: int) -> CheckResult:
    """`health` is the HTTP status of the server's word on itself after the load. Pure."""
    whole = [answer.seconds for answer in record.answers]
    first = [answer.first_token_seconds for answer in record.answers if answer.first_token_seconds is not None]
    tokens = sum(answer.tokens or 0 for answer in record.answers)
    short = sum(answer.tokens not in (None, params.max_tokens) for answer in record.answers)
    at_once = most_at_once(record.spans)
    measurements = (
        Measurement(name="requests", value=record.begun, unit="requests"),
        Measurement(name="not_answered", value=len(record.failures), unit="requests", limit=0, ok=not record.failures),
        Measurement(name="generating_at_once", value=at_once, unit="requests"),
        Measurement(name="cut_short", value=short, unit="requests", limit=0, ok=not short),
        Measurement(name="health_after", value=health, unit="HTTP status", ok=health == HTTPStatus.OK),
        *(measured(f"p{percent}", percentile(whole, percent), "s") for percent in (50, 90)),
        measured("p99", percentile(whole, 99), "s", params.max_p99),
        measured("first_token_p50", percentile(first, 50), "s"),
        measured("first_token_p99", percentile(first, 99), "s", params.max_first_token_p99),
        Measurement(name="longest_prompt", value=record.longest, unit="tokens"),
        Measurement(name="throughput", value=round(tokens / record.seconds, 1), unit="tokens/s"),
    )
    faults = _faults(params, record, short=short, missed={value.name: value for value in measurements if not value.ok})
    served = f"{len(record.answers)} requests, {params.concurrency} at once, all answered, {at_once} generating at once"
    return CheckResult(
        name=NAME,
        outcome="fail" if faults else "pass",
        message=faults[0] if faults else f"{served}, p99 {percentile(whole, 99):.3g} s",
        measurements=measurements,
        request=record.failures[0].request if record.failures else None,
        detail={"failures": [str(failure) for failure in record.failures[:8]]} if record.failures else None,
    )


def _faults(params: LoadParams, record: Record, *, short: int, missed: dict[str, Measurement]) -> list[str]:
    statuses = Counter(failure.status for failure in record.failures if isinstance(failure, BadAnswer))
    counted = ", ".join(f"HTTP {status} {count} times" for status, count in sorted(statuses.items()))
    words = {
        "not_answered": f"{len(record.failures)} of {record.begun} requests were not answered: {counted}",
        "cut_short": f"{short} of {record.begun} answers did not have the {params.max_tokens} tokens asked for",
        "health_after": "every request was answered, but then the server was not healthy",
        "p99": "the 99th percentile of whole requests is above its limit",
        "first_token_p99": "the 99th percentile of the time to the first token is above its limit",
    }
    limited = {name: f" ({value.value} s, {value.limit} s)" for name, value in missed.items() if value.unit == "s"}
    return [f"{text}{limited.get(name, '')}" for name, text in words.items() if name in missed]
