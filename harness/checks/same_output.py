"""Does a second launch (`against`) give the same answers? Tokens and their log-probabilities, one by one.

At temperature 0: sampling is probabilistic, and two right servers then differ. Each prompt is asked twice with one
`cache_salt`, so that the second answer may come from the prefix cache, where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from harness.checks import greedy, outputs
from harness.checks.against import Against
from harness.checks.base import MOST_AT_ONCE, MOST_TOKENS, CheckContext, CheckResult, Params, Unfinished
from harness.checks.greedy import Tokens
from harness.checks.outputs import Comparison, Pair, Tolerance
from harness.client.answers import Generated
from harness.errors import ScenarioError

NAME = "same_output"
LENGTHS = (8, 50, 100, 200, 400)
"""Tokens of the built-in prompts; those that do not fit are left out."""
TIMES = 2
"""That each prompt is asked."""


class SameOutputParams(Params):
    against: Against
    """The second launch: words that the runtime knows (`no speculation`), or `{serve: …, env: …, build: …}`."""
    prompts: (
        Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MOST_AT_ONCE)] | None
    ) = None
    """Texts; null: pieces of the harness's own, of 8 to 400 tokens."""
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 32
    """Tokens that each answer has."""
    tolerance: Tolerance = 0.5
    """Nats between two tokens up to which they may change places."""
    max_logprob_difference: Annotated[float, Field(gt=0)] | None = None
    """Largest difference of one token's log-probability, in nats; null: only reported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """Of this server: in the order of the prompts, first all and then all again."""

    prompts: tuple[Tokens, ...]
    too_long: int
    """How many more did not fit."""
    given: tuple[Generated, ...]


class SameOutput:
    name = NAME
    params: type[Params] = SameOutputParams

    def prepare(self, params: SameOutputParams, *, model: str, corpora: Path) -> None:
        """Nothing: it needs no file of the scenario."""

    def run(self, context: CheckContext) -> CheckResult | Unfinished:
        """Its own answers, unless one is wrong by itself: then no second server is needed to say so."""
        params: SameOutputParams = context.params
        prompts, too_long = _prompts(context, params)
        own = Answers(prompts=prompts, too_long=too_long, given=tuple(_ask(context, prompts, params)))
        lengths = [len(prompt) for prompt in prompts * TIMES]
        if fault := outputs.first_wrong(lengths, own.given, tokens=params.max_tokens, name="own"):
            count = outputs.count_wrong(own.given, tokens=params.max_tokens)
            return CheckResult(name=NAME, outcome="fail", message=fault, measurements=(count,))
        return Unfinished(
            against=params.against,
            ask=partial(_ask, prompts=prompts, params=params),
            finish=partial(judge, params, own),
        )


def _prompts(context: CheckContext, params: SameOutputParams) -> tuple[tuple[Tokens, ...], int]:
    """Those that fit, and how many do not."""
    longest, text = context.client.models().max_model_len, greedy.text(context.client, context.corpora)
    if params.prompts is None:
        wanted = [text.prompt(length, start=100 * number) for number, length in enumerate(LENGTHS)]
    else:
        wanted = [tuple(context.client.tokenize(prompt, special=True)) for prompt in params.prompts]
    fitting = tuple(prompt for prompt in wanted if longest is None or len(prompt) + params.max_tokens <= longest)
    if fitting and (params.prompts is None or len(fitting) == len(wanted)):
        return fitting, len(wanted) - len(fitting)
    raise ScenarioError(
        f"{len(wanted) - len(fitting)} of {len(wanted)} prompts of `same_output` do not fit: the model takes {longest} "
        f"tokens, an answer of {params.max_tokens} among them",
        fix="shorten `prompts`, lower `max-tokens` of the check, or raise `max-model-len` in `serve`",
    )


def _ask(context: CheckContext, prompts: Sequence[Tokens], params: SameOutputParams) -> list[Generated]:
    """Twice: the second time when all of the first are answered, so that they are in the cache."""
    ask = partial(greedy.question, context.client, tokens=params.max_tokens)
    salted = [(prompt, greedy.salt()) for prompt in prompts]
    return [answer for _ in range(TIMES) for answer in context.client.together([ask(p, salt=s) for p, s in salted])]


def judge(params: SameOutputParams, own: Answers, theirs: Sequence[Generated]) -> CheckResult:
    """The result of the answers of both servers. Pure."""
    asked = zip(own.prompts * TIMES, own.given, theirs, strict=True)
    compared = Comparison(
        pairs=tuple(Pair(prompt=len(prompt), first=a, second=b) for prompt, a, b in asked),
        names=("own", "reference"),
        tokens=params.max_tokens,
        tolerance=params.tolerance,
        max_difference=params.max_logprob_difference,
    )
    fault = compared.fault()
    unfit = f"; {own.too_long} too long for the model and not tested" if own.too_long else ""
    return CheckResult(
        name=NAME,
        outcome="fail" if fault else "pass",
        message=(fault or _alike(compared, params)) + unfit,
        measurements=compared.measurements(),
        detail={"prompts": [len(prompt) for prompt in own.prompts], "divergences": compared.detail()},
    )


def _alike(compared: Comparison, params: SameOutputParams) -> str:
    return (
        f"{len(compared.pairs)} answers of {params.max_tokens} tokens as in the reference, "
        f"{len(compared.divergences)} near ties, log-probabilities differ by up to {compared.difference:.2g} nats"
    )
