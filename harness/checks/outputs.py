"""Two answers to one prompt, token by token: where they part, and whether rounding alone can have parted them. Pure.

At temperature 0 an answer takes the likeliest token at each position. Two right ones part only where two tokens are so
nearly as likely that rounding decides, a near tie. They then go on from different texts, so only the first difference
is judged:

    position   0    1    2
    cold       the  ark  of      of  -0.90, and -1.00     0.10 apart
    cached     the  ark  and     and -0.95, of  -0.97     0.02 apart    the gap is 0.10: a near tie

Each answer must show the near tie by itself: the other's token has to be among its own likeliest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from harness.checks.base import Measurement, measured, within
from harness.client.answers import Generated

ROUNDING = 1e-3
"""Nats by which the chosen token may be below the likeliest: two paths that round the same logits."""
DIGITS = 6

Tolerance = Annotated[float, Field(ge=0)]
"""Nats between two tokens that still are a near tie."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fork:
    """What one answer gave to the two tokens at which it parts from the other, in nats."""

    token: int
    own: float
    other: float | None
    """None: the other's token is not among its likeliest."""
    least: float
    """Of the least likely token that it names; the other's, where it is not named, is at most as likely."""

    @property
    def apart(self) -> float:
        """Nats between both tokens; where one is not named, at least so many."""
        return abs(self.own - (self.least if self.other is None else self.other))


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    at: int
    """Index of the first token that differs, counted from 0."""
    forks: tuple[Fork, Fork] | None
    """Of the first answer and of the second; None: one of them ended there."""

    @property
    def gap(self) -> float | None:
        """The larger distance of both; None: one of them ended there."""
        return max(fork.apart for fork in self.forks) if self.forks else None

    def explained(self, tolerance: float) -> bool:
        """Whether both answers show a near tie."""
        return self.forks is not None and all(fork.other is not None and fork.apart <= tolerance for fork in self.forks)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two answers to one prompt."""

    prompt: int
    """Tokens of the prompt."""
    first: Generated
    second: Generated
    name: str = ""
    """For the record: `block + 1`."""


def diverge(first: Generated, second: Generated) -> Divergence | None:
    """Where two answers part; None: they are the same. An answer that ends early parts there."""
    both = min(len(first.tokens), len(second.tokens))
    at = next((at for at in range(both) if first.tokens[at] != second.tokens[at]), both)
    if at < both:
        return Divergence(at=at, forks=(_fork(first, second, at), _fork(second, first, at)))
    return None if len(first.tokens) == len(second.tokens) else Divergence(at=at, forks=None)


def _fork(own: Generated, other: Generated, at: int) -> Fork:
    row = own.top[at]
    return Fork(
        token=own.tokens[at],
        own=own.logprobs[at],
        other=row.get(other.tokens[at]),
        least=min(row.values(), default=own.logprobs[at]),
    )


def difference(first: Generated, second: Generated) -> float:
    """Largest |difference of log-probabilities| over the tokens before the two part, in nats; 0: there are none."""
    parted = diverge(first, second)
    common = len(first.tokens) if parted is None else parted.at
    pairs = zip(first.logprobs[:common], second.logprobs[:common], strict=True)
    return max((abs(a - b) for a, b in pairs), default=0.0)


def not_greedy(answer: Generated) -> int | None:
    """Index of the first token that was not the likeliest: a wrong sampler, or a wrong draft that was accepted."""
    rows = enumerate(zip(answer.logprobs, answer.top, strict=True))
    return next((at for at, (own, row) in rows if own < max(row.values(), default=own) - ROUNDING), None)


def wrong(answer: Generated, *, prompt: int, tokens: int, name: str) -> str | None:
    """What is wrong with one answer by itself, in words; None: it is greedy and as long as asked."""
    if len(answer.tokens) != tokens:
        return f"the {name} answer to a prompt of {prompt} tokens has {len(answer.tokens)} tokens, not {tokens}"
    if (at := not_greedy(answer)) is None:
        return None
    own, best = answer.logprobs[at], max(answer.top[at].values())
    return (
        f"the {name} answer to a prompt of {prompt} tokens is not greedy: token {at} has the log-probability "
        f"{own:.2f}, the likeliest {best:.2f}"
    )


def first_wrong(prompts: Sequence[int], answers: Sequence[Generated], *, tokens: int, name: str) -> str | None:
    """The same of several answers to prompts of so many tokens."""
    found = (wrong(a, prompt=p, tokens=tokens, name=name) for p, a in zip(prompts, answers, strict=True))
    return next(filter(None, found), None)


def count_wrong(answers: Iterable[Generated], *, tokens: int, suffix: str = "") -> Measurement:
    """How many answers are wrong by themselves."""
    count = sum(wrong(answer, prompt=0, tokens=tokens, name="") is not None for answer in answers)
    return Measurement(name=f"wrong_answers{suffix}", value=count, unit="answers", limit=0, ok=count == 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All pairs of a check, and what they are called: `("cold", "cached")`."""

    pairs: tuple[Pair, ...]
    names: tuple[str, str]
    tokens: int
    """That each answer was asked for."""
    tolerance: float
    max_difference: float | None = None
    """Largest difference of log-probabilities over equal tokens, in nats."""

    @property
    def divergences(self) -> tuple[tuple[Pair, Divergence], ...]:
        found = ((pair, diverge(pair.first, pair.second)) for pair in self.pairs)
        return tuple((pair, parted) for pair, parted in found if parted)

    @property
    def unexplained(self) -> tuple[tuple[Pair, Divergence], ...]:
        return tuple((pair, parted) for pair, parted in self.divergences if not parted.explained(self.tolerance))

    @property
    def difference(self) -> float:
        return max((difference(pair.first, pair.second) for pair in self.pairs), default=0.0)

    def fault(self) -> str | None:
        """The first thing that is wrong, as a sentence of which only numbers move; None: nothing is."""
        return self._wrong() or self._parted() or self._different()

    def _wrong(self) -> str | None:
        first, second = self.names
        prompts = [pair.prompt for pair in self.pairs]
        found = (
            first_wrong(prompts, [pair.first for pair in self.pairs], tokens=self.tokens, name=first),
            first_wrong(prompts, [pair.second for pair in self.pairs], tokens=self.tokens, name=second),
        )
        return found[0] or found[1]

    def _parted(self) -> str | None:
        if not self.unexplained:
            return None
        (pair, parted), (a, b) = self.unexplained[0], self.names
        what = f"the {a} and the {b} answer to a prompt of {pair.prompt} tokens part at token {parted.at}"
        return f"{what}: {_shown(parted, self.names, self.tolerance)}; {len(self.unexplained)} of {len(self.pairs)} do"

    def _different(self) -> str | None:
        if within(self.difference, self.max_difference):
            return None
        (a, b), limit = self.names, self.max_difference
        return (
            f"the {a} and the {b} answers have the same tokens, but log-probabilities that differ by "
            f"{self.difference:.2f} nats (limit {limit:g})"
        )

    def measurements(self, suffix: str = "") -> tuple[Measurement, ...]:
        """`suffix` tells the comparisons of one check apart: `_alone`."""
        gaps = [parted.gap for _, parted in self.divergences if parted.gap is not None]
        answers = (answer for pair in self.pairs for answer in (pair.first, pair.second))
        return (
            Measurement(name=f"compared{suffix}", value=len(self.pairs), unit="answers"),
            count_wrong(answers, tokens=self.tokens, suffix=suffix),
            Measurement(name=f"divergences{suffix}", value=len(self.divergences), unit="answers"),
            Measurement(
                name=f"worst_gap{suffix}",
                value=round(max(gaps, default=0.0), DIGITS),
                unit="nats",
                limit=self.tolerance,
                ok=not self.unexplained,
            ),
            measured(f"logprob_difference{suffix}", self.difference, "nats", self.max_difference, digits=DIGITS),
        )

    def detail(self) -> list[dict[str, Any]]:
        """Where the answers part, with what varies between runs of one bug: tokens and texts."""
        return [_detail(pair, parted, self.names) for pair, parted in self.divergences]


def _shown(parted: Divergence, names: tuple[str, str], tolerance: float) -> str:
    if parted.forks is None:
        return "one of them ends there"
    # A token that is not named is at most as likely as the least likely one that is: "or more" covers it.
    numbers = (
        f"{fork.own:.2f} and {fork.least if fork.other is None else fork.other:.2f} {name}"
        for fork, name in zip(parted.forks, names, strict=True)
    )
    return f"log-probabilities {', '.join(numbers)}, {parted.gap:.2f} nats or more apart (tolerance {tolerance:g})"


def _detail(pair: Pair, parted: Divergence, names: tuple[str, str]) -> dict[str, Any]:
    forks = zip(names, parted.forks or (), strict=False)
    return {
        "prompt": pair.name or f"{pair.prompt} tokens",
        "at": parted.at,
        "texts": dict(zip(names, (pair.first.text, pair.second.text), strict=True)),
        "forks": {
            name: {"token": fork.token, "logprob": fork.own, "other's logprob": fork.other} for name, fork in forks
        },
    }
