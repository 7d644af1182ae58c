"""Which servers a scenario launches, in which order, and what is asked of each. Pure.

    starts: [cold, warm]                            cold ─▶ warm ─▶ no speculation
    checks: {warmup: {}, perplexity: {},              │       │        │
             same_output: {against: no speculation}}  warmup  all      same_output, its second half

Caches of compiled code: none for `cold`; what `cold` left for `warm`; those that all runs share otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

from pydantic import ValidationError

from harness.checks.against import Against, Overrides, alike
from harness.checks.base import CheckResult, Params
from harness.errors import ScenarioError, UsageError
from harness.events import Event
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
    folder: str
    """Where its log goes, below the run's folder: the last one's stands beside the record."""


def starts(scenario: Scenario) -> tuple[Start, ...]:
    """The scenario's own launches. The last one is asked everything, those before only how warm they are."""
    *before, last = scenario.starts or ("",)
    every = tuple(name for name in scenario.checks if name == FIRST)
    return (
        *(Start(name=name, checks=every, folder=name) for name in before),
        Start(name=last, checks=tuple(scenario.checks), folder=""),
    )


def against(scenario: Scenario) -> dict[str, Against]:
    """The second launches that its checks ask for, each once, by its name in reports."""
    asked = (getattr(params, "against", None) for params in scenario.checks.values())
    return _named([each for each in asked if each is not None])


def _named(asked: Sequence[Against]) -> dict[str, Against]:
    named: dict[str, Against] = {}
    for at, each in enumerate(asked):
        if each not in asked[:at]:
            names = chain([label(each)], (f"{label(each)} #{number}" for number in count(2)))
            named[next(name for name in names if name not in named)] = each
    return named


def startup(launch: str) -> str:
    """A launch as a case of a report: `startup[cold]`."""
    return f"startup[{launch}]" if launch else "startup"


def expected(resolved: Mapping[str, Any]) -> tuple[str, ...]:
    """All cases of a scenario, as it stands in a record, in the order in which they are run.

    Raises:
        UsageError: somebody edited the record, and it compares with nothing that there is.
    """
    checks = resolved.get("checks") or {}
    names: list[str] = []
    for start in resolved.get("starts") or [""]:
        names += [startup(start), *([case(FIRST, start)] if FIRST in checks else [])]
    held = {name: _read(name, params["against"]) for name, params in checks.items() if (params or {}).get("against")}
    names += [name for name in checks if name != FIRST and name not in held]
    for launch, other in _named(list(held.values())).items():
        names += [startup(launch), *(name for name, asked in held.items() if asked == other)]
    return tuple(names)


def _read(check: str, other: Any) -> Against:
    try:
        return other if isinstance(other, str) else Overrides.model_validate(other)
    except ValidationError as error:
        what = f"the record's `resolved.checks.{check}.against` is no second launch: {error.errors()[0]['msg']}"
        raise UsageError(what, fix="take the record as it was written, or run it again") from error


def compares(params: Params, known: Mapping[str, Reference]) -> str:
    """The word of `subject` that this check compares with its absence; empty for most."""
    other = getattr(params, "against", None)
    return known[other].removes if isinstance(other, str) and other in known else ""


def label(other: Against) -> str:
    """Its name in reports: the words, or what the overrides change; values of variables stay out."""
    if isinstance(other, str):
        return other
    parts = [f"build {other.build}"] if other.build else []
    return ", ".join([*parts, *([changes(other.serve, other.env)] if other.serve or other.env else [])])


def case(name: str, launch: str) -> str:
    """A check by its name in reports: with the start, where each start makes it, `warmup[cold]`."""
    return f"{name}[{launch}]" if launch and name == FIRST else name


def told(result: CheckResult) -> Event:
    """What whoever watches a run is told of a check that ended."""
    outcome = {"pass": True, "fail": False, "not_tested": None}[result.outcome]
    return Event(kind="check", text=f"{case(result.name, result.launch)}: {result.message}", ok=outcome)


def second(scenario: Scenario, other: Against, known: Mapping[str, Reference]) -> Scenario:
    """The scenario of a second launch: the same server but for what it is held against.

    `scenario` has its `when` rules applied for the build of that launch.

    Raises:
        ScenarioError: nothing would be different, or the GPUs no longer add up.
    """
    overrides = Overrides(serve=dict(known[other].serve)) if isinstance(other, str) else other
    changed = scenario.overlaid(overrides.serve, overrides.env, why=f"against {label(other)}")
    if not overrides.build and alike(changed.serve, scenario.serve) and changed.env == scenario.env:
        raise ScenarioError(
            f"{scenario.path}: the launch against `{label(other)}` would be the same as the scenario's own",
            fix="compare with something that differs, or take the check out of this variant (`null`)",
        )
    return replace(changed, subject=(), expect=None)
