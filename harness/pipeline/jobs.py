"""What is to be run where: each scenario, variant and build as one job. Pure, but for reading the scenarios."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness import launches
from harness.build import Build
from harness.errors import UsageError
from harness.pipeline import pools
from harness.pipeline.pools import Pool
from harness.scenario import Scenario

ENVIRONMENT_SECONDS = 15 * 60.0
"""The project's environment and the build's, from nothing."""
REQUESTS = 10
"""Requests that one check may send, each of which may take its whole budget."""
MOST = 400
"""Jobs of one upload; Buildkite takes 500 (buildkite.com/docs/pipelines/configure/dynamic-pipelines)."""
SHOWN = 40
"""Longest readable part of a key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One scenario on one build."""

    scenario: Scenario
    build: Build
    pool: Pool

    @property
    def key(self) -> str:
        """Of its step: letters, digits, dashes and underscores, and the same each night."""
        return slug("run", self.scenario.label, str(self.build))

    @property
    def minutes(self) -> int:
        """After which the job is ended: above the sum of the scenario's budgets, so that a hang ends in a report."""
        return math.ceil(longest(self.scenario) / 60) + 1


def slug(lead: str, *words: str) -> str:
    """`run-tiny_lm-eager-release-0-30-0-1f2e3d4c`: readable, and different for different words."""
    shown = re.sub(r"[^A-Za-z0-9_]+", "-", "-".join(words)).strip("-")[:SHOWN]
    return f"{lead}-{shown}-{hashlib.sha256(repr(words).encode()).hexdigest()[:8]}"


def longest(scenario: Scenario) -> float:
    """Seconds that a run may take if every part of it takes its whole budget."""
    budgets = scenario.budgets
    servers = len(launches.starts(scenario)) + len(launches.against(scenario))
    checks = len(scenario.checks) * REQUESTS * budgets.request
    return ENVIRONMENT_SECONDS + budgets.download + servers * (budgets.startup + budgets.stop) + checks


def jobs(scenarios: Sequence[Scenario], builds: Sequence[Build], known: Sequence[Pool]) -> tuple[Job, ...]:
    """Every scenario on every build, those of one scenario beside each other, its builds in their order.

    Raises:
        UsageError: no pool has what one needs, one is named twice, or there are more than an upload may have.
    """
    made = tuple(_jobs(scenarios, builds, known))
    twice = {job.key for job in made if sum(other.key == job.key for other in made) > 1}
    if twice:
        first = next(job for job in made if job.key in twice)
        raise UsageError(f"{first.scenario.title} on {first.build} is named twice", fix="name each once")
    if len(made) > MOST:
        raise UsageError(
            f"{len(made)} jobs, but one pipeline may have {MOST}", fix="print several pipelines, a part of them each"
        )
    return made


def _jobs(scenarios: Sequence[Scenario], builds: Sequence[Build], known: Sequence[Pool]) -> Iterator[Job]:
    for scenario in scenarios:
        pool = pools.choose(scenario, known)
        yield from (Job(scenario=scenario, build=build, pool=pool) for build in builds)
