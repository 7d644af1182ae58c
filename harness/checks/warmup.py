"""Is the first request slow? The first one after ready against the median of those that follow.

Kernels that start-up did not compile are compiled in the middle of the first request that needs them. `warmup` runs
before every other check, so its first request really is the first.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from harness.checks.base import CheckContext, CheckResult, Measurement, Params, within
from harness.client.answers import Completion
from harness.units import DurationPerNodeClass

NAME = "warmup"
JIT = "JIT compilation"
"""In every line in which a server says that it compiled a kernel during a request."""
PROMPT = "And it came to pass in those days, that there went out a decree"


class WarmupParams(Params):
    requests: Annotated[int, Field(ge=2)] = 8
    """How many, one after the other, the first included."""
    max_tokens: Annotated[int, Field(ge=1)] = 16
    """Tokens that each one generates."""
    prompt: Annotated[str, Field(min_length=1)] = PROMPT
    max_first_request: DurationPerNodeClass | None = None
    """Longest first request, to its last token: `60s`, or by node class `{default: 60s, h200: 20s}`."""
    max_ratio: Annotated[float, Field(ge=1)] | None = None
    """How many times longer than the median of the others the first may take."""

    def longest(self, node_class: str) -> float | None:
        """Seconds that the first request may take on this class of node; None: no limit."""
        limits = self.max_first_request or {}
        return limits.get(node_class, limits.get("default"))


class Warmup:
    name = NAME
    params: type[Params] = WarmupParams

    def prepare(self, params: WarmupParams, *, model: str, corpora: Path) -> None:
        """Nothing: it needs no file."""

    def run(self, context: CheckContext) -> CheckResult:
        params: WarmupParams = context.params
        number = context.client.requests + 1
        answers = [
            context.client.stream_completion(params.prompt, max_tokens=params.max_tokens, ignore_eos=True)
            for _ in range(params.requests)
        ]
        compiled = [line for line in context.lines() if JIT in line]
        return judge(params, answers, node_class=context.node_class, compiled=compiled, number=number)


def judge(
    params: WarmupParams, answers: Sequence[Completion], *, node_class: str, compiled: Sequence[str], number: int
) -> CheckResult:
    """The result of at least two answers in their order; `number` is that of the first request. Pure."""
    first, rest = answers[0], answers[1:]
    steady = statistics.median(answer.seconds for answer in rest)
    longest, ratio = params.longest(node_class), first.seconds / steady
    short = [answer.tokens for answer in answers if answer.tokens not in (None, params.max_tokens)]
    slow = not within(first.seconds, longest)
    steep = not within(ratio, params.max_ratio)
    measurements = (
        _seconds("first_token", first.first_token_seconds),
        Measurement(name="first_request", value=round(first.seconds, 4), unit="s", limit=longest, ok=not slow),
        _seconds("steady_first_token", statistics.median(answer.first_token_seconds or 0.0 for answer in rest)),
        _seconds("steady_request", steady),
        Measurement(name="ratio", value=round(ratio, 3), unit="", limit=params.max_ratio, ok=not steep),
        Measurement(name="jit_compilations", value=len(compiled), unit="kernels"),
    )
    shown = f"first request {first.seconds:.3g} s, then {steady:.3g} s (ratio {ratio:.3g})"
    if short:
        message = f"asked for {params.max_tokens} tokens, got {short[0]}"
    elif slow:
        message = f"{shown}; the first may take {longest:g} s"
    elif steep:
        message = f"{shown}; the ratio may be {params.max_ratio:g}"
    else:
        message = f"{shown}, {len(compiled)} kernels compiled after ready"
    failed = bool(short) or slow or steep
    return CheckResult(
        name=NAME,
        outcome="fail" if failed else "pass",
        message=message,
        measurements=measurements,
        request=number if slow or steep else None,
        detail=_detail(answers, compiled),
    )


def _seconds(name: str, value: float | None) -> Measurement:
    return Measurement(name=name, value=None if value is None else round(value, 4), unit="s")


def _detail(answers: Sequence[Completion], compiled: Sequence[str]) -> dict[str, Any]:
    return {
        "seconds": [round(answer.seconds, 4) for answer in answers],
        "first_token_seconds": [round(answer.first_token_seconds or 0.0, 4) for answer in answers],
        "compiled": list(compiled),
    }
