"""The limits of the perplexity check, and what the scored tokens are worth against them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from harness.checks import scoring
from harness.checks.base import MOST_TOKENS, CheckResult, Measurement, Params, measured
from harness.checks.reference import Reference
from harness.checks.scoring import Difference, Place, Score, Value, Window

NAME = "perplexity"
DIGITS = 6
"""Of recorded numbers, after the point: a float32 server differs from its reference by 1e-5."""
AROUND = 24
"""Tokens shown before the one that differs most."""

Nats = Annotated[float, Field(gt=0)]


class PerplexityParams(Params):
    corpus: Annotated[str, Field(min_length=1)] = "smoke_en"
    """A text of the harness (`smoke_en`), or a file that starts with ./ (relative to the scenario)."""
    reference: Annotated[str, Field(min_length=1)] | None = None
    """File of log-probabilities to compare with, token by token."""
    max: Annotated[float, Field(ge=1)] | None = None
    """Highest perplexity; null: it only has to be finite."""
    max_token_difference: Nats | None = 0.5
    """Largest difference of one token from the reference, in nats."""
    max_mean_difference: Nats | None = 0.02
    """Mean absolute difference from the reference, in nats."""
    max_log_ratio: Nats | None = 0.005
    """|ln(perplexity / perplexity of the reference)|."""
    window: Annotated[int, Field(ge=2, le=MOST_TOKENS)] | None = None
    """Tokens of one request, where no reference sets them; null: as many as the server takes."""

    @model_validator(mode="after")
    def _needed(self) -> PerplexityParams:
        """A limit that nothing would ever be compared with is a slip of the pen."""
        given = {"max_token_difference", "max_mean_difference", "max_log_ratio"} & self.model_fields_set
        idle = sorted(name.replace("_", "-") for name in given if getattr(self, name) is not None)
        if self.reference is None and idle:
            raise _wrong(f"`{idle[0]}` needs a `reference` to compare with")
        if self.reference is not None and self.window is not None:
            raise _wrong("`window` has no effect beside `reference`, which has windows of its own")
        return self


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("harness", "{text}", {"text": text})


@dataclass(frozen=True, kw_only=True, slots=True)
class Material:
    """The files of one check."""

    corpus: bytes
    reference: Reference | None


def judge(
    params: PerplexityParams,
    material: Material,
    cut: Sequence[Window],
    scored: Sequence[Value],
    *,
    first_seconds: float,
) -> CheckResult:
    """The result of scored tokens without a fault. Of broken limits, the reference's come before the perplexity's."""
    total, stored = scoring.score(scored), material.reference
    measurements = _totals(params, material, cut, total)
    message, detail = f"perplexity {total.perplexity:.4g} over {total.tokens} tokens", None
    if not all(measurement.ok for measurement in measurements):
        message = f"perplexity {total.perplexity:.4g} is above the limit of {params.max:g}"
    if stored:
        against = stored.scored()
        difference = scoring.compare(scored, against)
        apart = _differences(params, difference)
        detail = _detail(difference.at, scored, against, cut)
        if not all(measurement.ok for measurement in apart):
            message = _differs(params, difference, total, scoring.score(against))
        elif all(measurement.ok for measurement in measurements):
            message += f", as in the reference: largest difference {difference.largest:.4g}, mean {difference.mean:.4g}"
        measurements = (*measurements, *apart)
    first = Measurement(name="first_request", value=round(first_seconds, 3), unit="s")
    good = all(measurement.ok for measurement in measurements)
    return CheckResult(
        name=NAME,
        outcome="pass" if good else "fail",
        message=message,
        measurements=(*measurements, first),
        detail=detail,
    )


def _totals(
    params: PerplexityParams, material: Material, cut: Sequence[Window], total: Score
) -> tuple[Measurement, ...]:
    tokens = sum(len(window.tokens) - window.prefix for window in cut)
    bits = total.bits_per_byte(len(material.corpus), tokens)
    return (
        Measurement(name="tokens", value=total.tokens, unit="tokens"),
        Measurement(name="nats_per_token", value=round(total.nats_per_token, DIGITS), unit="nats"),
        measured("perplexity", total.perplexity, "", params.max, digits=DIGITS),
        Measurement(name="bits_per_byte", value=round(bits, DIGITS), unit="bits"),
    )


def _differences(params: PerplexityParams, difference: Difference) -> tuple[Measurement, ...]:
    return (
        measured("max_token_difference", difference.largest, "nats", params.max_token_difference, digits=DIGITS),
        measured("mean_token_difference", difference.mean, "nats", params.max_mean_difference, digits=DIGITS),
        measured("log_ratio", difference.log_ratio, "nats", params.max_log_ratio, digits=DIGITS),
    )


def _differs(params: PerplexityParams, difference: Difference, total: Score, against: Score) -> str:
    """All three in one order, whichever is broken: the sentence without its numbers is the failure's identity."""
    parts = (
        ("largest", difference.largest, params.max_token_difference),
        ("mean", difference.mean, params.max_mean_difference),
        ("ratio of perplexities ln", difference.log_ratio, params.max_log_ratio),
    )
    shown = ", ".join(
        f"{name} {value:.4g}" + (f" (limit {limit:g})" if limit is not None else "") for name, value, limit in parts
    )
    return (
        f"log-probabilities differ from the reference: {shown}; most at {difference.at}; "
        f"perplexity {total.perplexity:.4g}, reference {against.perplexity:.4g}"
    )


def _detail(at: Place, scored: Sequence[Value], against: Sequence[Value], cut: Sequence[Window]) -> dict[str, Any]:
    """Where the answers differ most, with the tokens before it."""
    ours = next(value for value in scored if value.place == at)
    theirs = next(value for value in against if value.place == at)
    tokens = cut[at.window - 1].tokens
    return {
        "window": at.window,
        "token": at.token,
        "id": tokens[at.token],
        "before": list(tokens[max(0, at.token - AROUND) : at.token]),
        "logprob": ours.logprob,
        "reference": theirs.logprob,
    }
