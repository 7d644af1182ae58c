"""Which layers of a model stay: as few as show every kind of layer there is, with the fields that say their kinds.

full   D K K F K K K F … (61)        D dense, K linear attention, F full attention
mini   D K K F             a prefix: formulas (first_k_dense_replace, every 4th is full) hold as they are
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import Any

from harness.errors import UsageError
from harness.shrink.draft import Config, Draft, listed, lookup, whole
from harness.shrink.fields import BLOCKS, CYCLES, EVERY_LAYER, FORMULAS, LAYERS, NUMBERS, PER_LAYER

FEWEST = 2  # what one layer hands to the next is a path too
MOST = 10_000
LONGEST_PATH = 100
LONGEST_PREFIX = 16
"""Where kinds come later than this, layers in between are left out, if the fields that say their kinds allow it."""
_NUMBERED = re.compile(r"\blayers\.(\d+)\b")


def count_field(config: Config) -> str:
    """The field with the number of layers.

    Raises:
        UsageError: there is none.
    """
    if found := _counting(config):
        return found
    fix = "name the config.json of a decoder-only language model, or the folder that holds it"
    if inside := _inside(config):
        fix = f"its field {inside} has one: write a config.json of that alone, and shrink it"
    raise UsageError(f"no field of it is a number of layers ({', '.join(LAYERS)}) from 1 to {MOST:,}", fix=fix)


def _counting(config: Config) -> str:
    return next((name for name in LAYERS if (whole(config.get(name)) or MOST + 1) <= MOST), "")


def _inside(config: Config, path: str = "") -> str:
    """The first mapping inside that has a number of layers; empty: none has."""
    for name, value in config.items():
        if isinstance(value, dict) and len(path) < LONGEST_PATH:
            if _counting(value):
                return f"{path}{name}"
            if found := _inside(value, f"{path}{name}."):
                return found
    return ""


def kinds(config: Config) -> list[Hashable]:
    """What tells each layer from the others, as the fields of the configuration have it."""
    layers: int = config[count_field(config)]
    for name in EVERY_LAYER:
        if (told := len(_per_layer(config, name))) and told < layers:
            raise UsageError(f"{name} has {told} entries for {layers} layers", fix="correct it in the config.json")
    rows = [*_listed(config, layers), *_numbered(config, layers), *_made(config, layers), _excepted(config, layers)]
    return [tuple(row[layer] for row in rows) for layer in range(layers)]


def _listed(config: Config, layers: int) -> list[Sequence[Hashable]]:
    return [[_hashable(item) for item in _per_layer(config, name)][:layers] for name in _of_layers(config, layers)]


def _hashable(item: Any) -> Hashable:
    return item if isinstance(item, Hashable) else repr(item)


def _of_layers(config: Config, layers: int) -> list[str]:
    return [name for name in PER_LAYER if len(_per_layer(config, name)) >= layers]


def _per_layer(config: Config, name: str) -> Sequence[Any]:
    value = config.get(name)
    return value if isinstance(value, str | list) else ()


def _numbered(config: Config, layers: int) -> list[Sequence[Hashable]]:
    lists = [(_layer_numbers(config, path), first) for path, first in NUMBERS.items()]
    return [[layer + first in numbers for layer in range(layers)] for numbers, first in lists]


def _layer_numbers(config: Config, path: str) -> list[int]:
    numbers = listed(lookup(config, path))
    if any(type(number) is not int for number in numbers):
        raise UsageError(f"{path} is not a list of numbers of layers", fix="correct it in the config.json")
    return numbers


def _made(config: Config, layers: int) -> list[Sequence[Hashable]]:
    rows: list[Sequence[Hashable]] = []
    for name, formula in FORMULAS.items():
        value = whole(config.get(name))
        if value and (not formula.needs or config.get(formula.needs)):
            rows.append([formula.kind(value, layer, layers) for layer in range(layers)])
    cycles = (cycle for name in CYCLES if (cycle := config.get(name)) and isinstance(cycle, str))
    return [*rows, *([cycle[layer % len(cycle)] for layer in range(layers)] for cycle in cycles)]


def _excepted(config: Config, layers: int) -> Sequence[Hashable]:
    """Which modules of each layer the quantisation leaves out."""
    found: list[set[str]] = [set() for _ in range(layers)]
    for text in strings(config.get("quantization_config")):
        for match in _NUMBERED.finditer(text):
            if int(match[1]) < layers:
                found[int(match[1])].add(_NUMBERED.sub("layers.N", text))
    return [frozenset(texts) for texts in found]


def strings(value: Any) -> list[str]:
    """All texts in lists and mappings."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in strings(item)] if isinstance(value, list) else []


def choose(config: Config, *, at_least: int = FEWEST) -> tuple[int, ...]:
    """The layers of the full model that the mini has, counted from 0."""
    all_kinds = kinds(config)
    fewest = min(max(FEWEST, at_least, *(2 * _block(config, name) for name in BLOCKS)), len(all_kinds))
    seen: dict[Hashable, int] = {}
    for layer, kind in enumerate(all_kinds):
        seen.setdefault(kind, layer)
    prefix = max(max(seen.values()) + 1, fewest)
    firsts = sorted({*seen.values(), *range(fewest - len(seen))})
    if prefix <= LONGEST_PREFIX or len(firsts) < fewest or not _holds(config, firsts):
        return tuple(range(prefix))
    return tuple(firsts)


def _block(config: Config, name: str) -> int:
    return 2 if whole(config.get(name)) else 0


def _holds(config: Config, chosen: Sequence[int]) -> bool:
    """Whether the fields still say the same kinds when only these layers are left."""
    draft = Draft(config)
    cut(draft, chosen)
    before = kinds(config)
    return kinds(draft.config) == [before[layer] for layer in chosen]


def cut(draft: Draft, chosen: Sequence[int]) -> None:
    """Leave only the chosen layers, in every field that counts or lists them."""
    name = count_field(draft.full)
    layers: int = draft.full[name]
    words = f"layers {_words(chosen)} have every kind of layer that the full model has"
    draft.set(name, len(chosen), words)
    for path in _of_layers(draft.full, layers):
        entries = _per_layer(draft.full, path)
        left: list[Any] = [entries[layer] for layer in chosen] + list(entries[layers:])
        draft.set(path, "".join(left) if isinstance(entries, str) else left, "an entry for each layer that stays")
    for path, first in NUMBERS.items():
        if numbers := _layer_numbers(draft.full, path):
            place = {layer + first: at + first for at, layer in enumerate(chosen)}
            draft.set(
                path,
                [place[number] for number in numbers if number in place],
                "the layers that stay, by their new numbers",
            )
    _cut_from_end(draft, chosen, layers)
    for path in BLOCKS:
        if (draft.number(path) or 0) > len(chosen) // 2:
            draft.set(path, len(chosen) // 2, "so that the layers that stay make more than one block")
    if quantised := draft.full.get("quantization_config"):
        place = {layer: at for at, layer in enumerate(chosen)}
        draft.set(
            "quantization_config", _renumbered(quantised, place), "its exceptions by the new numbers of the layers"
        )


def _cut_from_end(draft: Draft, chosen: Sequence[int], layers: int) -> None:
    if shared := draft.number("num_kv_shared_layers"):
        left = sum(layer >= layers - shared for layer in chosen)
        draft.set("num_kv_shared_layers", left, "those of the layers that stay")
    if draft.get("use_sliding_window") and (first := draft.number("max_window_layers")):
        draft.set("max_window_layers", sum(layer < first for layer in chosen), "those of the layers that stay")


def _words(chosen: Sequence[int]) -> str:
    return f"0 to {len(chosen) - 1}" if list(chosen) == list(range(len(chosen))) else ", ".join(map(str, chosen))


def _renumbered(value: Any, place: dict[int, int]) -> Any:
    if isinstance(value, dict):
        return {name: _renumbered(item, place) for name, item in value.items()}
    if isinstance(value, list):
        return [_renumbered(item, place) for item in value if not (isinstance(item, str) and _gone(item, place))]
    if isinstance(value, str) and not _gone(value, place):
        return _NUMBERED.sub(lambda match: f"layers.{place[int(match[1])]}", value)
    return value


def _gone(text: str, place: dict[int, int]) -> bool:
    return any(int(number) not in place for number in _NUMBERED.findall(text))
