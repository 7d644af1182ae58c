"""The hand-readable pipeline: valid, and the night that it asks for has every GPU scenario of the project."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import agency
import pytest
import yaml

from harness import scenario

ROOT = Path(__file__).parents[1]
PIPELINE = yaml.safe_load((ROOT / "buildkite.yml").read_text())
STEPS = {step["key"]: step for step in PIPELINE["steps"]}


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """The steps that the nightly step uploads, and what it called."""
    folder = tmp_path_factory.mktemp("night")
    for name, text in (
        ("bin/buildkite-agent", f'#!/bin/sh\necho "$@" > {folder}/called\n'),
        ("checkout/.venv/bin/harness", f'#!/bin/sh\nexec "{sys.executable}" -m harness "$@"\n'),
    ):
        file = folder / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
        file.chmod(0o755)
    checkout = folder / "checkout"
    (checkout / "Makefile").write_text("setup:\n\ttrue\n")
    (checkout / "scenarios").symlink_to(ROOT / "scenarios")
    env = {
        **os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "HARNESS_NIGHTS": "/shared/nights.json",
    }  # fmt: skip
    command = agency.filled(STEPS["nightly"]["command"], {"HARNESS_BUILD": "release:0.33.0"})
    bash = shutil.which("bash") or "bash"
    subprocess.run([bash, "-e", "-c", command], cwd=checkout, env=env, check=True, capture_output=True)
    assert (folder / "called").read_text() == "pipeline upload nightly.yml\n"
    made = agency.filled(yaml.safe_load((checkout / "nightly.yml").read_text()), {})
    assert agency.problems(made) == []
    return made["steps"]


def test_valid_against_the_schema_of_buildkite():
    assert agency.problems(PIPELINE) == []


@pytest.mark.skipif(not agency.SCHEMA.is_file(), reason="the schema that Buildkite publishes does not lie beside it")
def test_the_schema_refuses_what_is_no_step():
    assert agency.problems({"steps": [{"key": "a", "command": 7}]}) != []


def test_checks_run_for_every_build_and_gpus_only_by_schedule():
    assert set(STEPS) == {"checks", "nightly"}
    assert STEPS["checks"]["command"] == ".ci/run"
    assert "if" not in STEPS["checks"]
    assert STEPS["nightly"]["if"] == 'build.source == "schedule"'


@pytest.mark.parametrize("key", STEPS)
def test_only_errors_of_ours_and_lost_agents_are_retried_and_nothing_is_soft(key):
    rules = [
        {name: value for name, value in rule.items() if name != "limit"} for rule in STEPS[key]["retry"]["automatic"]
    ]
    assert rules == [{"exit_status": 3}, {"exit_status": -1}, {"signal_reason": "agent_stop"}]
    assert "soft_fail" not in STEPS[key]
    assert STEPS[key]["timeout_in_minutes"] > 0


def test_every_gpu_scenario_of_the_project_is_in_the_night_and_fits_its_pool(night):
    gpus = {step["label"].partition(" · ")[0]: step["agents"]["queue"] for step in night[:-1]}
    needing = {}
    for path in scenario.available(cwd=ROOT, extra=()):
        file = scenario.load_file(path)
        made = [file.scenario(variant) for variant in (None, *file.variants)]
        needing |= {one.title: "gpu-1" if one.needs.gpus == 1 else "gpu-8" for one in made if one.needs.gpus}
    assert needing.items() <= gpus.items()
    assert gpus.keys() - needing.keys() == {"tiny-lm"}
    assert gpus["tiny-lm"] == "gpu-1"


def test_the_night_is_of_the_build_that_the_schedule_names_and_is_remembered(night):
    *runs, last = night
    assert all("--build release:0.33.0" in step["command"] for step in runs)
    words = shlex.split(last["command"].splitlines()[-1])
    assert words[words.index("--nights") + 1] == "/shared/nights.json"
    assert words[-1] == "--collect"
    assert last["agents"] == {"queue": "cpu"}
