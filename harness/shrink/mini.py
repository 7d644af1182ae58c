"""One configuration, or a target and its drafter, from the full sizes to the mini ones. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import UsageError
from harness.shrink import drafter, layers, ranks, text_side, tokens
from harness.shrink.draft import Change, Config, Draft, Kept, listed, lookup, paths, whole
from harness.shrink.fields import DEFAULTS, EXPERTS, HIDDEN, VOCABULARY, WHY
from harness.shrink.ranks import Ranks, full_ranks

_REMOTE = "auto_map"
_QUANTISATION = "quantization_config"
_OF_LAYERS = re.compile(r"layer|_idxs?$|interval|pattern|freq|every")


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """A field that no table knows; it is kept."""

    path: str
    value: Any
    hint: str
    """Where its value looks like one that was changed, or its name like one that tells layers apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mini:
    """A mini model's configuration, and how it came about."""

    config: Config
    layers: tuple[int, ...]
    """Layers of the full model that it has, counted from 0."""
    ranks: Ranks
    changes: tuple[Change, ...]
    kept: tuple[Kept, ...]
    unknown: tuple[Unknown, ...]
    not_run: tuple[str, ...]
    """Paths of the full model that the mini does not take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    ranks: Ranks
    tokens: Mapping[int, int]
    quantised: bool


def shrink(
    config: Config,
    *,
    draft: Config | None = None,
    tensor_parallel_size: int = 1,
    full_tensor_parallel_size: int | None = None,
    quantised: bool = True,
) -> tuple[Mini, Mini | None]:
    """The mini model of a configuration, and that of its drafter where one is given.

    `tensor_parallel_size` is that of the mini model; one rank of it is like one of the full model on
    `full_tensor_parallel_size` ranks (None: as many as its heads and widths divide over, up to 8).

    Raises:
        UsageError: it is not the configuration of a language model that can be shrunk so; says which field.
    """
    drafter.alone(config)
    text, changes, lost = text_side.of(config)
    for each in (text, *([draft] if draft else [])):
        ranks.check(each)
    full = _filled(text)
    plan = _Plan(
        ranks=Ranks(mini=tensor_parallel_size, full=full_tensor_parallel_size or full_ranks(full)),
        tokens=tokens.numbers(full, *([draft] if draft else [])),
        quantised=quantised,
    )
    if plan.ranks.mini > plan.ranks.full:
        raise UsageError(
            f"a rank of {plan.ranks.mini} cannot be like one of the full model's {plan.ranks.full}",
            fix=f"choose at most --tensor-parallel-size {plan.ranks.full}, or a larger --full-tensor-parallel-size",
        )
    work, chosen = _shrunk(full, plan, at_least=drafter.targets(draft) if draft else 0)
    target = _mini(work, chosen, plan.ranks)
    target = replace(target, changes=changes + target.changes, not_run=lost + target.not_run)
    return target, _drafter(draft, full, target, plan) if draft else None


def _filled(config: Config) -> Config:
    """With what its class would fill in, so that nothing is decided by a number that nobody sees.

    Raises:
        UsageError: the size of the vocabulary is not known.
    """
    filled = {**DEFAULTS.get(str(config.get("model_type")), {}), **config}
    if not whole(filled.get(VOCABULARY)):
        raise UsageError(
            f"{VOCABULARY} is not in it, and the default of model type {config.get('model_type')!r} is not known",
            fix="write the field into the config.json",
        )
    return filled


def _shrunk(full: Config, plan: _Plan, *, at_least: int = 0) -> tuple[Draft, tuple[int, ...]]:
    chosen = layers.choose(full, at_least=at_least)
    work = Draft(full)
    layers.cut(work, chosen)
    ranks.shrink(work, plan.ranks)
    tokens.shrink(work, plan.tokens)
    if not plan.quantised:
        work.drop(_QUANTISATION, "asked for without")
    work.drop(_REMOTE, "the code that it names does not lie beside the mini model")
    return work, chosen


def _drafter(draft: Config, full: Config, target: Mini, plan: _Plan) -> Mini:
    work, chosen = _shrunk(draft, plan)
    drafter.follow(work, full=full, mini=target.config)
    return _mini(work, chosen, plan.ranks)


def _mini(work: Draft, chosen: tuple[int, ...], size: Ranks) -> Mini:
    changed = work.changes
    same = [path for path in paths(work.config) if path not in {change.path for change in changed}]
    whys = [(path, work.get(path), _why(work, path)) for path in same]
    return Mini(
        config=work.config,
        layers=chosen,
        ranks=size,
        changes=changed,
        kept=tuple(Kept(path=path, value=value, why=why) for path, value, why in whys if why),
        unknown=tuple(
            Unknown(path=path, value=value, hint=_hint(path, value, work)) for path, value, why in whys if not why
        ),
        not_run=tuple(_not_run(work)),
    )


def _why(work: Draft, path: str) -> str:
    if work.get(path) is None:
        return "not set"
    if path in EXPERTS and not work.why(path):
        return "not a power of two: routers and kernels know such counts one by one"
    return work.why(path) or WHY.get(path, "")


def _hint(path: str, value: Any, work: Draft) -> str:
    like = [change for change in work.changes if type(value) is int and value > 1 and change.before == value]
    if like:
        return f"it is what {like[0].path} was, which is {like[0].after} now: it may have to follow"
    if _OF_LAYERS.search(path) or len(listed(value)) == work.full[layers.count_field(work.full)]:
        return "it may tell layers apart: which ones stay was decided without it"
    return ""


def _not_run(work: Draft) -> Iterator[str]:
    yield "its tokenizer, chat template and renderer: the mini model reads and writes bytes"
    yield "reading a checkpoint: the weights are made up (--load-format dummy)"
    quantised = work.full.get(_QUANTISATION)
    if quantised and _QUANTISATION not in work.config:
        yield f"the kernels of its quantised weights ({lookup(quantised, 'quant_method') or 'of an unnamed method'})"
    if _REMOTE in work.full:
        yield "code of its own that lies beside the checkpoint (trust-remote-code)"
    before = {name: lookup(work.full, name) for name in (*HIDDEN, *EXPERTS)}
    sizes = [f"{name} {size}" for name, size in before.items() if size != work.get(name)]
    if sizes:
        yield f"kernels and tuned settings for exactly its sizes ({', '.join(sizes)})"
