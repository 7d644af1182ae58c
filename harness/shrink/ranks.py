"""Sizes: one rank of the mini model has what one rank of the full model has, so that kernels see the same shapes.

    full on 8 ranks   64 heads, 8 KV heads   ─▶  8 heads, 1 KV head a rank
    mini on 1 rank     8 heads, 1 KV head    ─▶  8 heads, 1 KV head a rank
    mini on 2 ranks   16 heads, 2 KV heads   ─▶  8 heads, 1 KV head a rank

A width shrinks to the smallest one that the same power of two divides, up to 512: tiles, vectors and quantised blocks
of kernels fit, or do not fit, as in the full model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.shrink.draft import Config, Draft, lookup, whole
from harness.shrink.fields import (
    EXPANDED,
    EXPERT_GROUPS,
    EXPERTS,
    FOLLOWING,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    LATENT_RANK,
    LAYERS,
    PRODUCTS,
    SHARDED,
    SPELLINGS,
    STATES,
    TOP_K,
    VOCABULARIES,
    WHOLE,
    Heads,
)

MOST_RANKS = 8  # GPUs of one node
LARGEST_POWER = 512
SMALLEST_WIDTH = 256
HIDDEN_SIZE = 1024
FEWEST_EXPERTS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """Tensor parallel sizes: of the mini model, and of the full model whose rank it is like."""

    mini: int
    full: int

    def heads(self, count: int) -> int:
        """Heads of the mini model: those of a rank, for each of its ranks; at least one, or as few as there are."""
        return min(max(count // self.full, 1) * self.mini, count)

    def width(self, size: int) -> int:
        """A width that the ranks share."""
        return min(aligned(size // self.full) * self.mini, size)


def aligned(size: int, *, least: int = SMALLEST_WIDTH, step: int = 1) -> int:
    """The smallest multiple of `step`, from `least` on, that the same power of two divides; 512 stands for all above.

    5,376 is 21 x 256; of at least 1,024 it is 5 x 256, because 4 x 256 would be divided by 1,024.
    """
    power = math.gcd(size, LARGEST_POWER)
    unit = math.lcm(power, step)
    if math.gcd(unit, LARGEST_POWER) != power:
        return size
    times = -(-least // unit)
    return min(unit * (times if power == LARGEST_POWER else times | 1), size)


def full_ranks(config: Config) -> int:
    """The largest size of a tensor parallel group, up to 8, over which the full model's heads and widths divide.

    Quantised blocks must not be cut: a width of 768 in blocks of 128 goes over two ranks, and not over four.
    """
    block = quantised_block(config.get("quantization_config"))
    widths = [size for name in SHARDED for size in _numbers(lookup(config, name))]
    fits = (
        ranks
        for ranks in (8, 4, 2, 1)
        if not any(_undivided(config, heads, ranks) for heads in HEADS)
        and all(size % (ranks * block) == 0 for size in widths)
    )
    return next(fits, 1)


def _undivided(config: Config, heads: Heads, ranks: int) -> str:
    """The count that does not go over the ranks, with its number. Fewer KV heads than ranks are copied to several."""
    count, shared = _counts(config, heads)
    if count and count % ranks:
        return f"{heads.count} {count}"
    return f"{heads.shared} {shared}" if count and shared and shared % ranks and ranks % shared else ""


def _counts(config: Config, heads: Heads) -> tuple[int | None, int | None]:
    return whole(lookup(config, heads.count)), whole(lookup(config, heads.shared)) if heads.shared else None


def check(config: Config) -> None:
    """See that counts and sizes are numbers that a model can have.

    Raises:
        UsageError: the first one that is not.
    """
    for name in _SIZES:
        value = lookup(config, name)
        if value is not None and not isinstance(value, list) and not (type(value) is int and value >= 0):
            raise _wrong(f"{name} is {value!r:.60}, and not a whole number")
    for heads in HEADS:
        count, shared = _counts(config, heads)
        if count and shared and count % shared:
            raise _wrong(f"{heads.count} {count} is not a multiple of {heads.shared} {shared}")
    if lookup(config, HEAD_DIM) == 0:
        raise _wrong(f"{HEAD_DIM} is 0")
    if not isinstance(config.get("quantization_config") or {}, Mapping):
        raise _wrong("quantization_config is no object")


_SIZES = (
    *(*LAYERS, *HIDDEN, *SHARDED, *WHOLE, *EXPERTS, *TOP_K, *VOCABULARIES, HEAD_DIM),
    *(name for heads in HEADS for name in (heads.count, heads.shared) if name),
)


def _wrong(what: str) -> UsageError:
    return UsageError(what, fix="correct it in the config.json")


def quantised_block(quantisation: Any) -> int:
    """Values that share a scale along a width; 1 where there is no such thing."""
    if not isinstance(quantisation, Mapping):
        return 1
    groups = quantisation.get("config_groups")
    weights = [lookup(group, "weights") for group in (groups.values() if isinstance(groups, Mapping) else ())]
    sizes = [quantisation.get("weight_block_size"), *(lookup(each, "group_size") for each in (quantisation, *weights))]
    return max([1, *(number for size in sizes for number in _numbers(size))])


def _numbers(value: Any) -> list[int]:
    return [item for item in (value if isinstance(value, list) else [value]) if whole(item)]


def shrink(draft: Draft, ranks: Ranks) -> None:
    """All sizes but vocabularies.

    Raises:
        UsageError: the tensor parallel size does not divide the heads.
    """
    for heads in HEADS:
        _heads(draft, heads, ranks)
    for second, first in SPELLINGS.items():
        if draft.number(second) and draft.full[second] == draft.full.get(first):
            draft.set(second, draft.get(first), f"another spelling of {first}")
    _hidden(draft)
    _check_heads(draft.full)
    hidden = hidden_field(draft.full)
    for name in FOLLOWING:
        if draft.number(name) and draft.full[name] == draft.full[hidden]:
            draft.set(name, draft.get(hidden), f"{hidden}, as in the full model")
    for name in SHARDED:
        _widths(draft, name, ranks)
    for name in WHOLE:
        if size := draft.number(name):
            draft.set(name, aligned(size), f"a width, with {_power(size)}")
    _inner(draft)
    _experts(draft)


def _heads(draft: Draft, heads: Heads, ranks: Ranks) -> None:
    full, few = _counts(draft.full, heads)
    if full is None or (heads.shared and few is None and draft.number(heads.count) != full):  # shrunk already
        return
    for size, flag in ((ranks.mini, ""), (ranks.full, "full-")):
        if found := _undivided(draft.full, heads, size):
            fix = f"choose a --{flag}tensor-parallel-size that divides it"
            raise UsageError(f"{found} does not go over {size} ranks", fix=fix)
    times = -(-min(heads.least, few) // ranks.heads(few)) if few else 1
    why = f"as many a rank as in the full model on {ranks.full}"
    if times > 1:
        why = f"{times} times as many a rank as in the full model on {ranks.full}, so that not all share one"
    draft.set(heads.count, min(ranks.heads(full) * times, full), why)
    if heads.shared and few:
        draft.set(heads.shared, ranks.heads(few) * times, why)


def _check_heads(config: Config) -> None:
    """Without them nothing would be known of the sizes that hang on them."""
    if not any(whole(lookup(config, name)) for name in (*(heads.count for heads in HEADS), *STATES)):
        known = ", ".join(dict.fromkeys(heads.count for heads in HEADS))
        raise UsageError(f"no field of it is a number of heads ({known})", fix="name a language model")


def _hidden(draft: Draft) -> None:
    name = hidden_field(draft.full)
    size = draft.full[name]
    before, after, dim = _projections(draft)
    if after and before == size and (after >= SMALLEST_WIDTH or not draft.get(HEAD_DIM)):
        draft.set(name, after, f"heads x {dim}, as in the full model")
        return
    step = _shared_step(draft, size)
    draft.set(name, aligned(size, least=HIDDEN_SIZE, step=step), f"a width, with {_power(size)}")


def hidden_field(config: Config) -> str:
    """The field with the hidden size.

    Raises:
        UsageError: there is none.
    """
    found = [name for name in HIDDEN if whole(config.get(name))]
    if not found:
        raise UsageError(f"no field of it is the hidden size ({', '.join(HIDDEN)})", fix="name a language model")
    return found[0]


def _projections(draft: Draft) -> tuple[int, int, int]:
    """Width of all heads in the full and in the mini model, and of one; 0 where the hidden size is another matter."""
    count = next((heads.count for heads in HEADS if draft.number(heads.count)), "")
    before, after = whole(lookup(draft.full, count)), draft.number(count)
    if not before or not after or draft.get(LATENT_RANK):  # a latent is projected to heads of any width
        return 0, 0, 0
    name = hidden_field(draft.full)
    if not draft.number(HEAD_DIM) and draft.full[name] % before:
        raise UsageError(
            f"{name} {draft.full[name]} is not a multiple of {count} {before}, and there is no {HEAD_DIM}",
            fix="correct one of them in the config.json",
        )
    dim = draft.number(HEAD_DIM) or draft.full[name] // before
    return before * dim, after * dim, dim


def _shared_step(draft: Draft, size: int) -> int:
    """Configuration classes refuse a hidden size that the heads do not divide, where they divide the full one."""
    counts = [(whole(lookup(draft.full, heads.count)), draft.number(heads.count)) for heads in HEADS]
    return math.lcm(*(after for before, after in counts if before and after and size % before == 0))


def _widths(draft: Draft, name: str, ranks: Ranks) -> None:
    value = draft.get(name)
    if isinstance(value, list):
        draft.set(name, [ranks.width(size) if whole(size) else size for size in value], "widths that ranks share")
    elif size := draft.number(name):
        draft.set(name, ranks.width(size), f"a width that ranks share, with {_power(size // ranks.full)} on each")


def _power(size: int) -> str:
    power = math.gcd(size, LARGEST_POWER)
    return f"the same power of two in it, {power}{' or more' if power == LARGEST_POWER else ''}"


def _inner(draft: Draft) -> None:
    """Widths of state space layers that are a multiple of the hidden size, where they are in the full model."""
    for expand, count, dim in EXPANDED:
        times, heads, size = draft.number(expand), whole(lookup(draft.full, count)), draft.number(dim)
        if times and heads and size and times * _hidden_of(draft.full) == heads * size:
            wanted = times * _hidden_of(draft.config) // size
            draft.set(count, wanted, f"{expand} x hidden size = {count} x {dim}, as in the full model")
    for width, count, dim in PRODUCTS:
        before, heads, size = draft.number(width), whole(lookup(draft.full, count)), draft.number(dim)
        if before and heads and size and before == heads * size:
            draft.set(width, (draft.number(count) or 0) * size, f"{count} x {dim}, as in the full model")
    for name in ("mamba_dt_rank", "time_step_rank"):
        if (draft.number(name) or 0) == -(-_hidden_of(draft.full) // 16):
            draft.set(name, -(-_hidden_of(draft.config) // 16), "a sixteenth of the hidden size, as in the full model")


def _hidden_of(config: Config) -> int:
    return int(config[hidden_field(config)])


def _experts(draft: Draft) -> None:
    chosen = max([0, *(size for name in TOP_K for size in _numbers(draft.get(name)))])
    for name in EXPERTS:
        count = draft.number(name) or 0
        if count & (count - 1) == 0 and count:
            fewest = max(FEWEST_EXPERTS, 2 * chosen, *_of_groups(draft, chosen))
            size = min(count, 1 << (fewest - 1).bit_length())
            draft.set(name, size, f"a power of two, at least twice the {chosen} of a token")


def _of_groups(draft: Draft, chosen: int) -> Iterator[int]:
    yield 0
    for groups, chosen_groups in EXPERT_GROUPS:
        if (count := draft.number(groups)) and (some := draft.number(chosen_groups)):
            yield count * 2 * -(-chosen // some)
