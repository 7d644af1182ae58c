"""Real faults on a real vLLM: each has the right verdict, phase and title, and leaves no process behind."""

import os
import signal
import socket
import xml.etree.ElementTree as ET

import pytest
from real_runs import Watcher, copy_model, execute

from harness import launches

pytestmark = pytest.mark.real


def test_unknown_flag(vllm_build, tmp_path):
    done = execute(vllm_build, tmp_path, "serve.no-such-flag=true")
    assert (done.verdict, done.exit, done.blame) == ("FAIL", "exit 2", "product")
    assert done.signature.kind == "cli_usage"
    assert done.signature.title == "usage error: unrecognized arguments: --no-such-flag"
    assert done.signature.phase == "spawn#1"
    assert done.checks == ()


def test_unsupported_architecture(vllm_build, tmp_path):
    model = copy_model(tmp_path, architectures=["NoSuchForCausalLM"])
    done = execute(vllm_build, tmp_path / "out", f"model={model}", "checks.perplexity=null")
    assert (done.verdict, done.exit) == ("FAIL", "exit 1")
    assert done.signature.kind == "model_unsupported"
    assert "Model architectures ['NoSuchForCausalLM'] are not supported for now" in done.signature.title
    assert done.signature.phase == "config#1"


def test_truncated_weights(vllm_build, tmp_path):
    model = copy_model(tmp_path)
    os.truncate(model / "model.safetensors", 300_000)
    done = execute(vllm_build, tmp_path / "out", f"model={model}", "checks.perplexity=null")
    assert (done.verdict, done.exit) == ("FAIL", "exit 1")
    assert (done.signature.kind, done.signature.exception) == ("weights", "SafetensorError")
    assert "incomplete metadata, file not fully covered" in done.signature.title
    assert done.signature.phase == "weights#1"
    assert done.wrappers, "the messengers are demoted, not forgotten"


def test_kv_cache_too_small_for_the_length(vllm_build, tmp_path):
    model = copy_model(tmp_path, max_position_embeddings=4_000_000)
    sets = ("serve.max-model-len=3000000", "serve.max-num-batched-tokens=2048", "checks.perplexity=null")
    done = execute(vllm_build, tmp_path / "out", f"model={model}", *sets)
    assert (done.verdict, done.exit) == ("FAIL", "exit 1")
    assert done.signature.kind == "oom_kv_cache"
    assert done.signature.title.startswith("ValueError: To serve at least one request with the model's max seq len")
    assert done.signature.phase == "kv_cache#1"


def test_port_in_use(vllm_build, tmp_path):
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        done = execute(vllm_build, tmp_path, port=squatter.getsockname()[1])
    assert (done.verdict, done.blame) == ("ERROR", "node")
    assert done.signature.kind == "port_in_use"
    assert "[Errno 98] Address already in use" in done.signature.title
    assert done.fix.startswith("run it again")


def test_kill_9_of_the_engine_while_starting(vllm_build, tmp_path):
    watcher = Watcher(lambda e: e.kind == "phase" and e.text == "distributed", "VLLM::EngineCore")
    done = execute(vllm_build, tmp_path, watcher=watcher)
    assert watcher.hit
    assert (done.verdict, done.blame) == ("ERROR", "node")
    assert done.signature.kind == "killed_signal"
    assert done.signature.process == "EngineCore"
    assert done.timeline.ready is None


def test_kill_9_of_the_engine_after_ready(vllm_build, tmp_path):
    watcher = Watcher(lambda e: e.kind == "phase" and e.text == "check warmup", "VLLM::EngineCore")
    done = execute(vllm_build, tmp_path, watcher=watcher)
    assert watcher.hit
    assert (done.verdict, done.blame) == ("ERROR", "node")
    assert done.exit == "exit 0", "vLLM ends with 0 when its engine dies: a failure all the same"
    assert (done.signature.kind, done.signature.process) == ("killed_signal", "EngineCore")
    assert done.timeline.ready is not None
    assert [check.outcome for check in done.checks] == ["fail"] + ["not_tested"] * 6
    assert done.checks[0].request >= 1
    cases = ET.parse(tmp_path / done.id / "junit.xml").getroot().iter("testcase")
    assert [case.get("name") for case in cases] == list(launches.expected(done.resolved))


def test_a_stopped_worker_is_a_hang_with_evidence(vllm_build, tmp_path):
    watcher = Watcher(lambda e: e.kind == "phase" and e.text == "weights", "VLLM::Worker", signal.SIGSTOP)
    done = execute(vllm_build, tmp_path, "budgets.silence=15s", watcher=watcher)
    assert watcher.hit
    assert done.verdict == "FAIL"
    assert done.signature.kind == "hang"
    assert done.signature.phase == "weights#1"
    assert done.quiet_seconds >= 15
    (stack,) = [name for name in done.artifacts if name.startswith(f"stacks/{watcher.hit[0]}-")]
    text = (tmp_path / done.id / stack).read_text()
    assert "T (stopped)" in text or "state T" in text or "stopped" in text
    assert any("SIGKILL" in step for step in done.teardown.steps)


def test_missing_model_folder(vllm_build, tmp_path):
    """Said before a server is started: seconds and GPUs are not spent on a slip in the scenario."""
    done = execute(vllm_build, tmp_path, "model=/no/such/folder")
    assert (done.verdict, done.blame) == ("ERROR", "scenario")
    assert done.reason == "model: the folder /no/such/folder does not exist"
    assert done.argv == ()
