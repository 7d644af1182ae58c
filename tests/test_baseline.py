"""Baselines: the rule, its rates by simulation, the history file, the check and the commands."""

import json
import math
import random
import sqlite3
import threading
from dataclasses import replace

import pytest
import runs
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness import cli
from harness.baseline.history import History
from harness.baseline.judgement import FEWEST, WINDOW, normal
from harness.baseline.samples import counts, question, samples
from harness.checks.base import CheckResult
from harness.checks.startup_time import StartupTimeParams, judge
from harness.errors import NodeError
from harness.record import load
from harness.timeline import Phase, Timeline


def timeline(ready, capture=5.0):
    phases = (
        Phase(name="spawn", occurrence=1, start=0.0, end=ready - capture, completed=True),
        Phase(name="capture", occurrence=1, start=ready - capture, end=ready, completed=True),
        Phase(name="checks", occurrence=1, start=ready, end=ready + 30, completed=True),
    )
    return Timeline(phases=phases, ready=ready)


def night(number, ready=20.0, **changes):
    made = runs.passed(id=f"run-{number:03}", started=f"2026-11-01T00:{number:02}:00.000+00:00", **changes)
    return replace(made, timeline=changes.get("timeline", timeline(ready)))


# --- the rule


def test_few_values_say_nothing():
    assert normal([20.0] * (FEWEST - 1)) is None
    assert normal([20.0] * FEWEST).count == FEWEST


def test_equal_values_leave_room_for_a_little_noise():
    found = normal([20.0] * 5)
    assert (found.median, found.spread, found.limit) == (20.0, 0.0, pytest.approx(20.6))


def test_the_spread_is_the_median_pairwise_difference():
    found = normal([10.0, 11.0, 12.0, 13.0, 14.0])  # differences: four of 1, three of 2, two of 3, one of 4
    assert (found.median, found.spread) == (12.0, pytest.approx(2 * 1.0483))


def test_only_the_last_values_count():
    assert normal([99.0] * 50 + [20.0] * WINDOW).median == 20.0


@given(st.lists(st.floats(1, 1e4), min_size=FEWEST, max_size=40), st.floats(0.1, 10))
def test_the_unit_does_not_matter_and_the_limit_is_above_the_median(values, factor):
    found, scaled = normal(values), normal([value * factor for value in values])
    assert found.limit > found.median
    assert scaled.limit == pytest.approx(found.limit * factor, rel=1e-6)


@given(st.lists(st.floats(90, 110), min_size=15, max_size=20), st.floats(1e5, 1e9))
def test_two_absurd_values_do_not_move_the_limit_far(values, absurd):
    """Of 15 values, two are 13 %: a third of the pairwise differences."""
    assert normal([absurd, absurd, *values[2:]]).limit < 110 + 5.0 * 1.0483 * 21


NOISE = {
    "normal": lambda rng: rng.gauss(0, 1),
    "log-normal": lambda rng: math.exp(rng.gauss(0, 0.35)) / 0.37,
    "Student's t": lambda rng: rng.gauss(0, 1) / math.sqrt(rng.gammavariate(2.5, 2) / 5),
}


@pytest.mark.parametrize("shape", NOISE)
@pytest.mark.parametrize("count", [5, 10, 20])
def test_flat_noise_alarms_in_less_than_one_night_of_a_hundred(shape, count):
    """Seeded, so that it says the same every time; the whole table is benchmarks/baseline_alarms.py."""
    rng, nights = random.Random(count), 4000
    alarms = 0
    for _ in range(nights):
        *past, now = (100 + 5 * NOISE[shape](rng) for _ in range(count + 1))
        alarms += now > normal(past).limit
    assert alarms / nights <= 0.01


def test_a_run_of_a_bisection_says_nothing_of_what_is_normal():
    assert counts(runs.passed())
    assert not counts(runs.passed(probe=True))
    assert not counts(runs.passed(probe=True, accepted=True))


# --- the check


def check(ready, past, **params):
    now = samples(night(59, ready))
    before = {("", "ready"): past, ("", "capture#1"): [5.0] * len(past), ("", "spawn#1"): [r - 5 for r in past]}
    return judge(StartupTimeParams(**params), now, before)


PAST = [20.0, 20.3, 19.8, 20.1, 20.2, 19.9, 20.4, 20.0]


def test_fixed_limits_need_no_history():
    assert check(20.5, [], max="30s").outcome == "pass"
    slow = check(31.25, [], max="30s")
    assert (slow.outcome, slow.message) == ("fail", "ready after 31.2 s, 30.0 s is its limit")
    phase = check(20.5, PAST, max_phase={"capture": "4s"})
    assert (phase.outcome, phase.message) == ("fail", "capture#1 took 5.0 s, 4.0 s is its limit")
    first = phase.measurements[0]
    assert (first.name, first.value, first.limit, first.ok) == ("capture#1", 5.0, 4.0, False)
    assert check(20.5, PAST, max_phase={"capture": "6s", "weights": "1s"}).outcome == "pass"
    both = check(99.0, PAST, max="30s")
    assert both.message.startswith("ready after 99.0 s, 30.0 s is its limit; ready after 99.0 s, at most")


def test_a_limit_for_a_phase_that_there_is_not_is_refused():
    with pytest.raises(ValidationError):
        StartupTimeParams(max_phase={"wieghts": "1s"})


def test_a_usual_start_passes():
    result = check(20.5, PAST)
    assert (result.outcome, result.message) == ("pass", "ready after 20.5 s")
    assert {m.name: m.value for m in result.measurements} == {
        "time_to_ready": 20.5, "history": 8, "median": 20.05, "spread": 0.21,
    }  # fmt: skip


def test_a_slow_start_fails_and_names_the_phase_that_grew():
    result = check(26.0, PAST)
    assert result.outcome == "fail"
    assert result.message == "ready after 26.0 s, at most 21.3 s is normal (median 20.1 s)"
    assert {m.name: m.value for m in result.measurements}["grew_most"] == "spawn#1 by 5.9 s"
    assert [m.name for m in result.measurements if not m.ok] == ["time_to_ready"]


def test_faster_is_no_failure():
    assert check(11.0, PAST).outcome == "pass"


def test_a_short_history_is_said_so():
    result = check(99.0, PAST[:4])
    assert (result.outcome, result.message) == (
        "not_tested", "nothing to compare with yet: the history has 4 of 5 runs",
    )  # fmt: skip
    assert check(99.0, PAST, fewest=10).outcome == "not_tested"


def test_a_fixed_limit_holds_however_noisy_the_history_is():
    noisy = [20.0, 40.0, 25.0, 30.0, 22.0, 60.0]
    assert check(45.0, noisy).outcome == "pass"
    assert check(45.0, noisy, max_slowdown=1.5).outcome == "fail"


def test_cold_and_warm_starts_are_held_against_their_own_kind():
    run = runs.several()
    cold = replace(run.others[0], timeline=timeline(60.0))
    now = samples(replace(run, others=(cold, run.others[1]), timeline=timeline(30.0)))
    assert {sample.start for sample in now} == {"cold", "warm"}, "the server to compare with is another question"
    past = {("cold", "ready"): [60.0] * 6, ("warm", "ready"): [20.0] * 6}
    result = judge(StartupTimeParams(), now, past)
    assert result.message == "warm start: ready after 30.0 s, at most 20.6 s is normal (median 20.0 s)"
    assert [m.name for m in result.measurements if not m.ok] == ["time_to_ready_warm"]


# --- the history


@pytest.fixture
def history(tmp_path):
    return History(tmp_path / "deep" / "history.sqlite")


def past(history, run):
    return history.past(run).get(("", "ready"))


def test_what_is_fed_comes_back_in_order_and_once(history):
    for number in (3, 1, 2, 1):
        assert history.feed(night(number, 20.0 + number))
    assert past(history, night(50)) == [21.0, 22.0, 23.0]
    assert past(history, night(3)) == [21.0, 22.0], "nothing of the run itself, nor of later ones"
    assert history.past(night(50))[("", "capture#1")] == [5.0, 5.0, 5.0]
    assert ("", "checks#1") not in history.past(night(50)), "what comes after ready is no start-up"


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "FAIL"}, {"verdict": "ERROR"}, {"verdict": "SKIP"}, {"state": "interrupted"},
        {"under": ("edit of F in FILE",)},
    ],
)  # fmt: skip
def test_what_says_nothing_of_what_is_normal(history, changes):
    assert not history.feed(night(1, **changes))
    assert past(history, night(50)) is None


def test_never_across_classes_of_nodes_or_questions(history):
    history.feed(night(1))
    assert past(history, night(50, node_class="h200")) is None
    other = {**runs.passed().resolved, "serve": {"enforce-eager": True}}
    assert past(history, night(50, resolved=other)) is None


def test_another_build_another_limit_and_another_checkout_ask_the_same():
    run = runs.passed(resolved={"model": "/home/a/harness/scenarios/models/tiny_lm", "checks": {"warmup": {}}})
    moved = replace(run, resolved={"model": "/srv/b/models/tiny_lm", "checks": {}}, build="release:0.31.0", version="x")
    assert question(run) == question(moved)
    assert question(run) != question(replace(run, resolved={"model": "/srv/b/models/tiny_chat"}))
    assert question(run) != question(replace(run, variant="mini"))


def test_an_accepted_run_begins_a_new_normal(history):
    for number in range(6):
        history.feed(night(number, 20.0))
    history.feed(night(7, 30.0, verdict="FAIL", accepted=True))
    history.feed(night(8, 31.0))
    history.feed(night(9, 21.0, node_class="h200"))
    assert past(history, night(50)) == [30.0, 31.0]


def test_many_write_at_once(history):
    threads = [threading.Thread(target=lambda n=n: history.feed(night(n))) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(past(history, night(50))) == 12


def test_a_file_that_is_none_of_ours_is_left_as_it_is(tmp_path):
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"something else" * 100)
    with pytest.raises(NodeError, match="cannot be used: file is not a database"):
        History(broken).feed(night(1))
    assert broken.read_bytes() == b"something else" * 100
    newer = tmp_path / "newer.sqlite"
    with sqlite3.connect(newer) as db:
        db.execute("PRAGMA user_version = 7")
    with pytest.raises(NodeError, match="has schema 7, this harness reads 1"):
        History(newer).lines()
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE mine (x)")
    with pytest.raises(NodeError, match="has schema 0"):
        History(foreign).lines()


# --- the commands


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_HISTORY", str(tmp_path / "history.sqlite"))
    for number in range(6):
        runs.write(night(number, 20.0 + number / 10), tmp_path / "reports")
    return tmp_path


def test_rebuild_and_show(here, capsys):
    (here / "reports" / "junk").mkdir()
    (here / "reports" / "junk" / "run.json").write_text("{}")
    assert cli.main(["baseline", "rebuild", str(here / "reports")]) == 0
    said = capsys.readouterr().out
    assert "passed over: " in said
    assert f"6 runs fed into {here / 'history.sqlite'}, 1 that say nothing of what is normal" in said
    assert cli.main(["baseline", "show"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["scenario", "node", "start", "question", "runs", "median", "s", "spread", "limit", "last"]
    assert row.split()[:3] == ["tiny_lm", "cpu", "—"]
    assert row.split()[4:6] == ["6", "20.25"]
    assert cli.main(["baseline", "show", "--json", "tiny_lm"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["baselines"]
    assert (found["scenario"], found["runs"], found["last"]) == ("tiny_lm", 6, 20.5)


def test_show_of_nothing_and_of_what_nobody_knows(here, capsys):
    assert cli.main(["baseline", "show"]) == 0
    assert "is empty: runs that pass are added to it" in capsys.readouterr().out
    assert cli.main(["baseline", "show", "tiny_ml"]) == 2
    assert "nothing is known of tiny_ml" in capsys.readouterr().err


def accept(folder, word="accept"):
    return cli.main(["baseline", word, str(folder)])


def test_of_accepted_runs_the_newest_counts_and_an_older_one_is_refused_with_words(here, capsys):
    cli.main(["baseline", "rebuild", str(here / "reports")])
    capsys.readouterr()
    assert accept(here / "reports" / "run-004") == 0
    assert past(History(), night(50)) == [20.4, 20.5]
    capsys.readouterr()
    assert accept(here / "reports" / "run-002") == 2
    said = capsys.readouterr().err
    assert "run-002/run.json cannot be accepted: what is normal begins with a newer run, run-004, that was" in said
    assert "harness baseline revoke" in said
    assert not load(here / "reports" / "run-002").accepted, "nothing has changed"
    assert past(History(), night(50)) == [20.4, 20.5]
    assert accept(here / "reports" / "run-004") == 0, "once more is the same"
    assert accept(here / "reports" / "run-005") == 0, "a newer one is a newer normal"
    assert past(History(), night(50)) == [20.5]


def test_an_acceptance_can_be_taken_back(here, capsys):
    cli.main(["baseline", "rebuild", str(here / "reports")])
    slow = CheckResult(name="startup_time", outcome="fail", message="ready after 30.0 s")
    folder = runs.write(night(7, 30.0, verdict="FAIL", checks=(slow,)), here / "reports")
    accept(here / "reports" / "run-003")
    accept(folder)
    assert past(History(), night(50)) == [30.0]
    capsys.readouterr()
    assert accept(folder, "revoke") == 0
    assert capsys.readouterr().out == (
        "tiny_lm on cpu: taken back; runs since 2026-11-01T00:03:00.000+00:00 count, as run-003 was accepted\n"
    )
    assert not load(folder).accepted
    assert past(History(), night(50)) == [20.3, 20.4, 20.5]
    assert accept(here / "reports" / "run-003", "revoke") == 0
    assert capsys.readouterr().out == "tiny_lm on cpu: taken back; all runs that passed count\n"
    assert past(History(), night(50)) == [20.0, 20.1, 20.2, 20.3, 20.4, 20.5]
    assert accept(here / "reports" / "run-002") == 0, "an older one may begin it now"
    (here / "history.sqlite").unlink()
    cli.main(["baseline", "rebuild", str(here / "reports")])
    assert past(History(), night(50)) == [20.2, 20.3, 20.4, 20.5], "a history that is built again says the same"


@pytest.mark.parametrize("ready", [0.0, -3.0, math.inf, math.nan])
def test_a_time_that_is_none_is_neither_accepted_nor_fed(here, capsys, ready):
    folder = runs.write(replace(runs.passed(), timeline=Timeline(ready=ready)), here / "reports")
    assert accept(folder) == 2
    assert f"cannot be accepted: no server takes {ready:g} s to be ready" in capsys.readouterr().err
    assert not load(folder).accepted
    assert cli.main(["baseline", "rebuild", str(here / "reports")]) == 0
    assert "6 runs fed into " in capsys.readouterr().out


def test_what_was_never_accepted_cannot_be_taken_back(here, capsys):
    assert accept(here / "reports" / "run-001", "revoke") == 2
    assert "run-001/run.json was never accepted" in capsys.readouterr().err


def test_accepting_a_run_of_several_starts_says_all_of_them(here, capsys):
    folder = runs.write(runs.several(), here / "reports")
    assert accept(folder) == 0
    said = capsys.readouterr().out
    assert "begins with this run, cold start " in said
    assert ", warm start " in said


def test_accept_is_kept_in_the_record_and_survives_a_rebuild(here, capsys):
    cli.main(["baseline", "rebuild", str(here / "reports")])
    slow = CheckResult(name="startup_time", outcome="fail", message="ready after 30.0 s")
    folder = runs.write(night(7, 30.0, verdict="FAIL", checks=(slow,)), here / "reports")
    assert cli.main(["baseline", "accept", str(folder)]) == 0
    assert "tiny_lm on cpu: what is normal begins with this run, 30.0 s to ready" in capsys.readouterr().out
    assert load(folder).accepted
    assert past(History(), night(50)) == [30.0]
    (here / "history.sqlite").unlink()
    cli.main(["baseline", "rebuild", str(here / "reports")])
    assert past(History(), night(50)) == [30.0]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (runs.failed_at_startup, "its server was never ready"),
        (runs.failed_in_check, "its verdict is FAIL"),
        (runs.interrupted, "it is interrupted"),
        (lambda: runs.passed(under=("edit of F in FILE",)), "it was made under a workaround"),
        (lambda: runs.passed(probe=True), "it is a probe of a bisection or a sweep"),
    ],
)
def test_what_cannot_be_accepted(here, capsys, made, why):
    folder = runs.write(made(), here / "other")
    assert cli.main(["baseline", "accept", str(folder)]) == 2
    assert why in capsys.readouterr().err
    assert not load(folder).accepted


def test_rebuild_of_no_folder(here, capsys):
    assert cli.main(["baseline", "rebuild", str(here / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err
