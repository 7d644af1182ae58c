"""Is the first request slow? The first one after ready against the median of those that follow.

Kernels that start-up did not compile are compiled in the middle of the first request that needs them. `warmup` runs
before every other check, so its first request really is the first. With `starts: [cold, warm]` each start is asked, and
the warm one is held against the cold one: what the caches of compiled code are worth.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from harness.checks.base import MOST_REQUESTS, MOST_TOKENS, CheckContext, CheckResult, Measurement, Params, measured
from harness.client.answers import Completion
from harness.node_class import of_class
from harness.units import DurationPerNodeClass

NAME = "warmup"
JIT = re.compile(r"JIT compilation\b[^:]*: (\S+?)\.?(?:\s|$)")
"""In a line in which a server says that it compiled a kernel during a request; the group is its name."""
SHOWN_NAMES = 8
PROMPT = "And it came to pass in those days, that there went out a decree"


class WarmupParams(Params):
    requests: Annotated[int, Field(ge=2, le=MOST_REQUESTS)] = 8
    """How many, one after the other, the first included."""
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 16
    """Tokens that each one generates."""
    prompt: Annotated[str, Field(min_length=1)] = PROMPT
    max_first_request: DurationPerNodeClass | None = None
    """Longest first request, to its last token: `60s`, or by node class `{default: 60s, h200: 20s}`.

    A variant such as `h200-nvl` takes that of `h200` where it has none of its own.
    """
    max_ratio: Annotated[float, Field(ge=1)] | None = None
    """How many times longer than the median of the others the first may take."""
    max_compiled: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Most kernels that these requests may have had compiled; with `starts` only, as shared caches hide what is new."""
    max_warm_ratio: Annotated[float, Field(gt=0)] | None = None
    """Most that a warm start may take to be ready, in times of the cold one; with `starts: [cold, warm]` only."""

    def longest(self, node_class: str) -> float | None:
        """Seconds that the first request may take on this class of node; None: no limit."""
        return of_class(self.max_first_request or {}, node_class)


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
        kernels = _kernels(context.lines(), context.compiled())
        start = Start(ready=context.ready, cold=context.cold, kernels=kernels)
        return judge(params, answers, node_class=context.node_class, start=start, number=number)


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """The start before the requests, and what they had compiled."""

    ready: float
    """Seconds to ready."""
    cold: float | None = None
    """Seconds to ready of the cold start before this warm one."""
    kernels: tuple[str, ...] = ()
    """Names of what was compiled after ready."""


def _kernels(lines: Sequence[str], cached: Sequence[str]) -> tuple[str, ...]:
    """Names of the compiled kernels: those that the server logged, then those that came into its caches."""
    logged = [found[1] for line in lines if (found := JIT.search(line))]
    return tuple(dict.fromkeys((*logged, *cached)))


def judge(
    params: WarmupParams, answers: Sequence[Completion], *, node_class: str, start: Start, number: int
) -> CheckResult:
    """The result of at least two answers in their order; `number` is that of the first request. Pure."""
    first, rest = answers[0], answers[1:]
    steady = statistics.median(answer.seconds for answer in rest)
    steady_token = statistics.median(answer.first_token_seconds or 0.0 for answer in rest)
    longest, kernels = params.longest(node_class), start.kernels
    measurements = (
        measured("time_to_ready", start.ready, "s"),
        *([measured("warm_ratio", start.ready / start.cold, "", params.max_warm_ratio)] if start.cold else []),
        measured("first_token", first.first_token_seconds, "s"),
        measured("first_request", first.seconds, "s", longest),
        measured("second_request", rest[0].seconds, "s"),
        measured("steady_first_token", steady_token, "s"),
        measured("steady_request", steady, "s"),
        measured("ratio", first.seconds / steady, "", params.max_ratio),
        measured("compiled", len(kernels), "kernels", params.max_compiled),
        *([Measurement(name="compiled_names", value=_few(kernels), unit="")] if kernels else []),
    )
    shown = f"first request {first.seconds:.3g} s, then {steady:.3g} s (ratio {first.seconds / steady:.3g})"
    compiled = f"{len(kernels)} kernels compiled after ready"
    short = [answer.tokens for answer in answers if answer.tokens not in (None, params.max_tokens)]
    starts = f"the warm start took {start.ready:.3g} s, the cold one {start.cold or 0:.3g} s"
    wrong = {
        "first_request": f"{shown}; the first may take {_limit(longest)} s",
        "ratio": f"{shown}; the ratio may be {_limit(params.max_ratio)}",
        "compiled": f"{compiled}; {_limit(params.max_compiled)} may be",
        "warm_ratio": f"{starts}; the ratio may be {_limit(params.max_warm_ratio)}",
    }
    missed = {value.name for value in measurements if not value.ok}
    faults = [f"asked for {params.max_tokens} tokens, got {short[0]}"] if short else []
    faults += [words for name, words in wrong.items() if name in missed]
    return CheckResult(
        name=NAME,
        outcome="fail" if faults else "pass",
        message=faults[0] if faults else f"{shown}, {compiled}",
        measurements=measurements,
        request=number if missed & {"first_request", "ratio"} else None,
        detail=_detail(answers, kernels),
    )


def _limit(value: float | None) -> str:
    return "anything" if value is None else f"{value:g}"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def _detail(answers: Sequence[Completion], compiled: Sequence[str]) -> dict[str, Any]:
    return {
        "seconds": [round(answer.seconds, 4) for answer in answers],
        "first_token_seconds": [round(answer.first_token_seconds or 0.0, 4) for answer in answers],
        "compiled": list(compiled),
    }
