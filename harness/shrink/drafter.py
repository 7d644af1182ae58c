"""A drafter is shrunk with its target: what it shares with it (hidden size, vocabulary, layers it listens to) follows.

target   hidden 7168, layers 0 … 60          ─▶   hidden 1024, layers 0 1 2 3
drafter  reads layers [2, 30, 58]            ─▶   reads layers [1, 2, 3]
"""

from __future__ import annotations

from typing import Any

from harness.errors import UsageError
from harness.shrink.draft import Config, Draft, listed, lookup
from harness.shrink.fields import TARGET_COUNTS, TARGET_HIDDEN, TARGET_LAYERS
from harness.shrink.layers import count_field
from harness.shrink.ranks import hidden_field

_WHY = "as the mini target has it"


UNNAMED_TAPS = 7
"""An EAGLE-3 drafter that names no layers reads those after 2, n // 2 and n - 3 (vLLM): three from 7 layers on."""


def targets(config: Config) -> int:
    """How many layers the drafter's target must have; 0 for a model that is no drafter."""
    named = max(len(listed(lookup(config, path))) for path in TARGET_LAYERS)
    eagle = any("Eagle3" in str(name) for name in listed(config.get("architectures")))
    return named or (UNNAMED_TAPS if eagle else 0)


def alone(config: Config) -> None:
    """Refuse a drafter that is named as a model of its own.

    Raises:
        UsageError: it is one.
    """
    if targets(config) or config.get(TARGET_HIDDEN):
        raise UsageError(
            "this is the configuration of a drafter, whose sizes follow from its target",
            fix="harness shrink TARGET --out DIR --drafter THIS --drafter-out DIR",
        )


def follow(draft: Draft, *, full: Config, mini: Config) -> None:
    """Give a shrunk drafter what it shares with its target.

    Raises:
        UsageError: the drafter is not one of this target.
    """
    name = hidden_field(full)
    wanted = draft.number(TARGET_HIDDEN)
    if wanted is not None and wanted != full[name]:
        raise UsageError(
            f"the drafter is made for a target of hidden size {wanted}, and this one has {full[name]}",
            fix="name the target that the drafter belongs to",
        )
    if wanted is None and targets(draft.full) and draft.full.get(name) != full[name]:
        raise UsageError(
            f"the drafter listens to layers of a target, and its {name} is {draft.full.get(name)}, not {full[name]}",
            fix="name the target that the drafter belongs to",
        )
    if wanted is not None:
        draft.set(TARGET_HIDDEN, mini[name], _WHY)
    if draft.full.get(name) == full[name]:
        draft.set(name, mini[name], _WHY)
    layers: int = mini[count_field(mini)]
    for path in TARGET_COUNTS:
        if draft.get(path) == full[count_field(full)]:
            draft.set(path, layers, _WHY)
    for path in TARGET_LAYERS:
        if numbers := listed(draft.get(path)):
            draft.set(path, _spread(numbers, layers), f"as many layers of the mini target, which has {layers}")


def _spread(numbers: list[Any], layers: int) -> list[int]:
    """As many layers, spread evenly, the last one included: 2 of 4 are 1 and 3."""
    return [(at + 1) * layers // len(numbers) - 1 for at in range(len(numbers))]
