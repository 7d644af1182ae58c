"""The steps of a pipeline, as Buildkite's schema has them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import run
from harness.pipeline.jobs import Job, slug
from harness.pipeline.pools import Pool

Step = dict[str, Any]

KNOWN_EXIT = 10
"""How a run of a known failure ends: the step is shown as failed softly, and the night is not red for it."""
REPORTS, COLLECTED = "reports", "collected"
BISECT_MINUTES = 1400
COLLECT_MINUTES = 30
RETRY: Mapping[str, Any] = {
    "automatic": [
        {"exit_status": 3, "limit": 1},  # an error of ours or of the node
        {"exit_status": -1, "limit": 1},  # the agent was lost, or never began
        {"signal_reason": "agent_stop", "limit": 1},  # the agent was told to end, and ended the job with it
    ]
}
"""Nothing else is tried again: a failure that comes and goes is a finding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shop:
    """How harness is called in a job."""

    setup: str = "make setup"
    """What comes before it; empty: nothing."""
    program: str = ".venv/bin/harness"
    sets: tuple[str, ...] = ()
    collector: str = ""
    """Version of Buildkite's plugin that sends JUnit to its Test Engine; empty: it is not sent."""

    def lines(self, *lines: str) -> str:
        first = [f"{self.setup} || exit 3"] if self.setup else []
        return "\n".join([*first, *lines]) + "\n"


def run_step(job: Job, shop: Shop) -> Step:
    handling = run.Handling(expected=True)
    words = run.command(job.scenario, job.build, shop.sets, handling).removeprefix("harness")
    return {
        "label": f"{job.scenario.title} · {job.build}",
        "key": job.key,
        "command": shop.lines(f"{shop.program}{words} --known-exit {KNOWN_EXIT} --out {REPORTS}"),
        **_place(job.pool),
        "timeout_in_minutes": job.minutes,
        "artifact_paths": [f"{REPORTS}/**/*"],
        "soft_fail": [{"exit_status": KNOWN_EXIT}],
        "retry": dict(RETRY),
    }


def collect_step(jobs: Sequence[Job], line: Sequence[str], shop: Shop, agents: Mapping[str, str]) -> Step:
    """The step that waits for all of them, however they end; `line` is the command line that printed the pipeline."""
    plugin = f"test-collector#{shop.collector}"
    plugins = [{plugin: {"files": f"{COLLECTED}/junit/*.xml", "format": "junit"}}]
    return {
        "label": ":memo: collect",
        "key": slug("collect", *(job.key for job in jobs)),
        "depends_on": [job.key for job in jobs],
        "allow_dependency_failure": True,
        "command": shop.lines(f"{shop.program} {shlex.join([*line, '--collect'])}"),
        "agents": dict(agents),
        "timeout_in_minutes": COLLECT_MINUTES,
        "artifact_paths": [f"{COLLECTED}/junit/*.xml", f"{COLLECTED}/*.md", f"{COLLECTED}/*.yml"],
        **({"plugins": plugins} if shop.collector else {}),
        "retry": dict(RETRY),
    }


def bisect_step(job: Job, words: Sequence[str], signature: str, shop: Shop) -> Step:
    """The search for what brought a failure; `words` are those of `harness bisect`.

    The run that showed it comes from its job, so that the bad end is not run again. What is found is annotated, also
    where it is only a range; that is no reason to call the build red once more.
    """
    context = slug("bisect", job.scenario.label, signature)
    return {
        "label": f":mag: {job.scenario.title} · {signature}",
        "key": slug("bisect", job.key, signature),
        "command": shop.lines(
            f"buildkite-agent artifact download '{REPORTS}/**/*' . --step {job.key} || exit 3",
            "code=0",
            f"{shop.program} {shlex.join([*words, '--out', REPORTS])} || code=$?",
            f"for found in {REPORTS}/bisect-*/bisection.md; do",
            '  [ -e "$found" ] || continue',
            '  if [ "$code" = 0 ]; then style=error; else style=warning; fi',
            f'  buildkite-agent annotate --style "$style" --context {context} < "$found" || exit 3',
            "done",
            'exit "$code"',
        ),
        **_place(job.pool),
        "timeout_in_minutes": BISECT_MINUTES,
        "artifact_paths": [f"{REPORTS}/**/*"],
        "soft_fail": [{"exit_status": 1}],
        "retry": dict(RETRY),
    }


def _place(pool: Pool) -> Step:
    return {"agents": pool.agents, "concurrency": pool.jobs, "concurrency_group": f"harness/{pool.name}"}
