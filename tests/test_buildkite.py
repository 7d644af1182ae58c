"""The pipeline: valid, its time-outs above what its scenarios may take, its annotate script run for real."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import runs
import yaml

from harness import launches, report, scenario

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT.parent / "shared" / "schemas" / "buildkite-pipeline.schema.json"
PIPELINE = yaml.safe_load((ROOT / "buildkite.yml").read_text())
NIGHTLY = next(step for step in PIPELINE["steps"] if step.get("key") == "nightly")
STEPS = {step["key"]: step for top in PIPELINE["steps"] for step in top.get("steps", [top])}
GPU = {key: step for key, step in STEPS.items() if key.startswith("gpu-")}
BISECT = {key: step for key, step in STEPS.items() if key.startswith("bisect-")}

ENVIRONMENT_SECONDS = 15 * 60.0
"""Project's environment and build environment, from nothing."""
REQUESTS = 10
"""Requests that one check may send, each of which may take its whole budget."""


def scenarios(step) -> list[scenario.Scenario]:
    """What the command of a step runs, once for each row of its matrix."""
    assert re.search(
        r'\.venv/bin/harness run "scenarios/\{\{matrix\}\}" --build "\$\{HARNESS_BUILD:-current\}"', step["command"]
    )
    found = [scenario.find(f"scenarios/{row}", cwd=ROOT) for row in step["matrix"]]
    return [scenario.load(ROOT / path, variant=variant) for path, variant in found]


def test_valid_against_the_schema_of_buildkite():
    if not SCHEMA.is_file():
        pytest.skip("the schema lies beside the checkout, not in it")
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(PIPELINE, json.loads(SCHEMA.read_text()))


def test_checks_run_for_every_build_and_gpus_only_by_schedule():
    assert STEPS["checks"]["command"] == ".ci/run"
    assert "if" not in STEPS["checks"]
    assert NIGHTLY["if"] == 'build.source == "schedule"'
    assert {step["key"] for step in NIGHTLY["steps"]} == {*GPU, "annotate", *BISECT}


@pytest.mark.parametrize("step", GPU.values(), ids=GPU)
def test_timeout_is_above_the_budgets(step):
    for one in scenarios(step):
        budgets = one.budgets
        checks = len(one.checks) * REQUESTS * budgets.request
        servers = len(launches.starts(one)) + len(launches.against(one))
        longest = ENVIRONMENT_SECONDS + budgets.download + servers * (budgets.startup + budgets.stop) + checks
        assert step["timeout_in_minutes"] * 60 > longest, one.title


@pytest.mark.parametrize("step", GPU.values(), ids=GPU)
def test_scenarios_fit_the_pool_of_their_queue_and_have_it_alone(step):
    gpus = int(step["agents"]["queue"].removeprefix("gpu-"))
    assert all((one.needs.gpus or 0) <= gpus for one in scenarios(step))
    assert step["concurrency"] == 1
    assert step["concurrency_group"] == f"harness/{step['agents']['queue']}"


def test_every_gpu_scenario_of_the_project_is_in_the_nightly():
    run = {(one.name, one.variant) for step in GPU.values() for one in scenarios(step)}
    needing = set()
    for path in scenario.available(cwd=ROOT, extra=()):
        file = scenario.load_file(path)
        needing |= {(file.name, v) for v in (None, *file.variants) if file.scenario(v).needs.gpus}
    assert needing <= run


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_only_errors_of_ours_and_lost_agents_are_retried_and_nothing_is_soft(step):
    rules = [(rule["exit_status"], rule["limit"]) for rule in step["retry"]["automatic"]]
    assert rules == [(3, 1), (-1, 1)]
    assert "soft_fail" not in step
    assert step["timeout_in_minutes"] > 0
    if step["key"] != "annotate":
        assert step["artifact_paths"] == ["reports/**/*"]


def test_annotation_waits_for_every_gpu_step_and_runs_after_failures():
    waits = {entry["step"]: entry["allow_failure"] for entry in STEPS["annotate"]["depends_on"]}
    assert waits == dict.fromkeys(GPU, True)


AGENT = """#!/bin/sh
case "$1" in
  artifact)
    case "$2 $3 $4 $5 $6" in
      "download reports/*/summary.md .  "|"download reports/**/* . --step gpu-1") cp -r "$ARTIFACTS/." . ;;
      *) exit 1 ;;
    esac ;;
  annotate) echo "$@" >> calls; cat >> calls ;;
esac
"""


@pytest.fixture
def agent(tmp_path: Path):
    """Run a command of the pipeline as an agent does, with a buildkite-agent that writes down its calls."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "buildkite-agent").write_text(AGENT)
    (tmp_path / "bin" / "buildkite-agent").chmod(0o755)
    (tmp_path / "job").mkdir()

    def run(command: str) -> subprocess.CompletedProcess[str]:
        shell = command.replace("$$", "$")  # as `pipeline upload` does
        env = os.environ | {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "ARTIFACTS": str(tmp_path / "artifacts"),
        }
        words = [shutil.which("bash") or "bash", "-e", "-c", shell]
        return subprocess.run(words, cwd=tmp_path / "job", env=env, capture_output=True, text=True, check=False)

    return run


def test_each_run_gets_an_annotation_in_the_colour_of_its_verdict(agent, tmp_path):
    made = {
        "a": runs.passed(),
        "b": runs.failed_at_startup(),
        "c": runs.unmet(),
        "d": runs.skipped(),
        "e": runs.killed_node(),
    }
    for name, run in made.items():
        folder = runs.write(run, tmp_path / "made" / name)
        report.render(folder)
        target = tmp_path / "artifacts" / "reports" / name
        target.mkdir(parents=True)
        shutil.copy(folder / "summary.md", target)
    done = agent(STEPS["annotate"]["command"])
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "job" / "calls").read_text()
    styles = {"a": "success", "b": "error", "c": "warning", "d": "info", "e": "warning"}
    for name, style in styles.items():
        assert f"annotate --style {style} --context reports/{name}/summary.md\n### " in calls
    assert runs.LAYER_NAMES.split(" (")[0] in calls


def test_no_summary_at_all_is_an_error_that_is_retried(agent):
    assert agent(STEPS["annotate"]["command"]).returncode == 3


@pytest.mark.parametrize("queue", ["1", "8"])
def test_a_bisection_waits_for_its_queue_and_has_its_gpus(queue):
    step, pool = BISECT[f"bisect-{queue}"], GPU[f"gpu-{queue}"]
    assert step["depends_on"] == [{"step": f"gpu-{queue}", "allow_failure": True}]
    assert (step["agents"], step["concurrency_group"]) == (pool["agents"], pool["concurrency_group"])
    assert f"--step gpu-{queue}" in step["command"]
    assert f'}}.gpu-{queue}"' in step["command"]


HARNESS = """#!/bin/sh
echo "$@" >> harness-calls
[ "$1" = report ] && exec {python} -m harness "$@"
exit 0
"""


@pytest.fixture
def night(tmp_path, agent, monkeypatch):
    """Run the bisect step on the runs of a night; gives what harness was called with."""
    monkeypatch.setenv("HARNESS_LAST_GREEN", str(tmp_path / "green.xml"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    program = tmp_path / "job" / ".venv" / "bin" / "harness"
    program.parent.mkdir(parents=True)
    program.write_text(HARNESS.format(python=sys.executable))
    program.chmod(0o755)
    (tmp_path / "job" / "Makefile").write_text("setup:\n\ttrue\n")

    def run(*made):
        for each in made:
            runs.write(each, tmp_path / "artifacts" / "reports")
        done = agent(BISECT["bisect-1"]["command"])
        assert done.returncode == 0, done.stderr
        return (tmp_path / "job" / "harness-calls").read_text().splitlines()

    return run


def test_a_red_night_is_bisected_from_the_last_green_one(night, tmp_path):
    calls = night(runs.passed(), runs.failed_at_startup())
    green = tmp_path / "green.xml.gpu-1"
    assert calls[1:] == [f"bisect --from-junit night.xml --last-green {green} --out reports"]
    assert not green.exists()


def test_a_green_night_is_what_the_next_begins_at(night, tmp_path):
    assert len(night(runs.passed())) == 1
    assert "release:0.32.0" in (tmp_path / "green.xml.gpu-1").read_text()
