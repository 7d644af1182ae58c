"""From log-probabilities to numbers, and from two lists of them to their difference. Pure.

A corpus longer than the context is scored in windows, each begun with the same prefix (the begin-of-text token, where
the model has one):

    corpus  t0 t1 t2 t3 t4 t5 t6         prefix B, windows of 4 tokens
    window 1   B t0 t1 t2                 B has no probability, all others have
    window 2   B t3 t4 t5
    window 3   B t6

Without a prefix the first token of each window has none, and is not scored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MINUS_INFINITY = -9999.0
"""vLLM sends it in place of minus infinity, which JSON does not have (0.27.1 to 0.32.0)."""
ABOVE_ZERO = 1e-3
"""Log-probabilities above this are no rounding of 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    tokens: tuple[int, ...]
    prefix: int
    """How many of them are the prefix, and not of the corpus."""

    @property
    def scored(self) -> range:
        """Indices of the tokens that are scored."""
        return range(max(1, self.prefix), len(self.tokens))


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A token: number of its window, counted from 1, and index in it, counted from 0 with the prefix."""

    window: int
    token: int

    def __str__(self) -> str:
        return f"token {self.token} of window {self.window}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """What one scored token got; None: nothing."""

    place: Place
    logprob: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Sums over all scored tokens."""

    tokens: int
    nats: float
    """Negative log-likelihood of all of them, in nats."""

    @property
    def nats_per_token(self) -> float:
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        return math.exp(self.nats_per_token) if self.nats_per_token < 700 else math.inf  # noqa: PLR2004 - exp's range

    def bits_per_byte(self, corpus_bytes: int, corpus_tokens: int) -> float:
        """Comparable over tokenizers. Tokens that have no score count as if they took an average share of bytes."""
        return self.nats / math.log(2) / (corpus_bytes * self.tokens / corpus_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Between two scorings of the same tokens, in nats."""

    largest: float
    at: Place
    mean: float
    """Of the absolute differences."""
    log_ratio: float
    """|ln(perplexity / perplexity)|: errors of both signs cancel in it."""


def windows(tokens: Sequence[int], *, prefix: Sequence[int], size: int) -> tuple[Window, ...]:
    """Cut a corpus into windows of at most `size` tokens, prefix included; `size` must leave room for two."""
    step = size - len(prefix)
    starts = range(0, len(tokens), step)
    return tuple(Window(tokens=(*prefix, *tokens[at : at + step]), prefix=len(prefix)) for at in starts)


def values(window: Window, number: int, logprobs: Sequence[float | None]) -> list[Value]:
    """The scored tokens of window `number` with their log-probabilities."""
    return [Value(place=Place(window=number, token=at), logprob=logprobs[at]) for at in window.scored]


def fault(scored: Sequence[Value]) -> tuple[str, Place] | None:
    """What is not a log-probability among them, in words, and the first place; None: all are."""
    wrong = [(word, value.place) for value in scored if (word := _wrong(value.logprob))]
    if not wrong:
        return None
    counts = Counter(word for word, _ in wrong)
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())), wrong[0][1]


def _wrong(logprob: float | None) -> str | None:
    if logprob is None:
        return "missing"
    if math.isnan(logprob):
        return "NaN"
    if logprob <= MINUS_INFINITY:
        return "minus infinity"
    return "above zero" if logprob > ABOVE_ZERO else None


def score(scored: Sequence[Value]) -> Score:
    """Sums over values that have no fault."""
    return Score(tokens=len(scored), nats=-math.fsum(value.logprob or 0.0 for value in scored))


def compare(scored: Sequence[Value], reference: Sequence[Value]) -> Difference:
    """Token by token. Both must hold the same places in the same order, at least one."""
    pairs = [(a.logprob or 0.0, b.logprob or 0.0) for a, b in zip(scored, reference, strict=True)]
    deltas = [abs(a - b) for a, b in pairs]
    worst = max(range(len(deltas)), key=deltas.__getitem__)
    return Difference(
        largest=deltas[worst],
        at=scored[worst].place,
        mean=math.fsum(deltas) / len(deltas),
        log_ratio=abs(math.fsum(a - b for a, b in pairs)) / len(deltas),
    )
