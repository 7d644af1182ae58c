"""Mini models of big ones on a real server: made-up weights, a real start, real requests."""

import json
from pathlib import Path

import pytest

from harness import run, scenario
from harness.shrink import files, shrink

pytestmark = pytest.mark.real

CONFIGS = Path(__file__).parents[1] / "configs"
SCENARIO = """\
schema: 1
name: mini
runtime: vllm
model: ./model
serve: {load-format: dummy, max-model-len: 512, enforce-eager: true, max-num-seqs: 8, max-num-batched-tokens: 512}
env: {VLLM_CPU_KVCACHE_SPACE: "1", HF_HUB_OFFLINE: "1"}
budgets: {startup: 10m, silence: 3m, request: 2m, stop: 30s}
checks:
  warmup: {max-ratio: null}
  perplexity: {corpus: smoke_en, max: null}
"""
"""Of weights that nobody trained a perplexity only shows that every number is one."""


def start(build, folder, name, *, quantised=True):
    config, digest = files.read(CONFIGS / name)
    mini, _ = shrink(config, quantised=quantised)
    files.write(mini, folder / "model", digest=digest)
    (folder / "mini.yaml").write_text(SCENARIO)
    done = run.execute(scenario.load(folder / "mini.yaml"), build=build, out=folder / "reports")
    print(name, done.version, done.verdict, done.reason)
    return done, mini.config


def test_a_hybrid_of_state_spaces_and_experts(vllm_build, tmp_path):
    done, config = start(vllm_build, tmp_path, "granite_4_h_small")
    assert done.verdict == "PASS", done.reason
    assert done.choices["architecture"] == tuple(config["architectures"])
    (perplexity,) = [check for check in done.checks if check.name == "perplexity"]
    measured = {each.name: each.value for each in perplexity.measurements}
    assert measured["tokens"] > 3_000
    assert measured["perplexity"] == pytest.approx(config["vocab_size"], rel=0.2)  # it knows nothing


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["llama_3_1_70b", "gemma_3_27b", "qwen3_30b_a3b", "qwen3_vl_32b", "nemotron_nano_v2_9b", "deepseek_v3"],
)
def test_other_kinds(vllm_build, tmp_path, name):
    done, _ = start(vllm_build, tmp_path, name, quantised=False)
    assert done.verdict == "PASS", done.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [("deepseek_v3", "Failed to find a kernel that can implement the ScaledMM linear layer")],
)
def test_what_a_cpu_refuses_is_named(vllm_build, tmp_path, name, said):
    done, _ = start(vllm_build, tmp_path, name)
    assert done.verdict == "FAIL"
    assert said in json.dumps(done.signature.title)
