"""Which servers a scenario launches, in which order, and what is asked of each. Pure.

    starts: [cold, warm]                            cold ─▶ warm ─▶ no speculation
    checks: {warmup: {}, perplexity: {},              │       │        │
             same_output: {against: no speculation}}  warmup  all      same_output, its second half

Caches of compiled code: none for `cold`; what `cold` left for `warm`; those that all runs share otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.checks.against import Against, Overrides
from harness.errors import ScenarioError
from harness.runtimes.base import Reference
from harness.scenario import Scenario
from harness.scenario.model import changes

FIRST = "warmup"
"""The check that every start makes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """One start of the scenario's own server."""

    name: str
    """`cold`, `warm`; empty for the only one of a scenario without `starts`."""
    checks: tuple[str, ...]
    last: bool

    @property
    def folder(self) -> str:
        """Where its log goes, below the run's folder: the last one's stands beside the record."""
        return "" if self.last else self.name


def starts(scenario: Scenario) -> tuple[Start, ...]:
    """The scenario's own launches. The last one is asked everything, those before only how warm they are."""
    names = scenario.starts or ("",)
    every = tuple(name for name in scenario.checks if name == FIRST)
    return tuple(
        Start(name=name, checks=tuple(scenario.checks) if name == names[-1] else every, last=name == names[-1])
        for name in names
    )


def against(scenario: Scenario) -> tuple[Against, ...]:
    """The second launches that its checks ask for, each once."""
    asked = [found for params in scenario.checks.values() if (found := getattr(params, "against", None)) is not None]
    return tuple(each for at, each in enumerate(asked) if each not in asked[:at])


def label(other: Against | Mapping[str, Any]) -> str:
    """Its name in reports: the words, or what the overrides change; values of variables stay out."""
    if isinstance(other, str):
        return other
    given = other if isinstance(other, Overrides) else Overrides.model_validate(other)
    parts = [f"build {given.build}"] if given.build else []
    return ", ".join([*parts, *([changes(given.serve, given.env)] if given.serve or given.env else [])])


def case(name: str, launch: str) -> str:
    """What was found of which server: `warmup[cold]`; without brackets where there is only one."""
    return f"{name}[{launch}]" if launch else name


def second(scenario: Scenario, other: Against, known: Mapping[str, Reference]) -> Scenario:
    """The scenario of a second launch: the same server but for what it is held against.

    `scenario` has its `when` rules applied for the build of that launch.

    Raises:
        ScenarioError: nothing would be different, or the GPUs no longer add up.
    """
    overrides = Overrides(serve=dict(known[other].serve)) if isinstance(other, str) else other
    changed = scenario.overlaid(overrides.serve, overrides.env, why=f"against {label(other)}")
    if not overrides.build and (changed.serve, changed.env) == (scenario.serve, scenario.env):
        raise ScenarioError(
            f"{scenario.path}: the launch against `{label(other)}` would be the same as the scenario's own",
            fix="compare with something that differs, or take the check out of this variant (`null`)",
        )
    return replace(changed, subject=(), expect=None)
