"""The memory gate: before a launch, after the stop, and who holds what should be free."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
import smi

from harness import gpu_memory
from harness import node as node_room
from harness.errors import NodeError


def two(used: str = "60000") -> tuple[dict[str, str], dict[str, str]]:
    return smi.gpu(0), smi.gpu(1, memory_used=used)


def test_memory_held_by_others_is_an_error_of_the_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi.install(monkeypatch, tmp_path, *two())
    found = node_room.read().gpus
    assert gpu_memory.used_mib(found) == {"GPU-0aaa1111": 4, "GPU-1aaa1111": 60000}
    gpu_memory.check_free(found[:1], utilization=0.9)
    gpu_memory.check_free(found, utilization=0.5)  # 71,885 MiB are left for others
    with pytest.raises(NodeError) as caught:
        gpu_memory.check_free(found, utilization=0.9)
    assert caught.value.what == (
        "GPU 1 (NVIDIA H200) has 60000 MiB in use before the launch, 14377 may be: held by a process that is not "
        "visible from here: another container, or a dead one whose memory the driver kept"
    )
    gpu_memory.check_free((), utilization=0.9)
    assert gpu_memory.used_mib(()) == {}


def test_who_holds_it_with_user_and_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as holder:
        apps = [smi.app(holder.pid, sys.executable, "59412", "GPU-1aaa1111"), smi.app(1, "elsewhere", "7")]
        smi.install(monkeypatch, tmp_path, *two(), apps=apps)
        with pytest.raises(NodeError) as caught:
            gpu_memory.check_free(node_room.read().gpus)
        holder.communicate(b"\n")
    user = pwd.getpwuid(os.getuid()).pw_name
    assert caught.value.what.endswith(f"14377 may be: held by pid {holder.pid} ({sys.executable}, {user}, 59412 MiB)")


def test_a_pid_of_another_container_has_no_user_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apps = [smi.app(os.getpid(), "VLLM::EngineCore", "30000"), smi.app(2**22 + 1, "[Not Found]", "[N/A]")]
    smi.install(monkeypatch, tmp_path, smi.gpu(), apps=apps)
    assert gpu_memory.holders("GPU-0aaa1111", 60000) == (
        f"held by pid {os.getpid()} (VLLM::EngineCore, 30000 MiB) and pid {2**22 + 1} (its memory is not told)"
    )


def test_what_the_visible_ones_do_not_explain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi.install(monkeypatch, tmp_path, smi.gpu(), apps=[smi.app(2**22 + 1, "python3", "10000")])
    assert gpu_memory.holders("GPU-0aaa1111", 60000) == (
        f"held by pid {2**22 + 1} (python3, 10000 MiB) and processes that are not visible from here (50000 MiB)"
    )
    assert gpu_memory.holders("GPU-0aaa1111", 10500) == f"held by pid {2**22 + 1} (python3, 10000 MiB)"


def test_who_holds_it_cannot_be_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi.install(monkeypatch, tmp_path, smi.gpu(), without=("used_memory",))
    assert gpu_memory.holders("GPU-0aaa1111", 60000).startswith(
        'and who holds it cannot be asked: nvidia-smi failed with exit 2: Field "used_memory" is not a valid field'
    )


@pytest.mark.parametrize("word", ["[N/A]", "[Not Supported]", "[Insufficient Permissions]", "[GPU requires reset]"])
def test_a_memory_in_use_that_is_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, word: str) -> None:
    smi.install(monkeypatch, tmp_path, smi.gpu())
    found = node_room.read().gpus
    smi.install(monkeypatch, tmp_path, smi.gpu(memory_used=word))
    with pytest.raises(NodeError) as caught:
        gpu_memory.used_mib(found)
    assert caught.value.what == f"nvidia-smi does not tell the memory in use on GPU 0 (NVIDIA H200): {word}"


def test_a_gpu_that_fell_off_the_bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi.install(monkeypatch, tmp_path, *two())
    found = node_room.read().gpus
    smi.install(monkeypatch, tmp_path, smi.gpu(0))
    with pytest.raises(NodeError, match="GPU 1 is no longer listed"):
        gpu_memory.used_mib(found)


def test_memory_that_did_not_come_back_is_told_with_its_holder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi.install(monkeypatch, tmp_path, smi.gpu(), apps=[smi.app(2**22 + 1, "VLLM::Worker_TP0", "4000")])
    more = gpu_memory.more_than_before({"a": 100, "GPU-0aaa1111": 4}, {"a": 164, "GPU-0aaa1111": 4100})
    assert more == {"GPU-0aaa1111": 4096}, "64 MiB are the driver's own"
    (kept,) = gpu_memory.kept(more)
    holder = f"held by pid {2**22 + 1} (VLLM::Worker_TP0, 4000 MiB)"
    assert kept == f"GPU GPU-0aaa1111 holds 4096 MiB more than before the run, {holder}"
