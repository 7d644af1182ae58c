"""`harness pipeline`: what it prints, and a stand-in for Buildkite that carries it out, from red to culprit."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import agency
import bisecting
import pytest
import runs
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harness import cli, node
from harness.build import parse
from harness.errors import NodeError, UsageError
from harness.pipeline import collect, jobs, nights, pools, steps, text
from harness.pipeline.agent import Agent
from harness.record import KnownFailure
from harness.scenario import load

ROOT = Path(__file__).parents[1]
CHASED = "the one that is chased"
PROGRAM = f"{sys.executable} {ROOT / 'tests' / 'scripted.py'}"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """What every job finds: a scenario with a variant, its model, nothing else."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    bisecting.scenario(folder, "variants: {eager: {serve: {enforce-eager: true}}}")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'tests'}")
    return folder


def printed(capsys, *words):
    assert cli.main(["pipeline", "history.yaml", "--setup", "true", "--program", PROGRAM, *words]) == 0
    return capsys.readouterr().out


def read(said):
    made = agency.filled(yaml.safe_load(said), {})
    assert agency.problems(made) == []
    return made["steps"]


# --- what is printed


def test_a_step_for_each_scenario_variant_and_build(checkout, capsys):
    *run, last = read(printed(capsys, "--all-variants", "--build", "0.1.0", "--build", "0.2.0"))
    assert [step["label"] for step in run] == [
        "history · release:0.1.0", "history · release:0.2.0",
        "history[eager] · release:0.1.0", "history[eager] · release:0.2.0",
    ]  # fmt: skip
    assert run[3]["command"] == (
        f"true || exit 3\n{PROGRAM} run history.yaml --variant eager --build release:0.2.0 --known expected "
        "--known-exit 10 --out reports\n"
    )
    for step in run:
        assert step["artifact_paths"] == ["reports/**/*"]
        assert step["soft_fail"] == [{"exit_status": 10}]
        assert (step["agents"], step["concurrency_group"]) == ({"queue": "cpu"}, "harness/cpu")
    assert last["depends_on"] == [step["key"] for step in run]
    assert last["allow_dependency_failure"] is True
    assert last["command"].splitlines()[-1].endswith("--all-variants --build 0.1.0 --build 0.2.0 --collect")
    assert "plugins" not in last


def test_only_our_own_errors_and_lost_agents_are_tried_again(checkout, capsys):
    for step in read(printed(capsys)):
        rules = [tuple(sorted(rule.items())) for rule in step["retry"]["automatic"]]
        assert rules == [
            (("exit_status", 3), ("limit", 1)), (("exit_status", -1), ("limit", 1)),
            (("limit", 1), ("signal_reason", "agent_stop")),
        ]  # fmt: skip


def test_one_variant_overrides_and_the_plugin_of_test_engine(checkout, capsys):
    words = ["--variant", "eager", "--set", "env.PLACE=$HOME", "--test-collector", "v1.11.0"]
    run, last = read(printed(capsys, *words))
    assert "--variant eager --build current --set 'env.PLACE=$HOME'" in run["command"]
    assert "--set 'env.PLACE=$HOME'" in last["command"]
    assert last["plugins"] == [{"test-collector#v1.11.0": {"files": "collected/junit/*.xml", "format": "junit"}}]


def test_the_named_variant_is_taken_once(checkout, capsys):
    assert cli.main(["pipeline", "history.yaml[eager]", "history.yaml", "history.yaml", "--all-variants"]) == 0
    labels = [step["label"] for step in read(capsys.readouterr().out)]
    assert labels == ["history[eager] · current", "history · current", ":memo: collect"]


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc"])))
def test_what_a_step_says_arrives_as_it_was_meant(word):
    step = {"label": word, "command": f"echo {word}\nexit 1\n"}
    assert agency.filled(yaml.safe_load(text.pipeline([step], head=word)), {"HOME": "wrong"})["steps"] == [step]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--variant", "eager", "--all-variants"], "do not go together"),
        (["--variant", "nonsense"], "there is no variant `nonsense`"),
        (["--build", "nonsense:x"], "names no build"),
        (["--build", "0.1.0", "--build", "0.1.0"], "history on release:0.1.0 is named twice"),
        (["--pool", "cpu", "--pool", "cpu:gpus=0"], "two pools have one name"),
        (["--node-class", "h200"], "no pool is of class h200"),
        (["--collect"], "there is no buildkite-agent on PATH"),
    ],
)
def test_what_cannot_be_meant_is_said(checkout, capsys, monkeypatch, words, said):
    monkeypatch.setenv("PATH", str(checkout))
    assert cli.main(["pipeline", "history.yaml", *words]) == (3 if words == ["--collect"] else 2)
    assert said in capsys.readouterr().err


def test_more_jobs_than_an_upload_may_have(checkout):
    scenario = load(checkout / "history.yaml")
    builds = [parse(f"0.{at}.0") for at in range(jobs.MOST + 1)]
    assert len(jobs.jobs([scenario], builds[1:], pools.DEFAULT)) == jobs.MOST
    with pytest.raises(UsageError, match="401 jobs, but one pipeline may have 400"):
        jobs.jobs([scenario], builds, pools.DEFAULT)


# --- pools


def needing(tmp_path, gpus, memory=None):
    memory = f", gpu-memory-gib: {memory}" if memory else ""
    lines = (f"serve: {{tensor-parallel-size: {gpus}}}", f"needs: {{gpus: {gpus}{memory}}}") if gpus else ()
    return bisecting.scenario(tmp_path, *lines)


def test_the_smallest_pool_that_will_do(tmp_path):
    known = [pools.parse(word) for word in ("cpu", "gpu-8", "small:gpus=1,gpu-memory-gib=24", "gpu-1", "gpu-2:jobs=3")]
    chosen = {
        case: pools.choose(needing(tmp_path, *case), known).name
        for case in [(0,), (1,), (1, 16), (1, 80), (2,), (4, 130), (8,)]
    }
    assert list(chosen.values()) == ["cpu", "small", "small", "gpu-1", "gpu-2", "gpu-8", "gpu-8"]
    with pytest.raises(UsageError, match=r"no pool has what history needs, 16 GPUs: there are cpu \(0 GPUs\), gpu-8"):
        pools.choose(needing(tmp_path, 16), known)


def test_what_is_said_of_a_pool_is_asked_of_its_agents():
    pool = pools.parse("big:gpus=8,gpu-memory-gib=141,node-class=h200,jobs=2")
    assert pool.agents == {"queue": "big", "gpus": "8", "gpu-memory-gib": "141", "node-class": "h200"}
    assert (pool.gpus, pool.gpu_memory_gib, pool.node_class, pool.jobs) == (8, 141.0, "h200", 2)
    assert pools.parse("gpu-8").agents == {"queue": "gpu-8"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("big", "not said how many GPUs"),
        ("big:", "unknown fact ``"),
        ("big:gpu=8", "unknown fact `gpu`; did you mean `gpus`?"),
        ("big:gpus=", "`gpus` has no value"),
        ("big:gpus=1,gpus=2", "`gpus` is said twice"),
        ("big:gpus=many", "many is not a whole number of at least 0"),
        ("gpu-1:jobs=0", "0 is not a whole number of at least 1"),
        ("gpu-1:gpu-memory-gib=nan", "nan is not a number above 0"),
        ("a b:gpus=1", "not said how many GPUs"),
    ],
)
def test_a_pool_that_is_none(word, said):
    with pytest.raises(UsageError) as error:
        pools.parse(word)
    assert said in error.value.what


def test_a_job_ends_after_all_of_its_budgets(tmp_path):
    scenario = bisecting.scenario(
        tmp_path, "budgets: {download: 1m, startup: 10m, request: 1m, stop: 30s}", "checks: {warmup: {}}"
    )
    assert jobs.longest(scenario) == 15 * 60 + 60 + 600 + 30 + 10 * 60
    (job,) = jobs.jobs([scenario], [parse("0.1.0")], pools.DEFAULT)
    assert job.minutes == 38


# --- carried out


def night(tmp_path, capsys, name, bugs, *words, build, **more):
    """One night on Buildkite; `bugs` are those of the history."""
    said = {"SCRIPTED": json.dumps({"size": 8, "bugs": bugs})}
    made = agency.Build(tmp_path / name, tmp_path / "checkout", env=said, **more)
    made.run(printed(capsys, "--nights", str(tmp_path / "nights.json"), "--build", build, *words))
    return made


RED = [{"message": CHASED, "first": 3, "last": 7}]


def test_from_a_green_night_to_a_red_one_to_the_culprit_in_the_annotation(checkout, tmp_path, capsys):
    green = night(tmp_path, capsys, "monday", [], build="0.1.0")
    assert green.exits == {key: [0] for key in green.steps}
    assert not green.keys("bisect")
    assert {note["style"] for note in green.annotations.values()} == {"success"}

    red = night(tmp_path, capsys, "tuesday", RED, build="0.6.0")
    (run,), (collected,), (search,) = red.keys("run"), red.keys("collect"), red.keys("bisect")
    assert red.exits == {run: [1], collected: [0], search: [0]}, red.output
    assert list(red.steps) == [run, collected, search]
    (found,) = [note for name, note in red.annotations.items() if name.startswith("bisect-")]
    assert found["style"] == "error"
    assert found["body"].startswith(f"### release:0.3.0 is the first build with RuntimeError: {CHASED}")
    (one,) = [note for name, note in red.annotations.items() if name.startswith("run-")]
    assert (one["style"], one["body"].splitlines()[0]) == ("error", f"### FAIL · history · RuntimeError: {CHASED}")
    (every,) = [note for name, note in red.annotations.items() if name.startswith("all-")]
    assert "new since `release:0.1.0`: a bisection was added" in every["body"]
    merged = list((red.folder / "artifacts" / collected / "collected" / "junit").glob("*.xml"))
    assert [CHASED in file.read_text() for file in merged] == [True]

    again = night(tmp_path, capsys, "wednesday", RED, build="0.7.0")
    assert not again.keys("bisect")
    (every,) = [note for name, note in again.annotations.items() if name.startswith("all-")]
    assert "it was red before: no new bisection" in every["body"]


def test_the_bad_end_is_not_run_again_by_the_bisection(checkout, tmp_path, capsys):
    night(tmp_path, capsys, "monday", [], build="0.1.0")
    red = night(tmp_path, capsys, "tuesday", RED, build="0.6.0")
    (search,) = red.keys("bisect")
    records = (red.folder / "jobs" / f"{search}-0" / "reports").glob("*/run.json")
    of_the_end = [run for file in records if (run := json.loads(file.read_text()))["build"] == "release:0.6.0"]
    assert [run["probe"] for run in of_the_end] == [False]


def test_builds_of_one_night_teach_each_other(checkout, tmp_path, capsys):
    made = night(tmp_path, capsys, "once", RED, "--build", "0.5.0", build="0.2.0")
    (search,) = made.keys("bisect")
    assert "--good release:0.2.0 --bad release:0.5.0" in made.steps[search]["command"]
    (one,) = [note for name, note in made.annotations.items() if name.startswith("run-")]
    assert [line[:8] for line in one["body"].splitlines() if line.startswith("###")] == ["### PASS", "### FAIL"]
    (collected,) = made.keys("collect")
    assert len(list((made.folder / "artifacts" / collected / "collected" / "junit").glob("*.xml"))) == 2


def test_a_build_that_is_known_to_be_good_where_no_night_is(checkout, tmp_path, capsys):
    without = night(tmp_path, capsys, "one", RED, build="0.6.0")
    assert not without.keys("bisect")
    (every,) = [note for name, note in without.annotations.items() if name.startswith("all-")]
    assert "no build is known to be good" in every["body"]
    (tmp_path / "nights.json").unlink()
    assert night(tmp_path, capsys, "two", RED, "--good", "0.0.0", build="0.6.0").keys("bisect")


def test_a_range_is_annotated_too_and_is_no_second_failure(checkout, tmp_path, capsys):
    covered = [{**RED[0], "phase": "capture#2"}, {"message": "another", "first": 2, "last": 4}]
    made = night(tmp_path, capsys, "one", covered, "--good", "0.0.0", build="0.7.0")
    (search,) = made.keys("bisect")
    assert made.exits[search] == [1]
    assert made.passed(search)
    (found,) = [note for name, note in made.annotations.items() if name.startswith("bisect-")]
    assert found["style"] == "warning"
    assert "release:0.2.0" in found["body"]


def test_an_agent_that_is_lost_is_told_and_the_rest_collected(checkout, tmp_path, capsys):
    words = ["--all-variants"]
    first, *_ = read(printed(capsys, *words, "--build", "0.1.0"))
    once = night(tmp_path, capsys, "once", [], *words, build="0.1.0", lost={first["key"]: 1})
    assert once.exits[first["key"]] == [-1, 0]
    twice = night(tmp_path, capsys, "twice", [], *words, build="0.1.0", lost={first["key"]: 2})
    (collected,) = twice.keys("collect")
    assert twice.exits[first["key"]] == [-1, -1]
    assert twice.exits[collected] == [3, 3]
    styles = {note["body"].splitlines()[0]: note["style"] for note in twice.annotations.values()}
    assert styles["### ERROR · history · no record of `release:0.1.0`"] == "warning"
    assert any(line.startswith("### PASS · history\\[eager\\]") for line in styles)


def test_a_collecting_job_that_is_tried_again_uploads_nothing_twice(checkout, tmp_path, capsys):
    words = ["--all-variants", "--good", "0.0.0"]
    first, *_ = read(printed(capsys, *words, "--build", "0.6.0"))
    made = night(tmp_path, capsys, "one", RED, *words, build="0.6.0", lost={first["key"]: 2})
    (collected,) = made.keys("collect")
    assert made.exits[collected] == [3, 3]
    assert len(made.keys("bisect")) == 1
    assert [call[1:3] for call in made.calls].count(["pipeline", "upload"]) == 1


def test_a_known_failure_is_a_soft_one(checkout, tmp_path, capsys):
    made = agency.Build(
        tmp_path / "build", checkout, env={"SCRIPTED": json.dumps({"size": 8, "bugs": RED, "known": True})}
    )
    made.run(printed(capsys, "--build", "0.6.0", "--good", "0.0.0"))
    (run,), (collected,) = made.keys("run"), made.keys("collect")
    assert made.exits == {run: [10], collected: [0]}
    assert made.passed(run)
    (one,) = [note for name, note in made.annotations.items() if name.startswith("run-")]
    assert one["style"] == "info"


# --- what nights remember


def failed(**changes):
    return runs.failed_at_startup(**changes)


def test_nights_remember_what_was_green_and_what_has_been_red_since(tmp_path):
    file = tmp_path / "deep" / "nights.json"
    with nights.kept(file) as past:
        past.learn(runs.passed(variant="mini", build="current", version="0.31.0"), met_in="1")
    with nights.kept(file) as past:
        assert past.of(failed()).green == "release:0.31.0"
        assert past.is_new(failed(), met_in="2")
        past.learn(failed(), met_in="2")
        past.learn(runs.unmet(variant="mini"), met_in="2")
    with nights.kept(file) as past:
        assert past.of(failed()).green == "release:0.31.0"
        assert past.is_new(failed(), met_in="2"), "the same build, tried again"
        assert not past.is_new(failed(), met_in="3")
        assert past.is_new(failed(node_class="h200"), met_in="3"), "another class of node"
        assert past.is_new(failed(signature=replace(runs.ATTRIBUTE_ERROR, id="b" * 12)), met_in="3")
        past.learn(runs.passed(variant="mini"), met_in="3")
        assert past.is_new(failed(), met_in="4"), "green in between"


def test_what_is_known_is_not_learnt(tmp_path):
    past = nights.Nights()
    known = KnownFailure(refs=("vllm#1",), title="x")
    past.learn(failed(known=known, expected=True), met_in="1")
    assert past.of(failed()).red == {}


def test_nothing_is_written_where_something_went_wrong_or_nobody_asked(tmp_path):
    file = tmp_path / "nights.json"
    with pytest.raises(ZeroDivisionError), nights.kept(file) as past:
        past.learn(runs.passed(started=1 / 0), met_in="1")
    assert not file.exists()
    with nights.kept(None) as past:
        past.learn(runs.passed(), met_in="1")


def test_two_jobs_do_not_write_one_file(tmp_path):
    file = tmp_path / "nights.json"
    with nights.kept(file), pytest.raises(NodeError, match="is held by pid"), nights.kept(file):
        pass


def test_another_file_is_not_overwritten(tmp_path):
    file = tmp_path / "nights.json"
    for said in ("[]", "{", '{"schema": 2, "titles": {}}'):
        file.write_text(said)
        with pytest.raises(UsageError, match="is no record of nights"), nights.kept(file):
            pass


# --- what is looked for


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("release:0.1.0", "venv:/opt/vllm", "no order is known"),
        ("venv:/opt/a", "venv:/opt/b", "no order is known"),
        ("release:0.1.0", "commit:" + "a" * 40, "no order is known"),
        ("release:0.1.0", "release:0.1.0", "it comes and goes"),
    ],
)
def test_no_search_without_an_order(tmp_path, good, bad, said):
    scenario = bisecting.scenario(tmp_path)
    (job,) = jobs.jobs([scenario], [parse(bad)], pools.DEFAULT)
    step, line = collect._search(job, failed(build=bad), good, shop=steps.Shop(), asked=collect.Asked())
    assert step is None
    assert said in line


def test_a_search_goes_on_into_the_commits(tmp_path):
    (job,) = jobs.jobs([bisecting.scenario(tmp_path)], [parse("0.2.0")], pools.DEFAULT)
    asked = collect.Asked(repo=Path("/srv/vllm"))
    step, _ = collect._search(job, failed(build="release:0.2.0"), "release:0.1.0", shop=steps.Shop(), asked=asked)
    assert "--good release:0.1.0 --bad release:0.2.0 --signature 3f2a9c0d1e4b --repo /srv/vllm" in step["command"]


def test_an_agent_that_refuses_is_an_error_of_the_node(tmp_path, monkeypatch):
    program = tmp_path / "buildkite-agent"
    program.write_text("#!/bin/sh\necho 'FATAL 422 no such job' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(NodeError, match="buildkite-agent annotate --style ended with 1: FATAL 422 no such job"):
        Agent().annotate("x", style="info", context="y")
    assert Agent().download("reports/**/*", tmp_path / "into", step="a") == "FATAL 422 no such job"


def test_a_record_that_was_cut_off_is_passed_over(tmp_path):
    runs.write(runs.passed(), tmp_path)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "run.json").write_text('{"schema": 1, "id"')
    assert [run.id for run, _ in collect._records(tmp_path)] == [runs.passed().id]


def test_the_class_of_a_pool_can_be_chosen(checkout, capsys):
    words = ["--pool", "a:gpus=8,node-class=h100", "--pool", "b:gpus=8,node-class=h200", "--node-class", "h200"]
    run, _ = read(printed(capsys, *words))
    assert run["agents"] == {"queue": "b", "gpus": "8", "node-class": "h200"}
    assert node.describe().node_class  # what a run finds itself need not be called so
