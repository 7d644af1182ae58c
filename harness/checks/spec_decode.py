"""Does speculation draft, are drafts accepted, and are only the right ones? From the server's counters and its answers.

A drafter that is configured but never drafts answers as well as one that does, so zero drafts are a failure. Prompts
repeat themselves, so that a drafter which looks for earlier text (n-gram) finds some. At temperature 0, where a draft
is right if it is the likeliest token: a wrong one that was accepted shows in the answer by itself. With `against`, the
answers are also compared with those of a second launch, such as one without speculation.

    draft       a  b  c        accepted: 2, then the model's own token
    answer      a  b  x        acceptance length 3 = 1 + accepted / drafts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from harness.checks import counters, drafting, greedy, outputs
from harness.checks.against import Against
from harness.checks.base import MOST_AT_ONCE, MOST_TOKENS, CheckContext, CheckResult, Params, Unfinished
from harness.checks.counters import NotCounted
from harness.checks.drafting import Drafted
from harness.checks.greedy import Text, Tokens
from harness.checks.outputs import Comparison, Pair, Tolerance
from harness.client.answers import Generated
from harness.errors import ScenarioError

NAME = "spec_decode"
UNIT = 24
"""Tokens of the piece of text that a prompt repeats."""
SHORT = 4 * UNIT
"""Tokens of a short prompt."""


class SpecDecodeParams(Params):
    min_acceptance_length: Annotated[float, Field(ge=1)] | None = None
    """Least tokens that a step with a draft gives, at short prompts; null: only reported."""
    min_acceptance_length_long: Annotated[float, Field(ge=1)] | None = None
    """The same at the long prompt."""
    prompts: Annotated[int, Field(ge=1, le=MOST_AT_ONCE)] = 4
    """How many short prompts, asked at once."""
    max_tokens: Annotated[int, Field(ge=2, le=MOST_TOKENS)] = 64
    """Tokens that each answer has."""
    long_prompt: Annotated[float, Field(gt=0, lt=1)] = 0.75
    """Share of the longest sequence that the model takes which the long prompt fills, as far as the answer lets it."""
    long_prompt_max: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 32768
    """Tokens that the long prompt has at most, whatever the model takes."""
    against: Against | None = None
    """A second launch to compare the answers with: `no speculation`, or `{serve: …, env: …, build: …}`."""
    tolerance: Tolerance = 0.5
    """Nats between two tokens up to which they may change places in the second launch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """What this server answered and counted."""

    short: Drafted
    long: Drafted | None
    """None: no prompt is longer than the short ones."""
    prompts: tuple[Tokens, ...]
    """The long one last."""
    answers: tuple[Generated, ...]


class SpecDecode:
    name = NAME
    params: type[Params] = SpecDecodeParams

    def prepare(self, params: SpecDecodeParams, *, model: str, corpora: Path) -> None:
        """Nothing: it needs no file of the scenario."""

    def run(self, context: CheckContext) -> CheckResult | Unfinished:
        params: SpecDecodeParams = context.params
        longest = context.client.models().max_model_len
        short, long = prompts(params, greedy.text(context.client, context.corpora), longest)
        try:
            own = _ask(context, params, short, long)
        except NotCounted as error:
            text = f"nothing shows that speculation is on: {error}"
            return CheckResult(name=NAME, outcome="fail", message=text)
        result = judge(params, own)
        if result.outcome == "fail" or params.against is None:
            return result
        return Unfinished(
            against=params.against,
            ask=partial(_ask_again, prompts=own.prompts, params=params),
            finish=partial(compared, params, own, result),
        )


def prompts(params: SpecDecodeParams, text: Text, longest: int | None) -> tuple[tuple[Tokens, ...], Tokens | None]:
    """The short prompts, and the long one where it is longer than they are. Pure.

    Raises:
        ScenarioError: the model takes no prompt that repeats itself beside an answer.
    """
    room = SHORT if longest is None else longest - params.max_tokens
    if room < 2 * UNIT:
        raise ScenarioError(
            f"`spec_decode` asks for {params.max_tokens} tokens after a prompt of at least {2 * UNIT}, the model takes "
            f"{longest} in all",
            fix="lower `max-tokens` of the check, or raise `max-model-len` in `serve`",
        )
    short = tuple(_repeating(text, min(SHORT, room), start=UNIT * number) for number in range(params.prompts))
    size = 0 if longest is None else min(int(longest * params.long_prompt), params.long_prompt_max, room)
    return short, _repeating(text, size, start=UNIT * params.prompts) if size > SHORT else None


def _repeating(text: Text, length: int, *, start: int) -> Tokens:
    return Text(prefix=text.prefix, tokens=text.piece(UNIT, start=start)).prompt(length)


def _ask(context: CheckContext, params: SpecDecodeParams, short: tuple[Tokens, ...], long: Tokens | None) -> Own:
    begun = counters.snapshot(context)
    answers = greedy.ask(context.client, short, tokens=params.max_tokens)
    grown = counters.settled(context, begun)
    found = drafting.drafted(grown, context.names)
    if long is None:
        return Own(short=found, long=None, prompts=short, answers=tuple(answers))
    answers += greedy.ask(context.client, [long], tokens=params.max_tokens)
    further = drafting.drafted(counters.settled(context, grown.after), context.names)
    return Own(short=found, long=further, prompts=(*short, long), answers=tuple(answers))


def _ask_again(context: CheckContext, prompts: Sequence[Tokens], params: SpecDecodeParams) -> list[Generated]:
    return greedy.ask(context.client, prompts, tokens=params.max_tokens)


def judge(params: SpecDecodeParams, own: Own) -> CheckResult:
    """The result of this server alone. Pure."""
    lengths, tokens = [len(prompt) for prompt in own.prompts], params.max_tokens
    wrong = outputs.first_wrong(lengths, own.answers, tokens=tokens, name="speculative")
    fault = _silent(own) or wrong or _too_short(params, own)
    measured = drafting.measurements(own.short, minimum=params.min_acceptance_length)
    if own.long:
        limit = params.min_acceptance_length_long
        measured += drafting.measurements(own.long, minimum=limit, prefix="long_")
    return CheckResult(
        name=NAME,
        outcome="fail" if fault else "pass",
        message=fault or _found(own),
        measurements=(*measured, outputs.count_wrong(own.answers, tokens=tokens)),
        detail=_detail(own),
        shows=("spec_decode",) if own.short.drafts > 0 else (),
    )


def _silent(own: Own) -> str | None:
    if own.short.drafts <= 0:
        return f"speculation was on but never drafted: 0 drafts in {sum(len(a.tokens) for a in own.answers)} tokens"
    if own.long and own.long.drafts <= 0:
        return f"speculation never drafted after a prompt of {len(own.prompts[-1])} tokens, but after shorter ones"
    return None


def _too_short(params: SpecDecodeParams, own: Own) -> str | None:
    short, long = params.min_acceptance_length, params.min_acceptance_length_long
    if not drafting.long_enough(own.short, short):
        return f"acceptance length {own.short.acceptance_length:.2f} is below the limit of {short:g}"
    if own.long and not drafting.long_enough(own.long, long):
        what = f"acceptance length {own.long.acceptance_length:.2f} after a prompt of {len(own.prompts[-1])} tokens"
        return f"{what} is below the limit of {long:g}"
    return None


def _found(own: Own) -> str:
    text = f"acceptance length {own.short.acceptance_length:.2f} in {own.short.drafts:g} drafts"
    if own.long is None:
        return f"{text}; no longer prompt was tested: the model takes none"
    length = own.long.acceptance_length
    return f"{text}, {length:.2f} in {own.long.drafts:g} after a prompt of {len(own.prompts[-1])} tokens"


def _detail(own: Own) -> dict[str, Any]:
    return {"prompts": [len(prompt) for prompt in own.prompts], "texts": [answer.text for answer in own.answers]}


def compared(params: SpecDecodeParams, own: Own, alone: CheckResult, theirs: Sequence[Generated]) -> CheckResult:
    """The result of this server, `alone`, and of the answers of the second one. Pure."""
    asked = zip(own.prompts, own.answers, theirs, strict=True)
    comparison = Comparison(
        pairs=tuple(Pair(prompt=len(prompt), first=a, second=b) for prompt, a, b in asked),
        names=("speculative", "reference"),
        tokens=params.max_tokens,
        tolerance=params.tolerance,
    )
    fault = comparison.fault()
    alike = f"{len(own.answers)} answers as in the reference, {len(comparison.divergences)} near ties"
    return replace(
        alone,
        outcome="fail" if fault else "pass",
        message=fault or f"{alone.message}; {alike}",
        measurements=(*alone.measurements, *comparison.measurements("_reference")),
        detail={**(alone.detail or {}), "divergences": comparison.detail()},
    )
