"""Does one prompt have one answer? Greedy twice alone, then once more inside a batch of other prompts.

Each request has a `cache_salt` of its own, so that the prefix cache plays no part. Alone, both requests are the same
work, and nothing may differ in the answers; in a batch kernels of other shapes round in another way, and near ties may
change places. At temperature 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from harness.checks import greedy
from harness.checks.base import MOST_AT_ONCE, MOST_TOKENS, CheckContext, CheckResult, Params
from harness.checks.greedy import Text, Tokens
from harness.checks.outputs import Comparison, Pair, Tolerance
from harness.client.answers import Generated
from harness.errors import ScenarioError

NAME = "determinism"


class DeterminismParams(Params):
    batch: Annotated[int, Field(ge=2, le=MOST_AT_ONCE)] = 8
    """Prompts in the batch, the one under test included."""
    prompt_tokens: Annotated[int, Field(ge=8, le=MOST_TOKENS)] = 64
    """Of the one under test; the others have between a half and one and a half of it."""
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 32
    """Tokens that each answer has."""
    tolerance: Tolerance = 0.5
    """Nats between two tokens up to which they may change places, alone against in a batch."""
    tolerance_alone: Tolerance = 0.0
    """The same, alone against alone."""

    def others(self) -> Sequence[int]:
        """Tokens of the other prompts: spread, so that the batch is of mixed lengths."""
        half, count = self.prompt_tokens // 2, self.batch - 1
        return [half + self.prompt_tokens * number // count for number in range(1, count + 1)]


class Determinism:
    name = NAME
    params: type[Params] = DeterminismParams

    def prepare(self, params: DeterminismParams, *, model: str, corpora: Path) -> None:
        """Nothing: it needs no file of the scenario."""

    def run(self, context: CheckContext) -> CheckResult:
        params: DeterminismParams = context.params
        client = context.client
        _fits(params, client.models().max_model_len)
        prompt, others = _prompts(params, greedy.text(client, context.corpora))
        lone = [greedy.ask(client, [prompt], tokens=params.max_tokens)[0] for _ in range(2)]
        batched = greedy.ask(client, [prompt, *others], tokens=params.max_tokens)[0]
        return judge(params, first=lone[0], again=lone[1], batched=batched)


def _fits(params: DeterminismParams, longest: int | None) -> None:
    needed = params.others()[-1] + params.max_tokens  # the last of them is the longest prompt
    if longest is not None and needed > longest:
        raise ScenarioError(
            f"the prompts of `determinism` and an answer have up to {needed} tokens, the model takes {longest}",
            fix="lower `prompt-tokens` or `max-tokens` of the check, or raise `max-model-len` in `serve`",
        )


def _prompts(params: DeterminismParams, text: Text) -> tuple[Tokens, list[Tokens]]:
    """The one under test, and the others, each from another place in the text."""
    lengths = params.others()
    others = [text.prompt(n, start=params.prompt_tokens * number) for number, n in enumerate(lengths, start=1)]
    return text.prompt(params.prompt_tokens), others


def judge(params: DeterminismParams, *, first: Generated, again: Generated, batched: Generated) -> CheckResult:
    """The result of three answers to one prompt. Pure."""
    alone = _comparison(params, again, first, names=("first", "repeated"), tolerance=params.tolerance_alone)
    batch = _comparison(params, batched, first, names=("lone", "batched"), tolerance=params.tolerance)
    fault = alone.fault() or batch.fault()
    ties = len(alone.divergences) + len(batch.divergences)
    return CheckResult(
        name=NAME,
        outcome="fail" if fault else "pass",
        message=fault
        or f"{params.max_tokens} tokens alike, twice alone and in a batch of {params.batch}, {ties} near ties",
        measurements=(*alone.measurements("_alone"), *batch.measurements("_batch")),
        detail={"alone": alone.detail(), "batch": batch.detail()},
    )


def _comparison(
    params: DeterminismParams, second: Generated, first: Generated, *, names: tuple[str, str], tolerance: float
) -> Comparison:
    pair = Pair(prompt=params.prompt_tokens, first=first, second=second)
    return Comparison(pairs=(pair,), names=names, tokens=params.max_tokens, tolerance=tolerance)
