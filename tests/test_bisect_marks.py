"""The mark of a run, each rule with the case that would fool a simpler one."""

from dataclasses import replace

import bisecting
import pytest
import runs
from bisecting import run, signature

from harness.bisect import marks
from harness.bisect.marks import Judged, chased, judge, reach, stop
from harness.checks.base import CheckResult
from harness.known import Known

CRASH = signature("a crash", function="crash")
OTHER = signature("another", function="other")


def bad(phase="capture#1", found=CRASH, **changes):
    return chased(run(phase, found, **changes))


def mark(made, what, **words):
    judged = judge(made, what, **words)
    return judged.mark, judged.masking


def test_a_run_that_passed_is_good_and_the_chased_failure_bad_in_whatever_phase():
    assert judge(run(), bad()) == Judged(mark="GOOD", why="passed")
    for phase in bisecting.ORDER:
        assert mark(run(phase, CRASH), bad()) == ("BAD", None)


def test_stop_is_the_first_occurrence_that_was_begun_and_not_completed():
    assert stop(run("capture#2", CRASH)) == "capture#2"
    assert stop(runs.failed_in_check()) == "perplexity"
    cold = replace(run("capture#1", CRASH), launch="cold")
    assert stop(cold) == "cold: capture#1"


def test_reach_is_what_was_completed_and_the_checks_that_were_passed():
    assert reach(run("weights#1", OTHER)) == {"spawn#1", "config#1", "workers#1"}
    assert reach(run()) == {*bisecting.ORDER, "warmup", "perplexity"}


def test_two_captures():
    """It died in the first capture: of the second, where the chased one strikes, that says nothing."""
    second = bad("capture#2")
    assert mark(run("capture#1", OTHER), second) == ("MASKED", "covered")
    assert mark(run("kv_cache#1", OTHER), second) == ("MASKED", "covered")
    assert mark(run("capture#2", OTHER), bad("capture#1")) == ("GOOD", None)


@pytest.mark.parametrize("kind", ["config_invalid", "cli_usage", "model_unsupported"])
def test_a_good_end_that_refuses(kind):
    """It never came to the place where it could have failed."""
    refusal = signature("--use-replayssm is only supported for others", kind=kind)
    assert mark(run("config#1", refusal), bad()) == ("MASKED", "refused")
    assert mark(run("weights#1", refusal), bad()) == ("MASKED", "covered")


def test_a_feature_silently_off():
    """A build that ignores the flag passes, and has not been asked anything."""
    what = bad(subject={"spec_decode": True})
    dark = run(subject={"spec_decode": False, "prefix_cache": True})
    judged = judge(dark, what)
    assert (judged.mark, judged.masking) == ("MASKED", "not exercised")
    assert "spec_decode" in judged.why
    assert mark(run(subject={"spec_decode": True}), what) == ("GOOD", None)
    later = run("capture#2", OTHER, subject={"spec_decode": False})
    assert mark(later, what) == ("MASKED", "not exercised")


def test_a_workaround_that_removes_the_subject():
    """Under it the word is not even asked for."""
    what = bad(subject={"prefix_cache": True})
    assert mark(run(subject={}, under=("serve.enable-prefix-caching = false",)), what) == ("MASKED", "not exercised")


def test_a_request_never_sent():
    """The chased failure is in a check; this run passed without making it."""
    what = chased(runs.failed_in_check())
    skipped = CheckResult(name="perplexity", outcome="not_tested", message="does not fit")
    assert mark(run(checks=(runs.WARMUP, skipped)), what) == ("MASKED", "not exercised")
    assert mark(run(checks=(runs.WARMUP,)), what) == ("MASKED", "not exercised")
    assert mark(run(), what) == ("GOOD", None)


@pytest.mark.parametrize("kind", sorted(marks.ASYNCHRONOUS))
def test_asynchronous_errors_that_move(kind):
    """What is reported elsewhere than it happens may have happened here too."""
    moving = signature("an illegal memory access", kind=kind)
    assert mark(run("capture#2", OTHER), bad("capture#1", moving)) == ("MASKED", "covered")


def test_a_reworded_message():
    """The same exception in the same function: perhaps the same failure, never silently."""
    reworded = signature("a crash, said in other words", function="crash")
    judged = judge(run("capture#2", reworded), bad())
    assert (judged.mark, judged.masking) == ("MASKED", "maybe the same")
    assert mark(run("capture#2", reworded), replace(bad(), also=(reworded.id[:6],))) == ("BAD", None)
    elsewhere = signature("a crash", function="quite_another")
    assert mark(run("capture#2", elsewhere), bad())[0] in ("BAD", "MASKED")


def test_the_aliases_of_a_known_failure_are_that_failure():
    entry = Known(
        signatures=("RuntimeError: a crash*",), refs=("vllm#1",), builds="", fixed=None, scenarios=(), workaround=(),
        where="x:1:1",
    )  # fmt: skip
    alias = signature("a crash of 2027", function="crash")
    assert mark(run("capture#1", alias), bad()) == ("MASKED", "maybe the same")
    assert mark(run("capture#1", alias), replace(bad(), known=entry)) == ("BAD", None)


def test_a_fix_that_is_a_refusal():
    """What now says no has not been repaired; nor has what fails otherwise at the same place."""
    refusal = signature("not supported any more", kind="config_invalid")
    assert mark(run("config#1", refusal), bad(), fix=True) == ("MASKED", "refused")
    judged = judge(run("capture#1", OTHER), bad("capture#1"), fix=True)
    assert (judged.masking, judged.why) == ("replaced", f"replaced, not fixed: {OTHER.title}")
    assert mark(run("capture#2", OTHER), bad("capture#1"), fix=True) == ("GOOD", None)


@pytest.mark.parametrize("made", [runs.unmet(), runs.skipped(), runs.interrupted(), runs.killed_node()])
def test_trouble_of_others_is_never_a_mark_of_the_build(made):
    assert judge(made, bad()).mark == "SKIP"


def test_an_error_is_skipped_even_where_it_shows_the_chased_failure():
    """A node's fault keeps its signature, but it is not the build's."""
    held = run("capture#1", CRASH, verdict="ERROR", blame="node", reason="the node")
    assert judge(held, bad()) == Judged(mark="SKIP", why="the node", blame="node")


def test_neighbours_with_the_same_cover_have_the_same_cause_and_skips_count_without_their_numbers():
    first, second = judge(run("config#1", OTHER), bad()), judge(run("weights#1", OTHER), bad())
    assert first.cause == second.cause == OTHER.id
    one, two = (judge(runs.unmet(reason=f"port {port} was taken"), bad()) for port in (20001, 31000))
    assert one.cause == two.cause


def test_a_failure_known_by_its_name_alone_can_be_met_but_nobody_gets_past_it():
    what = marks.unseen(CRASH.id[:8])
    assert mark(run("capture#1", CRASH), what) == ("BAD", None)
    assert mark(run("capture#2", OTHER), what) == ("MASKED", "covered")
    assert mark(run(), what) == ("GOOD", None)
