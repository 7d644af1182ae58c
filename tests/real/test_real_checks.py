"""The checks on a real server: what is healthy passes, real damage fails and says what it is.

Damage without touching the server's code: `--hf-overrides` makes it compute another model from the same weights, and
damaged copies of the weights stand for a load that went wrong. The reference of such a copy is told that its weights
are the right ones: otherwise it is refused before a server is started, which a test below shows too.
"""

import hashlib
import json
import xml.etree.ElementTree as ET

import pytest
from damage import drop_head, edited, nan_weights, zero_layer
from real_runs import MODEL, execute

from harness.build import parse

pytestmark = pytest.mark.real

HEALTHY = 3.1328
"""Perplexity of the corpus in the reference: float32, transformers."""
THETA = 'serve.hf-overrides={"rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}}'


def numbers(done):
    """What the perplexity check measured."""
    (result,) = [check for check in done.checks if check.name == "perplexity"]
    found = {m.name: m.value for m in result.measurements}
    print(done.version, result.outcome, result.message)
    return result, found


def damaged(tmp_path, edit):
    """A run's overrides for a damaged copy of the weights, whose reference claims that they are right."""
    model = edited(MODEL, tmp_path / "damaged", edit)
    reference = json.loads((MODEL / "reference.json").read_text())
    digest = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    reference["weights"] = {"model.safetensors": digest}
    (model / "reference.json").write_text(json.dumps(reference))
    return f"model={model}", f"checks.perplexity.reference={model / 'reference.json'}"


def test_healthy(vllm_build, tmp_path):
    done = execute(vllm_build, tmp_path)
    assert done.verdict == "PASS", done.reason
    result, got = numbers(done)
    assert (result.outcome, got["tokens"]) == ("pass", 3883)
    assert got["perplexity"] == pytest.approx(HEALTHY, rel=0.003)
    assert [check.outcome for check in done.checks] == ["pass"] * 7
    assert all(phase.completed for phase in done.timeline.phases)
    assert [phase.name for phase in done.timeline.phases][:2] == ["spawn", "config"]
    assert [phase.name for phase in done.timeline.phases][-3:] == ["ready", "checks", "stop"]
    assert done.teardown.left == ()
    cases = ET.parse(tmp_path / done.id / "junit.xml").getroot().iter("testcase")
    assert [(case.get("name"), len(case)) for case in cases] == [
        ("startup", 0), ("warmup", 0), ("perplexity", 0), ("prefix_cache", 0), ("determinism", 0), ("load", 0),
        ("log_hygiene", 0), ("memory", 0),
    ]  # fmt: skip


def test_another_rope_theta_is_caught(vllm_build, tmp_path):
    done = execute(vllm_build, tmp_path, THETA)
    assert (done.verdict, done.blame, done.signature.kind) == ("FAIL", "product", "check_failed")
    result, got = numbers(done)
    assert result.message.startswith("log-probabilities differ from the reference: largest ")
    assert got["perplexity"] > 1.2 * HEALTHY
    assert got["max_token_difference"] > 2


def test_a_reference_of_other_weights_is_refused_before_the_start(vllm_build, tmp_path):
    model = edited(MODEL, tmp_path / "damaged", drop_head)
    done = execute(vllm_build, tmp_path / "out", f"model={model}")
    assert (done.verdict, done.blame, done.argv) == ("ERROR", "scenario", ())
    assert "was made for other weights than" in done.reason


@pytest.mark.slow
def test_another_norm_epsilon_is_caught(vllm_build, tmp_path):
    done = execute(vllm_build, tmp_path, 'serve.hf-overrides={"rms_norm_eps": 0.01}')
    assert (done.verdict, done.signature.kind) == ("FAIL", "check_failed")
    assert numbers(done)[1]["max_token_difference"] > 1


@pytest.mark.slow
def test_a_lost_head_is_caught_token_by_token_and_not_by_perplexity(vllm_build, tmp_path):
    done = execute(vllm_build, tmp_path / "out", *damaged(tmp_path, drop_head))
    assert done.verdict == "FAIL"
    result, got = numbers(done)
    assert {m.name: m.ok for m in result.measurements}["perplexity"], "the limit of 8 sees nothing"
    assert got["max_token_difference"] > 0.5


@pytest.mark.slow
def test_a_layer_of_zeros_is_caught(vllm_build, tmp_path):
    done = execute(vllm_build, tmp_path / "out", *damaged(tmp_path, zero_layer))
    assert done.verdict == "FAIL"
    assert numbers(done)[1]["max_token_difference"] > 2


@pytest.mark.slow
def test_nan_weights_are_the_models_failure(vllm_build, tmp_path):
    """/health says 200 and the text is "!!!": only the numbers tell."""
    done = execute(vllm_build, tmp_path / "out", *damaged(tmp_path, nan_weights))
    assert (done.verdict, done.blame, done.signature.kind) == ("FAIL", "product", "check_failed")
    result, _ = numbers(done)
    assert "the model's log-probabilities are" in result.message


@pytest.mark.slow
def test_the_references_own_precision_leaves_next_to_nothing(vllm_build, tmp_path):
    done = execute(vllm_build, tmp_path, variant="fp32")
    assert done.verdict == "PASS"
    assert numbers(done)[1]["max_token_difference"] < 1e-3


@pytest.mark.slow
def test_every_release_passes_every_check_and_gives_the_same_perplexity(tmp_path):
    releases = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
    found = {}
    for release in releases:
        variant = "eager" if release == "0.30.0" else "ngram"  # see below
        done = execute(parse(f"release:{release}+cpu"), tmp_path / release, variant=variant)
        assert done.verdict == "PASS", done.reason
        found[release] = numbers(done)[1]["perplexity"]
    assert found["0.29.0"] == pytest.approx(found["0.32.0"], rel=0.005)
    assert max(found.values()) / min(found.values()) < 1.005


@pytest.mark.slow
def test_n_gram_speculation_of_0_30_0_dies_of_its_first_request_on_a_cpu(tmp_path):
    """Nothing is damaged: its rejection sampler asks a Triton kernel for its parameters; here that is a function."""
    done = execute(parse("release:0.30.0+cpu"), tmp_path, variant="ngram")
    assert (done.verdict, done.signature.process) == ("FAIL", "Worker")
    assert done.signature.title == "TypeError: Cannot inspect kernel parameters for function (_kernel_arg_names)"
    assert done.reason.startswith("check warmup, request 1: ")
    assert done.timeline.ready is not None, "/health said 200"
