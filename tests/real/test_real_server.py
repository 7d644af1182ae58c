"""The server room around a real vLLM; `vllm_environment` is a fixture that gives the Environment."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from harness.launch import Launch
from harness.masking import Masker
from harness.server import proctree
from harness.server.living import Exited, Ready, Server

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "scenarios" / "models" / "tiny_lm"
LOADING = "Starting to load model"
pytestmark = pytest.mark.real

HARNESS = f"""
import sys
sys.path[:0] = {[str(ROOT), str(Path(__file__).parent)]!r}
import json, test_real_server
with test_real_server.make_server(json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]) as server:
    print(server.pid, server._kept.temp, flush=True)
    server.wait_ready()
"""


def make_server(command, port, folder):
    keep = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    flags = ("--enforce-eager", "--max-model-len", "512", "--host", "127.0.0.1", "--port", str(port))
    launch = Launch(
        argv=(*command, "serve", str(MODEL), *flags, "--served-model-name", "tiny"),
        env=keep | {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
        recorded_env={}, host="127.0.0.1", port=port, served_model_name="tiny", caches=Path(folder) / "caches",
    )  # fmt: skip
    return Server(
        launch, folder=Path(folder), health_path="/health", literals=(LOADING.encode(),), startup=300, silence=120,
        stop=60, masker=Masker(), on_line=lambda line: None,
    )  # fmt: skip


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds=300.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


def in_session(pid):
    return [p for p in proctree.everything().values() if p.session == pid and p.state not in "ZX"]


@pytest.mark.slow
def test_a_healthy_server_is_gone_after_one_sigterm(vllm_environment, tmp_path):
    with make_server(vllm_environment.command, free_port(), tmp_path) as server:
        assert isinstance(server.wait_ready(), Ready)
        answer = requests.get(f"{server._launch.url}/v1/models", timeout=5).json()
        assert [model["id"] for model in answer["data"]] == ["tiny"]
        assert server.peak_rss > 1 << 30
        teardown = server.stop()
    assert [step.split()[0] for step in teardown.steps] == ["SIGTERM"]
    assert teardown.survivors == ()
    assert teardown.seconds < 10
    assert in_session(server.pid) == []
    assert any("sockets" in entry for entry in teardown.removed), "its sockets went to the folder of its own"


@pytest.mark.slow
def test_kill_9_of_the_engine_ends_the_leader_with_exit_0(vllm_environment, tmp_path):
    with make_server(vllm_environment.command, free_port(), tmp_path) as server:
        assert isinstance(server.wait_ready(), Ready)
        (engine,) = [p for p in in_session(server.pid) if proctree.title(p) == "VLLM::EngineCore"]
        os.kill(engine.pid, signal.SIGKILL)
        wait_until(server.exited, 30)
        exited = server.exited()
        teardown = server.stop()
    assert isinstance(exited, Exited)
    assert exited.how == "exit 0"
    assert teardown.survivors == ()
    assert in_session(server.pid) == []


def test_a_starting_server_is_stopped_within_the_grace_of_a_ci_agent(vllm_environment, tmp_path):
    with make_server(vllm_environment.command, free_port(), tmp_path) as server:
        wait_until(lambda: any(LOADING in line for line in server.tail(60)))
        teardown = server.stop(within=8)
    assert teardown.seconds < 9
    assert teardown.survivors == ()
    assert in_session(server.pid) == []


def test_kill_9_of_the_harness_while_the_server_starts(vllm_environment, tmp_path):
    words = (sys.executable, "-c", HARNESS, json.dumps(vllm_environment.command), str(free_port()), str(tmp_path))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as harness:
        leader, temp = harness.stdout.readline().split()
        wait_until(lambda: LOADING in (tmp_path / "server.log").read_text(errors="replace"))
        assert len(in_session(int(leader))) >= 2
        harness.kill()
    wait_until(lambda: not in_session(int(leader)), 10)
    wait_until(lambda: not Path(temp).exists(), 5)
