"""How speculation went, from what the server's counters say. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from harness.checks.base import Measurement
from harness.checks.counters import Growth
from harness.runtimes.base import CounterNames

DIGITS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Drafted:
    """In a few requests. `drafts` counts the steps in which tokens were proposed for one request."""

    drafts: float
    draft_tokens: float
    accepted: float
    accepted_at: tuple[float, ...]
    """By position in the draft, counted from 0; empty where the server does not say."""

    @property
    def acceptance_length(self) -> float | None:
        """Tokens that a step with a draft gives, the model's own included; None: there was no draft."""
        return 1 + self.accepted / self.drafts if self.drafts > 0 else None

    @property
    def rates(self) -> tuple[float, ...]:
        """Share of the drafts whose token at a position was accepted."""
        return tuple(count / self.drafts for count in self.accepted_at) if self.drafts > 0 else ()


def drafted(growth: Growth, names: CounterNames) -> Drafted:
    """What the counters of speculation grew by.

    Raises:
        NotCounted: the server has none.
    """
    positions = growth.by(names.accepted_per_position, "position")
    ordered = sorted((int(position), count) for position, count in positions.items() if position.isdecimal())
    return Drafted(
        drafts=growth.of(names.drafts),
        draft_tokens=growth.of(names.draft_tokens),
        accepted=growth.of(names.accepted_tokens),
        accepted_at=tuple(count for _, count in ordered),
    )


def measurements(found: Drafted, *, minimum: float | None, prefix: str = "") -> tuple[Measurement, ...]:
    """`minimum` is the least acceptance length; `prefix` tells kinds of prompts apart: `long_`."""
    length = found.acceptance_length
    rates = tuple(
        Measurement(name=f"{prefix}acceptance_rate_{position}", value=round(rate, DIGITS), unit="")
        for position, rate in enumerate(found.rates)
    )
    return (
        Measurement(
            name=f"{prefix}drafts", value=found.drafts, unit="drafts", limit=1, sense="min", ok=found.drafts > 0
        ),
        Measurement(name=f"{prefix}draft_tokens", value=found.draft_tokens, unit="tokens"),
        Measurement(name=f"{prefix}accepted_tokens", value=found.accepted, unit="tokens"),
        Measurement(
            name=f"{prefix}acceptance_length",
            value=None if length is None else round(length, DIGITS),
            unit="tokens",
            limit=minimum,
            sense="min",
            ok=long_enough(found, minimum),
        ),
        *rates,
    )


def long_enough(found: Drafted, minimum: float | None) -> bool:
    """Whether the acceptance length keeps its limit."""
    return minimum is None or (found.acceptance_length is not None and found.acceptance_length >= minimum)
