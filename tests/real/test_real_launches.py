"""Runs of several real servers: cold and warm starts, a second server to compare with; and the times of starts."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from plugins import plugin
from real_runs import execute, found, numbers, only
from test_real_outputs import BELIEVES_ALL, NGRAM

from harness import cli, launches
from harness.baseline.history import History
from harness.checks.warmup import Start, WarmupParams, judge
from harness.client.answers import Completion
from harness.record import load

pytestmark = pytest.mark.real

AT_FIRST = """
first = True


def register():
    from vllm.v1.engine.core import EngineCore

    plain = EngineCore.add_request

    def add_request(self, *args, **kwargs):
        global first
        if first:
            first = False
            at_first()
        return plain(self, *args, **kwargs)

    EngineCore.add_request = add_request


def at_first():
"""
SLEEPS = AT_FIRST + "    import time\n    time.sleep(3)\n"
COMPILES = (
    AT_FIRST
    + """    import torch

    torch.compile(lambda x: x.sin() + x.cos())(torch.ones(64))
"""
)
DIES = """
def register():
    raise RuntimeError("this plugin never starts")
"""
STARTS_LATE = """
def register():
    import os, time

    if os.path.exists({flag!r}):
        time.sleep(30)
"""


def test_healthy_with_every_check_and_a_second_server(vllm_build, tmp_path):
    """Nothing is damaged: n-gram speculation with prefix caching, held against a server without speculation."""
    done = execute(vllm_build, tmp_path, variant="ngram")
    for check in done.checks:
        print(check.name, check.outcome, check.message)
    assert done.verdict == "PASS", done.reason
    assert done.subject == {"prefix_cache": True, "spec_decode": True}
    assert {check.outcome for check in done.checks} == {"pass"}
    cases = [case.get("name") for case in ET.parse(tmp_path / done.id / "junit.xml").getroot().iter("testcase")]
    assert cases == list(launches.expected(done.resolved))
    assert cases[-2:] == ["startup[no speculation]", "same_output"]
    cached, drafted = numbers(found(done, "prefix_cache")), numbers(found(done, "spec_decode"))
    assert (cached["block"], cached["hit_tokens"], cached["worst_gap"]) == (128, cached["reusable_tokens"], 0)
    assert drafted["drafts"] > 0
    assert drafted["long_drafts"] > 0
    assert 1 < drafted["acceptance_length"] <= 4
    assert numbers(found(done, "determinism"))["logprob_difference_alone"] == 0
    (second,) = done.others
    assert "--speculative-config" in done.argv
    assert "--speculative-config" not in second.argv
    assert found(done, "same_output").launch == "no speculation"
    assert numbers(found(done, "same_output"))["logprob_difference"] < 0.5
    assert (tmp_path / done.id / "against-1" / "server.log").stat().st_size > 1000


@pytest.mark.slow
def test_wrong_drafts_that_only_a_second_server_can_tell(vllm_build, tmp_path):
    """Damaged: every draft is taken for right, and its log-probability says so too."""
    damage = plugin(tmp_path / "plugin", "believes_all", BELIEVES_ALL)
    against = only("same_output", "{against: no speculation}")
    done = execute(vllm_build, tmp_path / "out", *against, NGRAM, damage)
    check = found(done, "same_output")
    assert (done.verdict, done.signature.kind) == ("FAIL", "check_failed")
    assert "the own and the reference answer to a prompt of" in check.message
    assert check.message.count("log-probabilities") == 1, "of both servers, at the first token that differs"
    assert (done.launch, done.log, [each.launch for each in done.others]) == ("", "server.log", ["no speculation"])


@pytest.mark.slow
def test_another_build_another_precision_and_a_second_server_that_dies(vllm_build, tmp_path):
    """Damaged: only the last second server, by a plugin that raises."""
    older = only("same_output", "{against: {build: 'release:0.31.0+cpu'}}")
    done = execute(vllm_build, tmp_path / "build", *older)
    assert done.verdict == "PASS", done.reason
    assert done.others[0].other_build == "release:0.31.0+cpu (0.31.0)"
    precise = only("same_output", "{against: {serve: {dtype: float32}}}")
    done = execute(vllm_build, tmp_path / "precision", *precise)
    assert 0 < numbers(found(done, "same_output"))["logprob_difference"] < 1
    folder = plugin(tmp_path / "plugin", "dies", DIES).partition("=")[2]
    dying = only("same_output", f"{{against: {{env: {{PYTHONPATH: '{folder}'}}}}}}")
    done = execute(vllm_build, tmp_path / "dead", *dying)
    print(done.reason)
    assert (done.verdict, done.log) == ("FAIL", "against-1/server.log")
    assert done.reason.startswith("the server with env.PYTHONPATH set: died in ")
    assert done.signature.title == "RuntimeError: this plugin never starts (load_general_plugins)"


@pytest.mark.slow
def test_a_cold_and_a_warm_start_and_an_eager_one_to_compare_with(vllm_build, tmp_path):
    """Nothing is damaged. The variant that compiles: a cold start takes longer, and its answers are the eager ones."""
    sets = ("starts=[cold, warm]", "checks.same_output={against: eager}")
    done = execute(vllm_build, tmp_path, *sets, variant=None)
    assert done.verdict == "PASS", done.reason
    cold, eager, warm = done.launches
    assert (cold.launch, eager.launch, warm.launch) == ("cold", "eager", "warm")
    assert "--enforce-eager" in eager.argv
    assert numbers(found(done, "same_output"))["logprob_difference"] < 0.5
    cases = [case.get("name") for case in ET.parse(tmp_path / done.id / "junit.xml").getroot().iter("testcase")]
    assert cases[:4] == ["startup[cold]", "warmup[cold]", "startup[warm]", "warmup[warm]"]
    assert cases[-2:] == ["startup[eager]", "same_output"]
    assert warm.timeline.ready < cold.timeline.ready
    ratio = numbers(found(done, "warmup", "warm"))["warm_ratio"]
    assert ratio == pytest.approx(warm.timeline.ready / cold.timeline.ready, abs=0.001)
    answers = [Completion(text="", tokens=16, seconds=0.1, choice={}, usage={})] * 3
    start = Start(ready=warm.timeline.ready, cold=cold.timeline.ready)
    assert judge(WarmupParams(max_warm_ratio=0.1), answers, node_class="cpu", start=start, number=1).outcome == "fail"
    text = (tmp_path / done.id / "summary.md").read_text()
    assert "| seconds of | cold | warm | eager |" in text


def test_a_first_request_that_compiles(vllm_build, tmp_path):
    """Damaged: the engine compiles a kernel when its first request comes."""
    damage = plugin(tmp_path / "plugin", "compiles", COMPILES)
    limit = only("warmup", "{max-compiled: 0}")
    done = execute(vllm_build, tmp_path / "out", "starts=[cold]", *limit, damage)
    check = found(done, "warmup")
    assert (done.verdict, done.signature.kind) == ("FAIL", "check_failed")
    assert check.message == "1 kernels compiled after ready; 0 may be"
    assert check.detail["compiled"][0].startswith("cpp_fused_")
    assert done.reason == f"cold start: check warmup: {check.message}"


@pytest.mark.slow
def test_a_slow_first_request(vllm_build, tmp_path):
    """Damaged: the engine sleeps for three seconds when its first request comes."""
    damage = plugin(tmp_path / "plugin", "sleeps", SLEEPS)
    done = execute(vllm_build, tmp_path / "out", *only("warmup", "{max-ratio: 5}"), damage)
    check = found(done, "warmup")
    assert (done.verdict, check.request) == ("FAIL", 1)
    assert check.message.endswith("; the ratio may be 5")
    assert numbers(check)["first_request"] > 3


@pytest.mark.slow
def test_a_slow_start_is_a_regression_until_it_is_accepted(vllm_build, tmp_path):
    """Damaged: every process sleeps for 30 seconds, once a file is there. The history is made of one run."""
    flag = tmp_path / "late"
    damage = plugin(tmp_path / "plugin", "late", STARTS_LATE.format(flag=str(flag)))
    healthy = execute(vllm_build, tmp_path, *only("startup_time"), damage)
    assert found(healthy, "startup_time").outcome == "not_tested"
    for night in range(1, 7):
        ready = healthy.timeline.ready * (1 + night / 100)
        History().feed(replace(healthy, id=f"night-{night}", timeline=replace(healthy.timeline, ready=ready)))
    flag.touch()
    slow = execute(vllm_build, tmp_path, *only("startup_time"), damage)
    check = found(slow, "startup_time")
    assert (slow.verdict, slow.signature.kind, check.outcome) == ("FAIL", "check_failed", "fail")
    assert numbers(check)["history"] == 7
    assert " by " in numbers(check)["grew_most"]
    assert cli.main(["baseline", "accept", str(tmp_path / slow.id)]) == 0
    assert load(tmp_path / slow.id).accepted
    assert History().past(replace(slow, id="later", started="9"))[("", "ready")] == [slow.timeline.ready]
