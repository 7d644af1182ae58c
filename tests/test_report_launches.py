"""Reports of runs that launched several servers: a case for each start, phases side by side, the right log."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import runs

from harness import cli, report
from harness.checks.base import CheckResult
from harness.report import junit, summary
from harness.report.cases import cases
from harness.timeline import Timeline
from harness.view import closing

ALL = [
    "startup[cold]", "warmup[cold]", "startup[warm]", "warmup[warm]", "perplexity", "startup[no speculation]",
    "same_output",
]  # fmt: skip


def kinds(run):
    return {case.name: case.kind for case in cases(run)}


def test_every_server_has_a_startup_in_the_order_in_which_they_ran():
    assert kinds(runs.several()) == dict.fromkeys(ALL, "pass")


def test_names_are_the_same_where_the_cold_start_dies():
    cold = runs.failed_at_startup(resolved=runs.several().resolved, launch="cold", log="cold/server.log")
    assert list(kinds(cold)) == ALL
    assert kinds(cold) == {**dict.fromkeys(ALL, "skipped"), "startup[cold]": "failure"}


def test_names_are_the_same_where_the_second_server_dies():
    whole = runs.several()
    own = replace(whole.launched, launch="warm")
    dead = runs.failed_at_startup(
        resolved=whole.resolved, launch="no speculation", log="against-1/server.log", others=(whole.others[0], own),
        checks=(*whole.checks[:3], CheckResult(name="same_output", outcome="not_tested", message="not run: x")),
    )  # fmt: skip
    assert kinds(dead) == {
        **dict.fromkeys(ALL, "pass"), "startup[no speculation]": "failure", "same_output": "skipped",
    }  # fmt: skip


def test_a_server_of_another_build_has_the_packages_that_differ_beside_it(tmp_path):
    whole = runs.several()
    other = replace(
        whole.others[1], other_build="release:0.31.0 (0.31.0)", differing=("numpy 2.2.0 → 2.1.0", "b 1 → 2")
    )
    text = summary.render(replace(whole, others=(whole.others[0], other)), tmp_path)
    assert "no speculation: other packages: numpy 2.2.0 → 2.1.0, b 1 → 2" in text
    assert "other packages" not in summary.render(whole, tmp_path)


def test_a_difference_is_the_place_of_the_check():
    whole = runs.several()
    bad = replace(whole.checks[-1], outcome="fail", message="first divergence at token 7")
    failed = replace(
        whole, verdict="FAIL", blame="product", checks=(*whole.checks[:-1], bad),
        signature=replace(runs.ATTRIBUTE_ERROR, kind="check_failed"),
    )  # fmt: skip
    assert kinds(failed) == {**dict.fromkeys(ALL, "pass"), "same_output": "failure"}


def test_equal_overrides_are_one_launch_and_others_have_names_of_their_own():
    checks = {
        "same_output": {"against": {"serve": {}, "env": {"X": "***"}, "build": None}},
        "spec_decode": {"against": {"serve": {}, "env": {"X": "***"}, "build": None}},
        "perplexity": {"max": 1, "against": None},
    }
    asked = runs.passed(resolved={"checks": checks, "starts": []}, checks=())
    assert list(kinds(asked)) == ["startup", "perplexity", "startup[env.X set]", "same_output", "spec_decode"]


def test_the_summary_sets_phases_side_by_side(tmp_path):
    run = runs.several()
    slow = replace(run.others[0], timeline=Timeline(phases=runs.STARTED.phases[:2]))
    text = summary.render(replace(run, others=(slow, run.others[1])), runs.write(run, tmp_path))
    assert "| seconds of | cold | warm | no speculation |" in text
    assert "| config#1 | 6.5 | 6.5 | 6.5 |" in text
    assert "| capture#1 |  | 4.8 | 4.8 |" in text
    assert "| **ready after** | never | **20.1** | **20.1** |" in text
    assert "cold: Stopped in 0.4 s; no process left." in text


def test_the_log_is_that_of_the_server_that_failed(tmp_path):
    run = runs.failed_at_startup(launch="cold", log="cold/server.log", resolved=runs.several().resolved)
    folder = runs.write(run, tmp_path, log=b"another server\n")
    (folder / "cold").mkdir()
    (folder / "cold" / "server.log").write_bytes(runs.crash_log())
    report.render(folder)
    for name in ("junit.xml", "summary.md"):
        text = (folder / name).read_text()
        assert runs.LAYER_NAMES.split(":")[1][:20] in text
        assert "another server" not in text
    assert "cold/server.log" in (folder / "summary.md").read_text()


def test_junit_has_the_times_of_every_server(tmp_path):
    text = junit.render(runs.several(), runs.write(runs.several(), tmp_path))
    for name in ("ready[cold]", "ready[warm]", "ready[no speculation]", "phase[cold].config#1"):
        assert f'name="{name}"' in text


def test_the_closing_words_name_the_servers(tmp_path):
    words = closing(runs.several(), tmp_path)
    assert "  phases (s)   cold: spawn 2.5 · config 6.5" in words
    assert "  phases (s)   warm: spawn 2.5" in words
    assert "  warmup[cold] pass: first 2.1 s" in words


def test_a_check_whose_name_begins_as_a_startup_does_is_a_check():
    """The power went before `startup_time` was judged: that is the place, and no case of its own beside it."""
    checks = {"warmup": {}, "perplexity": {}, "startup_time": {}}
    cut = runs.interrupted(resolved={"checks": checks}, checks=runs.passed().checks)
    assert kinds(cut) == {"startup": "pass", "warmup": "pass", "perplexity": "pass", "startup_time": "error"}


@pytest.mark.parametrize(
    ("resolved", "said"),
    [
        ({"starts": 5}, "`resolved.starts` is no list of names"),
        ({"starts": "cold"}, "`resolved.starts` is no list of names"),
        ({"starts": [["cold"]]}, "`resolved.starts` is no list of names"),
        ({"checks": ["warmup"]}, "`resolved.checks` is no mapping"),
        ({"checks": {"warmup": 3}}, "`resolved.checks.warmup` is no mapping"),
        ({"checks": {"same_output": {"against": 3}}}, "`resolved.checks.same_output.against` is no second launch"),
        (
            {"checks": {"same_output": {"against": {"x": 1}}}},
            "`resolved.checks.same_output.against` is no second launch",
        ),
    ],
)
@pytest.mark.parametrize("command", ["report", "baseline accept", "baseline rebuild"])
def test_an_edited_record_of_another_shape_is_refused_with_words(tmp_path, capsys, command, resolved, said):
    folder = runs.write(runs.passed(), tmp_path / "reports")
    record = json.loads((folder / "run.json").read_text())
    record["resolved"].update(resolved)
    (folder / "run.json").write_text(json.dumps(record))
    code = cli.main([*command.split(), str(folder if command != "baseline rebuild" else tmp_path)])
    words = "".join(capsys.readouterr())
    if "against" in said and command != "report":
        assert code == 0, "what it compares with plays no part in what is normal"
        return
    assert code == (0 if command == "baseline rebuild" else 2)
    assert said in words


def test_two_launches_that_differ_in_a_secret_read_the_same_in_a_record_and_are_both_shown():
    run = runs.several()
    names = ("env.X_TOKEN set", "env.X_TOKEN set #2")
    checks = {name: {"against": {"env": {"X_TOKEN": "***"}}} for name in ("same_output", "spec_decode")}
    others = tuple(replace(run.others[1], launch=name) for name in names)
    done = replace(run, resolved={**run.resolved, "starts": [], "checks": checks}, launch="", others=others, checks=())
    assert [case.name for case in cases(done)][-1] == "startup[env.X_TOKEN set #2]"
    assert summary.render(done, Path("/nowhere"))
