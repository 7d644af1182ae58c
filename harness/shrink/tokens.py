"""The vocabulary, and the tokens that have a meaning: bytes, the two ends of a text, and the others behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.errors import UsageError
from harness.shrink.byte_tokenizer import BEGIN_ID, END_ID
from harness.shrink.draft import Config, Draft, lookup, paths
from harness.shrink.fields import TOKEN, VOCABULARIES, VOCABULARY

SIZE = 1024
_PADDING = 64  # servers round vocabularies up to it
_WHY = "ids of a byte-level tokenizer: 256 begins, 257 ends, others follow"


def numbers(*configs: Config) -> dict[int, int]:
    """New ids for all tokens that the configurations name, the same for a model and its drafter."""
    place: dict[int, int] = {}
    named = [(path, lookup(config, path)) for config in configs for path in _named(config)]
    for name, new in (("bos_token_id", BEGIN_ID), ("eos_token_id", END_ID)):
        first = next((token for found, value in named if found == name for token in _ids(value)), None)
        if first is not None:
            place.setdefault(first, new)
    for token in (token for _, value in named for token in _ids(value)):
        if token not in place:
            place[token] = max(END_ID, *place.values(), 0) + 1
    return place


def _named(config: Config) -> list[str]:
    return [
        path for path in paths(config) if TOKEN.search(path.rpartition(".")[2]) and lookup(config, path) is not None
    ]


def _ids(value: Any) -> Iterator[int]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, int) and not isinstance(item, bool) and item >= 0:
            yield item


def shrink(draft: Draft, place: Mapping[int, int]) -> None:
    """Raises: UsageError: more tokens have a meaning than the mini model has."""
    if max(place.values(), default=0) >= SIZE:
        raise UsageError(
            f"it names {len(place)} special tokens, and a mini model has {SIZE} in all", fix="name fewer of them"
        )
    for path in _named(draft.config):
        draft.set(path, _placed(draft.get(path), place), _WHY)
    for name in VOCABULARIES:
        if size := draft.number(name):
            draft.set(name, vocabulary(size, of=draft.full.get(VOCABULARY)), _size_words(size))


def _placed(value: Any, place: Mapping[int, int]) -> Any:
    if isinstance(value, list):
        return [_placed(item, place) for item in value]
    return place.get(value, value) if type(value) is int else value


def vocabulary(size: int, *, of: Any) -> int:
    """1,024 tokens and what is over a multiple of 64 in the full one; half of it for a drafter with fewer tokens."""
    half = isinstance(of, int) and size < of
    return min(size, (SIZE // 2 if half else SIZE) + size % _PADDING)


def _size_words(size: int) -> str:
    over = size % _PADDING
    return (
        f"bytes and special tokens; {over} over a multiple of {_PADDING}, so padded alike"
        if over
        else "bytes and special tokens"
    )
