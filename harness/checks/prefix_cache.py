"""Is what comes from the prefix cache what would be computed? The same greedy answers cold and cached, token by token.

The cache keeps whole blocks, and the last token of a prompt is always computed; so prompts end around a block:

    block - 1    ......7     nothing can be reused
    block        .......8    nothing: its last token is computed, and with it the block
    block + 1    .......8.   one block
    2 blocks     ........ .......8            one block
    shared       ........ ........ tail A     asked to fill the cache, then
                 ........ ........ tail B     two blocks

All are asked cold at once, each with a salt of its own (tail B too), then all twice again with the same salts (tail B
with that of tail A): a model with recurrent states (Kimi-K3, Mamba) keeps those of a prefix only when a second request
shows that it is shared, so that the third is the first to find them (vLLM 0.30.0, `mamba_cache_mode` align). Each has
another text: a block of the wrong prompt then shows. At temperature 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from harness.checks import counters, greedy
from harness.checks.base import MOST_TOKENS, CheckContext, CheckResult, Measurement, Params
from harness.checks.counters import NotCounted
from harness.checks.greedy import Text, Tokens
from harness.checks.outputs import Comparison, Pair, Tolerance
from harness.client.answers import Generated
from harness.errors import ScenarioError

NAME = "prefix_cache"
SHARED = "shared prefix"
NAMES = ("block - 1", "block", "block + 1", "2 blocks", SHARED)


class PrefixCacheParams(Params):
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 16
    """Tokens that each answer has."""
    tolerance: Tolerance = 0.5
    """Nats between two tokens up to which they may change places."""
    max_logprob_difference: Annotated[float, Field(gt=0)] | None = 1.0
    """Largest difference of one token's log-probability, cold against cached, in nats; null: only reported.

    Greedy tokens are likely ones, so noise moves them little: by 0 on a CPU, and by 0.85 at most where a whole text was
    scored with an fp8 cache.
    """
    block_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    """Tokens of one block of the cache, all ranks that share a context together; null: as the server says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    name: str
    prompt: Tokens
    reusable: int
    """Tokens of it that are in whole blocks when it is asked again."""
    filler: Tokens | None = None
    """Asked in place of it to fill the cache, where only a prefix is shared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    cases: tuple[Case, ...]
    too_long: tuple[str, ...]
    """Those of `NAMES` that do not fit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the server answered and counted, in the order of the cases."""

    cold: Sequence[Generated]
    again: Sequence[Generated]
    cached: Sequence[Generated]
    """The third time."""
    cold_hits: float
    """Tokens that cold requests found in the cache."""
    again_hits: float
    hits: float
    """The third time."""


class PrefixCache:
    name = NAME
    params: type[Params] = PrefixCacheParams

    def prepare(self, params: PrefixCacheParams, *, model: str, corpora: Path) -> None:
        """Nothing: it needs no file of the scenario."""

    def run(self, context: CheckContext) -> CheckResult:
        params: PrefixCacheParams = context.params
        block = params.block_tokens or context.block_tokens()
        if block is None:
            text = "the server does not say how many tokens a block of its cache has: give `block-tokens`"
            return CheckResult(name=NAME, outcome="not_tested", message=text)
        longest = context.client.models().max_model_len
        made = plan(
            greedy.text(context.client, context.corpora), block=block, tokens=params.max_tokens, longest=longest
        )
        try:
            return judge(params, made, _ask(context, params, made.cases), block=block)
        except NotCounted as error:
            return CheckResult(name=NAME, outcome="fail", message=str(error))


def plan(text: Text, *, block: int, tokens: int, longest: int | None) -> Plan:
    """The cases that fit beside an answer into the longest sequence that the model takes. Pure.

    Raises:
        ScenarioError: none fits that could reuse a block.
    """
    room = math.inf if longest is None else longest - tokens
    # Two blocks: with a drafter that looks ahead (EAGLE) the last block that matches is computed again.
    shared = block * (2 if 2 * block + 1 <= room else 1)
    lengths = dict(zip(NAMES, (block - 1, block, block + 1, 2 * block, shared + 1), strict=True))
    fitting = [name for name, length in lengths.items() if 0 < length <= room]
    if not any(lengths[name] > block for name in fitting):
        raise ScenarioError(
            f"no prompt fits that could reuse a cache block: a block has {block} tokens, an answer {tokens}, "
            f"and the model takes {longest} in all",
            fix=f"raise `max-model-len` in `serve` to {2 * block + 1 + tokens} (at least {block + 1 + tokens})",
        )
    cases = (
        _shared(text, shared) if name == SHARED else _repeated(text, name, lengths[name], block) for name in fitting
    )
    return Plan(cases=tuple(cases), too_long=tuple(name for name, length in lengths.items() if length > room))


def _repeated(text: Text, name: str, length: int, block: int) -> Case:
    reusable = (length - 1) // block * block
    return Case(name=name, prompt=text.prompt(length, start=_start(text, name)), reusable=reusable)


def _shared(text: Text, size: int) -> Case:
    """Tails of one token: the less is computed after cached blocks, the more an answer hangs on them."""
    filler = text.prompt(size + 1, start=_start(text, SHARED))
    # A common token (a space, a comma, an article) can be followed by anything: what, the prefix decides.
    common = (token for token, _ in Counter(text.tokens).most_common())
    other = next(token for token in common if token != filler[size])
    return Case(name=SHARED, prompt=(*filler[:size], other), filler=filler, reusable=size)


def _start(text: Text, name: str) -> int:
    """A place in the text for each case."""
    return len(text.tokens) * NAMES.index(name) // len(NAMES)


def _ask(context: CheckContext, params: PrefixCacheParams, cases: Sequence[Case]) -> Asked:
    ask = partial(greedy.question, context.client, tokens=params.max_tokens)
    salted = [(case, greedy.salt()) for case in cases]
    begun = counters.snapshot(context)
    cold = [ask(case.prompt, salt=greedy.salt() if case.filler else salt) for case, salt in salted]
    fillers = [ask(case.filler, salt=salt) for case, salt in salted if case.filler]
    first = context.client.together([*cold, *fillers])[: len(cold)]
    filled = counters.settled(context, begun)
    again = [ask(case.prompt, salt=salt) for case, salt in salted]
    second = context.client.together(again)
    shared = counters.settled(context, filled.after)
    third = context.client.together(again)
    reused = counters.settled(context, shared.after)
    cold_hits, again_hits, hits = (grown.of(context.names.prefix_hits) for grown in (filled, shared, reused))
    return Asked(cold=first, again=second, cached=third, cold_hits=cold_hits, again_hits=again_hits, hits=hits)


def judge(params: PrefixCacheParams, made: Plan, asked: Asked, *, block: int) -> CheckResult:
    """The result of all cases. Pure."""
    compared = _compared(params, made, asked)
    reusable = sum(case.reusable for case in made.cases)
    found = f"{asked.hits:g} of {reusable} tokens in whole blocks came from the prefix cache"
    if asked.hits <= 0:
        fault: str | None = f"no token came from the prefix cache, of {reusable} in whole blocks"
    elif asked.cold_hits > 0:
        fault = f"prompts that share no `cache_salt` shared {asked.cold_hits:g} tokens in the prefix cache"
    else:
        fault = compared.fault()
    ties = f"{len(made.cases)} prompts, cold and cached alike, {len(compared.divergences)} near ties"
    unfit = f"; {len(made.too_long)} too long for the model and not tested" if made.too_long else ""
    return CheckResult(
        name=NAME,
        outcome="fail" if fault else "pass",
        message=(fault or f"{found}; {ties}") + unfit,
        measurements=(*_measured(made, asked, reusable, block), *compared.measurements()),
        detail=_detail(made, asked, compared),
        shows=("prefix_cache",) if asked.hits > 0 else (),
    )


def _compared(params: PrefixCacheParams, made: Plan, asked: Asked) -> Comparison:
    rounds = (zip(made.cases, asked.cold, later, strict=True) for later in (asked.again, asked.cached))
    return Comparison(
        pairs=tuple(
            Pair(prompt=len(case.prompt), first=a, second=b, name=case.name) for each in rounds for case, a, b in each
        ),
        names=("cold", "cached"),
        tokens=params.max_tokens,
        tolerance=params.tolerance,
        max_difference=params.max_logprob_difference,
    )


def _measured(made: Plan, asked: Asked, reusable: int, block: int) -> tuple[Measurement, ...]:
    hit, cold = asked.hits > 0, asked.cold_hits <= 0
    return (
        Measurement(name="block", value=block, unit="tokens"),
        Measurement(name="hit_tokens", value=asked.hits, unit="tokens", limit=1, sense="min", ok=hit),
        Measurement(name="second_time_hit_tokens", value=asked.again_hits, unit="tokens"),
        Measurement(name="reusable_tokens", value=reusable, unit="tokens"),
        Measurement(name="cold_hit_tokens", value=asked.cold_hits, unit="tokens", limit=0, ok=cold),
        Measurement(name="not_tested", value=len(made.too_long), unit="prompts"),
    )


def _detail(made: Plan, asked: Asked, compared: Comparison) -> dict[str, Any]:
    """Hits of one prompt are null where the server does not give them."""
    answers = zip(made.cases, asked.cached, strict=True)
    return {
        "prompts": {
            case.name: {"tokens": len(case.prompt), "reusable": case.reusable, "hit": answer.cached}
            for case, answer in answers
        },
        "not tested": list(made.too_long),
        "divergences": compared.detail(),
    }
