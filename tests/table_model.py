"""A model that is a table: it answers greedily by token as vLLM does, caches prompts by block, drafts, and counts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from answering import MODEL, Answering, Reply, context, models, tokenizer

from harness.checks.base import CheckContext
from harness.client.server_client import ServerClient
from harness.runtimes.vllm_facts import COUNTERS

VOCABULARY = 251


@dataclass
class Step:
    """One token on its way out; a damage changes it."""

    token: int
    row: dict[int, float]
    at: int
    prompt: tuple[int, ...]
    cached: int
    """Tokens of the prompt that came from the cache."""
    request: int
    """Counted from 1."""


Damage = Callable[[Step], None]


def likeliest(tokens: tuple[int, ...]) -> dict[int, float]:
    """The five likeliest tokens after these, far apart."""
    best = sum(token * at for at, token in enumerate(tokens[-3:], start=1)) % VOCABULARY
    return {(best + rank) % VOCABULARY: value for rank, value in enumerate((-0.1, -3.0, -4.0, -5.0, -6.0))}


@dataclass
class TableModel:
    block: int = 8
    longest: int | None = 256
    caching: bool = True
    salted: bool = True
    """Whether `cache_salt` keeps prompts apart."""
    details: bool = False
    drafts: Callable[[int], bool] | None = None
    """Whether it drafts after a prompt of so many tokens; None: there is no speculation, and no counter of it."""
    accepted: int = 2
    """Of three drafted tokens."""
    damage: Damage = lambda _: None
    short: int = 0
    """Tokens by which every answer is too short."""
    lag: int = 0
    """Times that /metrics is read before it shows what has happened."""
    missing: str = ""
    """A counter that it does not have."""
    counts: dict[str, float] = field(default_factory=dict)
    requests: int = 0
    sightings: int = 1
    """Requests that must have had a prefix before it is found."""
    _seen: Counter[tuple[str, tuple[int, ...]]] = field(default_factory=Counter)
    _shown: dict[str, float] = field(default_factory=dict)
    _reads: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        names = [COUNTERS.answered, COUNTERS.prefix_hits]
        if self.drafts:
            names += [COUNTERS.drafts, COUNTERS.draft_tokens, COUNTERS.accepted_tokens]
            names += [f'{COUNTERS.accepted_per_position}{{position="{at}"}}' for at in range(3)]
        self.counts = {name: 0.0 for name in names if name != self.missing}
        self._shown = dict(self.counts)

    @contextmanager
    def asked(self, params: Any, **changes: Any) -> Iterator[CheckContext]:
        """A context whose client asks this model."""
        routes = {
            "POST /v1/completions": self.complete, "GET /metrics": self.metrics,
            "GET /v1/models": models(max_model_len=self.longest), "POST /tokenize": tokenizer(),
        }  # fmt: skip
        with Answering(routes).serving() as server:
            client = ServerClient(server.url, MODEL, request_seconds=10)
            yield context(client, params, **{"block_tokens": lambda: self.block, **changes})

    def complete(self, body: Mapping[str, Any]) -> Reply:
        with self._lock:
            return self._complete(body)

    def _complete(self, body: Mapping[str, Any]) -> Reply:
        assert body["temperature"] == 0
        assert body["ignore_eos"]
        self.requests += 1
        prompt, number = tuple(body["prompt"]), body["max_tokens"] - self.short
        cached = self._cache(prompt, body.get("cache_salt", "") if self.salted else "")
        steps: list[Step] = []
        tokens = prompt
        for at in range(number):
            row = likeliest(tokens)
            step = Step(token=max(row, key=row.__getitem__), row=row, at=at, prompt=prompt, cached=cached,
                        request=self.requests)  # fmt: skip
            self.damage(step)
            steps.append(step)
            tokens = (*tokens, step.token)
        self._count(prompt, number)
        return Reply({"choices": [choice(steps)], "usage": self._usage(prompt, cached)})

    def _cache(self, prompt: tuple[int, ...], salt: str) -> int:
        whole = [prompt[:end] for end in range(self.block, len(prompt) + 1, self.block)]
        found = 0
        for part in whole if self.caching else ():
            if self._seen[salt, part] < self.sightings or len(part) >= len(prompt):
                break
            found = len(part)
        self._seen.update((salt, part) for part in whole)
        self._add(COUNTERS.prefix_hits, found)
        return found

    def _usage(self, prompt: tuple[int, ...], cached: int) -> dict[str, Any]:
        details = {"prompt_tokens_details": {"cached_tokens": cached}} if self.details else {}
        return {"prompt_tokens": len(prompt), **details}

    def _count(self, prompt: tuple[int, ...], number: int) -> None:
        self._add(COUNTERS.answered, 1)
        if self.drafts and self.drafts(len(prompt)):
            steps = number // (1 + self.accepted)
            self._add(COUNTERS.drafts, steps)
            self._add(COUNTERS.draft_tokens, 3 * steps)
            self._add(COUNTERS.accepted_tokens, self.accepted * steps)
            for at in range(self.accepted):
                self._add(f'{COUNTERS.accepted_per_position}{{position="{at}"}}', steps)

    def _add(self, name: str, value: float) -> None:
        if name in self.counts:
            self.counts[name] += value

    def metrics(self, _: Mapping[str, Any]) -> Reply:
        with self._lock:
            self._reads += 1
            if self._reads % (self.lag + 1) == 0:
                self._shown = dict(self.counts)
            return Reply("".join(f"{name} {value}\n" for name, value in self._shown.items()).encode())


def choice(steps: list[Step]) -> dict[str, Any]:
    """`choices[0]` of an answer with log-probabilities and token ids."""
    word = "token_id:{}".format
    return {
        "text": "".join(f"<{step.token}>" for step in steps),
        "logprobs": {
            "tokens": [word(step.token) for step in steps],
            "token_logprobs": [step.row[step.token] for step in steps],
            "top_logprobs": [{word(token): value for token, value in step.row.items()} for step in steps],
        },
    }


def near_tie(step: Step, apart: float = 0.2) -> None:
    """The second likeliest token takes the first one's place; both were nearly as likely."""
    first, second, *_ = step.row
    step.row[first], step.row[second] = -0.7 - apart, -0.7
    step.token = second


def another(step: Step) -> None:
    """A token that is none of the likeliest takes the first one's place."""
    first = next(iter(step.row))
    step.row = {(token + 100) % VOCABULARY: value for token, value in step.row.items() if token != first}
    step.row[(first + 99) % VOCABULARY] = -0.05
    step.token = (first + 99) % VOCABULARY


def unlikely(step: Step) -> None:
    """A token that the model itself gives little to."""
    step.token = list(step.row)[2]
