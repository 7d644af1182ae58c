"""What a server said it chose: every value in order, and where its ranks chose differently. Pure.

The target's attention back end and the drafter's are two values of one choice. Most choices are said by one rank for
all; ranks that say the same add nothing, and one that says less has died or logs once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator

from harness.loglines import LogLine
from harness.runtimes.base import Runtime

RANK = re.compile(r"(\w*Worker|EngineCore)[_-](\w*\d)")
"""A process that is one of several of its kind: `Worker_TP0`, `EngineCore_DP1`."""


def _several(value: Any) -> Any:
    """Records of the first weeks have one value of each choice, as a bare string."""
    if not isinstance(value, Mapping):
        return value
    return {name: (one,) if isinstance(one, str) else one for name, one in value.items()}


Choices = Annotated[Mapping[str, tuple[str, ...]], BeforeValidator(_several)]
"""By the name of the choice all its values, in the order in which they were said, each once."""
Uneven = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Choices that ranks made differently: by the name of the choice, by process."""


def _same(text: str) -> str:
    return text


class Listener:
    """Hears what one server says it chose."""

    def __init__(self, runtime: Runtime, *, masked: Callable[[str], str] = _same) -> None:
        self._rules, self._masked = runtime.choices, masked
        self._said: dict[str, list[str]] = defaultdict(list)
        self._by_process: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._names: dict[str, str] = {}

    def look(self, line: LogLine) -> None:
        for rule in self._rules:
            if found := rule.read(line.text):
                value = self._masked(found)
                _add(self._said[rule.name], value)
                if line.process:
                    _add(self._by_process[rule.name][line.pid or line.process], value)
        if line.process and RANK.fullmatch(line.process):
            self._names[line.pid or line.process] = line.process  # before it knew its rank it was only a `Worker`

    @property
    def choices(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(values) for name, values in self._said.items()}

    @property
    def uneven(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """Of ranks of one kind: choices of which two have values that the other has not."""
        found = {name: self._differing(said) for name, said in self._by_process.items()}
        return {name: ranks for name, ranks in found.items() if ranks}

    def _differing(self, said: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
        kinds: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
        for pid, values in said.items():
            if rank := RANK.fullmatch(self._names.get(pid, "")):
                kinds[rank[1]][rank[0]] = tuple(values)
        apart = [ranks for ranks in kinds.values() if not _nested(ranks.values())]
        return {rank: values for ranks in apart for rank, values in sorted(ranks.items())}


def _add(values: list[str], value: str) -> None:
    if value not in values:
        values.append(value)


def _nested(sides: Iterable[tuple[str, ...]]) -> bool:
    """Whether of any two sets one holds the other."""
    by_size = sorted((set(side) for side in sides), key=len)
    return all(smaller <= larger for smaller, larger in pairwise(by_size))
