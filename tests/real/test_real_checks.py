"""The checks on a real server: what is healthy passes, real damage fails and says what it is.

Damage without touching the server's code: `--hf-overrides` makes it compute another model from the same weights, and
damaged copies of the weights stand for a load that went wrong (their reference is told that they are the right ones).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from damage import drop_head, edited, nan_weights, zero_layer
from helpers import serving

from harness.checks.base import CheckResult
from harness.environment import Environment

pytestmark = pytest.mark.real

MODEL = Path(__file__).parents[2] / "scenarios" / "models" / "tiny_lm"
REFERENCE = str(MODEL / "reference.json")
HEALTHY = 3.1326
"""Perplexity of the corpus in the reference."""


def numbers(result: CheckResult) -> dict[str, Any]:
    found = {measurement.name: measurement.value for measurement in result.measurements}
    print(result.outcome, result.message, found)
    return found


def test_a_healthy_server_passes(vllm_environment: Environment, tmp_path: Path) -> None:
    with serving(vllm_environment, MODEL, tmp_path) as served:
        warmup = served.check("warmup", max_first_request="30s")
        result = served.check("perplexity", reference=REFERENCE, max=4)
        alone = served.check("perplexity", window=256)
    got = numbers(warmup)
    assert warmup.outcome == "pass", warmup.message
    assert 0 < got["first_token"] <= got["first_request"]
    assert served.client.requests == 8 + (1 + 8) + (1 + 16)
    got = numbers(result)
    assert result.outcome == "pass", result.message
    assert got["tokens"] == 3883
    assert got["perplexity"] == pytest.approx(HEALTHY, rel=0.003)
    assert got["max_token_difference"] < 0.25
    assert got["mean_token_difference"] < 0.012
    got = numbers(alone)
    assert (alone.outcome, got["tokens"]) == ("pass", 3883 - 16)


def test_another_rope_theta_is_caught(vllm_environment: Environment, tmp_path: Path) -> None:
    rope = {"rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}}
    with serving(vllm_environment, MODEL, tmp_path, hf_overrides=rope) as served:
        result = served.check("perplexity", reference=REFERENCE)
    got = numbers(result)
    assert result.outcome == "fail"
    assert result.message.startswith("log-probabilities differ from the reference: largest ")
    assert got["perplexity"] > HEALTHY * 1.1
    assert got["max_token_difference"] > 2


@pytest.mark.slow
def test_another_epsilon_is_caught(vllm_environment: Environment, tmp_path: Path) -> None:
    with serving(vllm_environment, MODEL, tmp_path, hf_overrides={"rms_norm_eps": 0.01}) as served:
        result = served.check("perplexity", reference=REFERENCE, max=100)
    got = numbers(result)
    assert result.outcome == "fail"
    assert result.message.startswith("log-probabilities differ from the reference")
    assert got["mean_token_difference"] > 0.02


@pytest.mark.slow
def test_float32_is_the_reference_to_five_digits(vllm_environment: Environment, tmp_path: Path) -> None:
    tight = {"max_token_difference": 1e-3, "max_mean_difference": 1e-4, "max_log_ratio": 1e-5}
    with serving(vllm_environment, MODEL, tmp_path, dtype="float32") as served:
        result = served.check("perplexity", reference=REFERENCE, **tight)
    got = numbers(result)
    assert result.outcome == "pass", result.message
    assert got["perplexity"] == pytest.approx(HEALTHY, rel=1e-4)


def for_these_weights(folder: Path) -> str:
    """A reference that takes the damaged weights for the right ones, as a server that loaded them wrongly would."""
    stored = json.loads(Path(REFERENCE).read_text())
    stored["weights"] = {"model.safetensors": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()}
    file = folder / "reference.json"
    file.write_text(json.dumps(stored))
    return str(file)


@pytest.mark.slow
@pytest.mark.parametrize("edit", [drop_head, zero_layer], ids=["one head dropped", "one layer zeroed"])
def test_damaged_weights_are_caught(edit: Any, vllm_environment: Environment, tmp_path: Path) -> None:
    folder = edited(MODEL, tmp_path / "model", edit)
    with serving(vllm_environment, folder, tmp_path) as served:
        result = served.check("perplexity", reference=for_these_weights(folder))
    got = numbers(result)
    assert result.outcome == "fail"
    assert result.message.startswith("log-probabilities differ from the reference")
    assert got["max_token_difference"] > 0.5


@pytest.mark.slow
def test_weights_that_are_nan_are_a_failure_of_the_model(vllm_environment: Environment, tmp_path: Path) -> None:
    folder = edited(MODEL, tmp_path / "model", nan_weights)
    with serving(vllm_environment, folder, tmp_path) as served:
        warmup = served.check("warmup", requests=2)
        result = served.check("perplexity", corpus="smoke_en")
    print(warmup)
    assert result.outcome == "fail"
    assert result.message.startswith("the model's log-probabilities are NaN or infinite")
    assert result.request == 3
