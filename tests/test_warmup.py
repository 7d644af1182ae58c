"""The warm-up check: pure judgement with exact numbers, and the requests it makes."""

import pytest
from answering import MODEL, Answering, context, stream

from harness.checks import CHECKS
from harness.checks.warmup import Start, WarmupParams, _kernels, judge
from harness.client.answers import Completion
from harness.client.server_client import ServerClient

JIT = (
    "(EngineCore pid=1) WARNING [jit_monitor.py:141] Triton kernel JIT compilation during inference: fused_moe."
    " This causes a latency spike; consider extending warmup to cover this shape/config."
)


def answers(*seconds, tokens=16):
    return [
        Completion(text="x", tokens=tokens, seconds=s, first_token_seconds=s / 2, choice={}, usage={}) for s in seconds
    ]


def judged(params, *seconds, node_class="cpu", tokens=16, **start):
    given, begun = WarmupParams(**params), Start(**{"ready": 20.0, **start})
    return judge(given, answers(*seconds, tokens=tokens), node_class=node_class, start=begun, number=1)


def test_the_first_against_the_median_of_the_rest():
    result = judged({}, 2.1, 0.2, 0.1, 0.3, kernels=("fused_moe", "cpp_fused_add_0"))
    assert result.outcome == "pass"
    assert {m.name: m.value for m in result.measurements} == {
        "time_to_ready": 20.0, "first_token": 1.05, "first_request": 2.1, "second_request": 0.2,
        "steady_first_token": 0.1, "steady_request": 0.2, "ratio": 10.5, "compiled": 2,
        "compiled_names": "fused_moe, cpp_fused_add_0",
    }  # fmt: skip
    assert result.message == "first request 2.1 s, then 0.2 s (ratio 10.5), 2 kernels compiled after ready"
    assert result.detail["compiled"] == ["fused_moe", "cpp_fused_add_0"]


def test_many_names_are_cut_in_tables_and_whole_in_the_detail():
    result = judged({}, 0.2, 0.2, 0.2, kernels=tuple(f"k{n}" for n in range(10)))
    (names,) = [m.value for m in result.measurements if m.name == "compiled_names"]
    assert names == "k0, k1, k2, k3, k4, k5, k6, k7 and 2 more"
    assert len(result.detail["compiled"]) == 10


def test_a_limit_on_what_is_compiled_after_ready():
    assert judged({"max_compiled": 1}, 0.2, 0.2, 0.2, kernels=("fused_moe",)).outcome == "pass"
    result = judged({"max_compiled": 0}, 0.2, 0.2, 0.2, kernels=("fused_moe",))
    assert (result.outcome, result.message) == ("fail", "1 kernels compiled after ready; 0 may be")
    assert [m.name for m in result.measurements if not m.ok] == ["compiled"]


def test_a_warm_start_is_held_against_the_cold_one():
    assert judged({"max_warm_ratio": 0.8}, 0.2, 0.2, 0.2, ready=20.0, cold=40.0).outcome == "pass"
    assert judged({"max_warm_ratio": 0.8}, 0.2, 0.2, 0.2, ready=40.0).outcome == "pass", "the cold start itself"
    result = judged({"max_warm_ratio": 0.8}, 0.2, 0.2, 0.2, ready=36.0, cold=40.0)
    assert (result.outcome, result.message) == (
        "fail", "the warm start took 36 s, the cold one 40 s; the ratio may be 0.8",
    )  # fmt: skip
    assert [(m.name, m.value, m.limit) for m in result.measurements if not m.ok] == [("warm_ratio", 0.9, 0.8)]


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
        result = CHECKS["warmup"].run(
            context(client, params, lines=lambda: [JIT, "something else"], compiled=lambda: ["cpp_fused_add_0"])
        )
        bodies = server.bodies("/v1/completions")
    assert result.outcome == "pass"
    assert client.requests == 3
    assert [(body["max_tokens"], body["stream"], body["ignore_eos"]) for body in bodies] == [(4, True, True)] * 3
    assert result.detail["compiled"] == ["fused_moe", "cpp_fused_add_0"]


def test_names_of_kernels_in_every_wording():
    short = "Triton kernel JIT compilation during inference: pkg.fused_moe"
    assert _kernels([JIT, short, JIT, "something else"], ["cpp_fused_add_0", "fused_moe"]) == (
        "fused_moe", "pkg.fused_moe", "cpp_fused_add_0",
    )  # fmt: skip


def test_it_is_the_first_check():
    assert next(iter(CHECKS)) == "warmup"


@pytest.mark.parametrize("params", [{"requests": 1}, {"max_tokens": 0}, {"max_first_request": "5"}, {"nonsense": 1}])
def test_bad_parameters_are_refused(params):
    with pytest.raises(ValueError, match="validation error"):
        WarmupParams(**params)
