"""Pools of agents, and which of them a scenario's needs are for. Pure.

Buildkite gives a job to an agent that has each of the job's tags with exactly that value, so "at least 130 GiB" cannot
be asked of it: the smallest pool that will do is chosen here, and its tags are what is asked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.scenario import Scenario

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_GPUS = re.compile(r"gpu-(\d+)")
_FACTS = ("gpus", "gpu-memory-gib", "node-class", "jobs")
FORM = "write NAME or NAME:gpus=8,gpu-memory-gib=141,node-class=h200,jobs=2"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Agents that are alike."""

    name: str
    """Of their queue."""
    gpus: int
    """That one job has."""
    gpu_memory_gib: float | None = None
    """Of each GPU; None: not said, so it is taken to be enough."""
    node_class: str | None = None
    jobs: int = 1
    """That may run at once."""
    tags: tuple[tuple[str, str], ...] = ()
    """What its agents are started with, beside their queue."""

    @property
    def agents(self) -> dict[str, str]:
        return {"queue": self.name, **dict(self.tags)}

    @property
    def words(self) -> str:
        memory = f" of {self.gpu_memory_gib:g} GiB" if self.gpu_memory_gib else ""
        return f"{self.name} ({self.gpus} GPU{'' if self.gpus == 1 else 's'}{memory})"

    def serves(self, scenario: Scenario) -> bool:
        enough = self.gpu_memory_gib is None or self.gpu_memory_gib >= (scenario.needs.gpu_memory_gib or 0)
        return self.gpus >= (scenario.needs.gpus or 0) and enough


def parse(word: str) -> Pool:
    """`cpu`, `gpu-8`, or `NAME:gpus=8,gpu-memory-gib=141,node-class=h200,jobs=2`.

    The name `gpu-8` says its GPUs itself. What is written behind a colon is a tag of the agents too, `jobs` excepted.

    Raises:
        UsageError: another form, an unknown fact (with a suggestion), or a value that cannot be.
    """
    name, colon, rest = word.partition(":")
    facts = _facts(rest, word) if colon else {}
    named = _GPUS.fullmatch(name)
    if not _NAME.fullmatch(name) or not (named or name == "cpu" or "gpus" in facts):
        raise UsageError(f"--pool {word}: it is not said how many GPUs this pool has", fix=FORM)
    gpus = _whole(facts["gpus"], word, least=0) if "gpus" in facts else int(named[1]) if named else 0
    return Pool(
        name=name,
        gpus=gpus,
        gpu_memory_gib=_number(facts["gpu-memory-gib"], word) if "gpu-memory-gib" in facts else None,
        node_class=facts.get("node-class"),
        jobs=_whole(facts.get("jobs", "1"), word, least=1),
        tags=tuple((fact, value) for fact, value in facts.items() if fact != "jobs"),
    )


def choose(scenario: Scenario, pools: Sequence[Pool]) -> Pool:
    """The smallest pool that has what a scenario needs; of equals the first.

    Raises:
        UsageError: none has.
    """
    fitting = [pool for pool in pools if pool.serves(scenario)]
    if not fitting:
        there = ", ".join(pool.words for pool in pools)
        raise UsageError(
            f"no pool has what {scenario.title} needs, {scenario.needs.words}: there are {there}",
            fix=f"name one that has with --pool: {FORM}",
        )
    return min(fitting, key=lambda pool: (pool.gpus, pool.gpu_memory_gib or math.inf))


def _facts(text: str, word: str) -> Mapping[str, str]:
    from harness.scenario.problems import did_you_mean  # noqa: PLC0415 - only where something is wrong

    facts: dict[str, str] = {}
    for part in text.split(","):
        fact, equals, value = part.partition("=")
        if fact not in _FACTS:
            raise UsageError(f"--pool {word}: unknown fact `{fact}`{did_you_mean(fact, _FACTS)}", fix=FORM)
        if not equals or not value or fact in facts:
            what = "is said twice" if fact in facts else "has no value"
            raise UsageError(f"--pool {word}: `{fact}` {what}", fix=FORM)
        facts[fact] = value
    return facts


def _whole(text: str, word: str, *, least: int) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise UsageError(f"--pool {word}: {text} is not a whole number of at least {least}", fix=FORM)
    return int(text)


def _number(text: str, word: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"--pool {word}: {text} is not a number above 0", fix=FORM)
    return value


DEFAULT = tuple(map(parse, ("cpu", "gpu-1", "gpu-8")))
