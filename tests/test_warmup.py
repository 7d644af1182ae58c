"""The warm-up check: pure judgement with exact numbers, and the requests it makes."""

import pytest
from answering import MODEL, Answering, context, stream

from harness.checks import CHECKS
from harness.checks.warmup import WarmupParams, judge
from harness.client.answers import Completion
from harness.client.server_client import ServerClient

JIT = "(EngineCore pid=1) WARNING [jit_monitor.py:141] Triton kernel JIT compilation during inference: fused_moe"


def answers(*seconds, tokens=16):
    return [
        Completion(text="x", tokens=tokens, seconds=s, first_token_seconds=s / 2, choice={}, usage={}) for s in seconds
    ]


def judged(params, *seconds, node_class="cpu", compiled=(), tokens=16):
    given = WarmupParams(**params)
    return judge(given, answers(*seconds, tokens=tokens), node_class=node_class, compiled=compiled, number=1)


def test_the_first_against_the_median_of_the_rest():
    result = judged({}, 2.1, 0.2, 0.1, 0.3, compiled=[JIT, JIT])
    assert result.outcome == "pass"
    assert {m.name: m.value for m in result.measurements} == {
        "first_token": 1.05, "first_request": 2.1, "steady_first_token": 0.1, "steady_request": 0.2, "ratio": 10.5,
        "jit_compilations": 2,
    }  # fmt: skip
    assert result.message == "first request 2.1 s, then 0.2 s (ratio 10.5), 2 kernels compiled after ready"
    assert result.detail["compiled"] == [JIT, JIT]


@pytest.mark.parametrize(("node_class", "outcome"), [("cpu", "pass"), ("h200", "fail"), ("b200", "pass")])
def test_a_limit_per_class_of_node(node_class, outcome):
    result = judged({"max_first_request": {"default": "60s", "h200": "20s"}}, 30.0, 0.2, 0.2, node_class=node_class)
    assert result.outcome == outcome
    if outcome == "fail":
        assert result.message == "first request 30 s, then 0.2 s (ratio 150); the first may take 20 s"
        assert result.request == 1
        assert [m.name for m in result.measurements if not m.ok] == ["first_request"]


def test_a_limit_on_the_ratio():
    result = judged({"max_ratio": 10}, 3.0, 0.2, 0.2)
    assert (result.outcome, result.request) == ("fail", 1)
    assert result.message.endswith("the ratio may be 10")


def test_an_answer_that_ends_early_is_a_failure():
    result = judged({}, 0.2, 0.2, 0.2, tokens=3)
    assert (result.outcome, result.message) == ("fail", "asked for 16 tokens, got 3")


def test_it_asks_one_after_the_other_and_reads_the_log():
    routes = {"POST /v1/completions": lambda body: stream(body["max_tokens"], first=0.01)}
    with Answering(routes).serving() as server:
        client = ServerClient(server.url, MODEL, request_seconds=5)
        params = WarmupParams(requests=3, max_tokens=4)
        result = CHECKS["warmup"].run(context(client, params, lines=lambda: [JIT, "something else"]))
        bodies = server.bodies("/v1/completions")
    assert result.outcome == "pass"
    assert client.requests == 3
    assert [(body["max_tokens"], body["stream"], body["ignore_eos"]) for body in bodies] == [(4, True, True)] * 3
    assert {m.name: m.value for m in result.measurements}["jit_compilations"] == 1


def test_it_is_the_first_check():
    assert next(iter(CHECKS)) == "warmup"


@pytest.mark.parametrize("params", [{"requests": 1}, {"max_tokens": 0}, {"max_first_request": "5"}, {"nonsense": 1}])
def test_bad_parameters_are_refused(params):
    with pytest.raises(ValueError, match="validation error"):
        WarmupParams(**params)
