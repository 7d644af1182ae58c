from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from harness import leases, nvidia
from harness import node as node_room
from harness.errors import NodeError, UnmetError
from harness.node import Gpu, Node

H200 = "NVIDIA H200"
TWO = f"0, GPU-aaaa1111, {H200}, 143771, 4\n1, GPU-bbbb2222, {H200}, 143771, 60000\n"


@pytest.fixture(autouse=True)
def own_leases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HARNESS_LEASES", str(tmp_path / "leases"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "leases"


def fake_smi(monkeypatch: pytest.MonkeyPatch, folder: Path, output: str, code: int = 0) -> None:
    """A real program of that name on PATH, which prints what a driver would."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "answer").write_text(output)
    program = folder / "bin" / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\ncat {folder}/answer\nexit {code}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")


def gpus(count: int, gib: int = 140) -> tuple[Gpu, ...]:
    return tuple(Gpu(index=i, uuid=f"GPU-{i}", name=H200, memory_mib=gib * 1024, used_mib=0) for i in range(count))


def make_node(count: int, gib: int = 140) -> Node:
    return Node(hostname="n", cpus=2, memory_mib=1000, gpus=gpus(count, gib), node_class="h200" if count else "cpu")


# --- reading


def test_a_node_without_nvidia_smi_is_a_cpu_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    node = node_room.read()
    assert (node.gpus, node.node_class, node.accelerator) == ((), "cpu", "cpu")
    assert node.cpus == len(os.sched_getaffinity(0))
    assert node.memory_mib == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def test_gpus_are_read_from_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_smi(monkeypatch, tmp_path, TWO)
    node = node_room.read()
    assert node.gpus[1] == Gpu(index=1, uuid="GPU-bbbb2222", name=H200, memory_mib=143771, used_mib=60000)
    assert (len(node.gpus), node.node_class, node.accelerator) == (2, "h200", "cuda")
    assert (tmp_path / "asked").read_text().splitlines()[0] == (
        "--query-gpu=index,uuid,name,memory.total,memory.used --format=csv,noheader,nounits"
    )
    assert node.record()["gpus"][0]["uuid"] == "GPU-aaaa1111"


@pytest.mark.parametrize(
    ("devices", "indices"),
    [
        ("1", [1]),
        ("1,0", [1, 0]),
        ("GPU-bbbb", [1]),
        ("gpu-aaaa1111, 1", [0, 1]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices_is_honoured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, devices: str, indices: list[int]
) -> None:
    fake_smi(monkeypatch, tmp_path, TWO)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    assert [gpu.index for gpu in node_room.read().gpus] == indices


@pytest.mark.parametrize("devices", ["2", "0,7", "GPU-cccc", "GPU-", "x"])
def test_a_device_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, devices: str) -> None:
    fake_smi(monkeypatch, tmp_path, TWO)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    with pytest.raises(NodeError, match=rf"names '{devices.rsplit(',', maxsplit=1)[-1]}', this node has GPUs 0, 1"):
        node_room.read()


def test_a_failing_driver_speaks_in_its_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_smi(
        monkeypatch,
        tmp_path,
        "NVIDIA-SMI has failed because it couldn't\ncommunicate with the NVIDIA driver.\n",
        code=9,
    )
    with pytest.raises(NodeError) as caught:
        node_room.read()
    assert caught.value.what == (
        "nvidia-smi failed with exit 9: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    )
    assert "CUDA_VISIBLE_DEVICES" in caught.value.fix
    assert node_room.describe().node_class == "unknown"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the way out that the error names
    assert node_room.read().node_class == "cpu"


@pytest.mark.parametrize("line", ["0, GPU-a, NVIDIA GB10, much, 4", "what is this", "0, GPU-a, name"])
def test_an_unreadable_line_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str) -> None:
    fake_smi(monkeypatch, tmp_path, line + "\n")
    with pytest.raises(NodeError) as caught:
        node_room.read()
    assert repr(line) in caught.value.what


def test_a_driver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_smi(monkeypatch, tmp_path, "")
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(nvidia, "SECONDS", 0.2)
    with pytest.raises(NodeError, match="did not answer"):
        node_room.read()


# --- fitness


@pytest.mark.parametrize(
    ("node", "needs", "said"),
    [
        (make_node(0), (8, 130.0), "needs 8 GPUs of 130 GiB, this node has none"),
        (make_node(1), (8, 130.0), "needs 8 GPUs of 130 GiB, this node has 1 GPU of 140 GiB"),
        (make_node(8, 79), (1, 130.0), "needs 1 GPU of 130 GiB, this node has 8 GPUs of 79 GiB"),
        (make_node(0), (2, None), "needs 2 GPUs, this node has none"),
    ],
)
def test_unmet_needs(node: Node, needs: tuple[int, float | None], said: str) -> None:
    fix = "try `--variant mini` on one GPU, or tiny_lm"
    with pytest.raises(UnmetError) as caught:
        node_room.check_needs(node, gpus=needs[0], gpu_memory_gib=needs[1], fix=fix)
    assert (caught.value.what, caught.value.fix) == (said, fix)


@pytest.mark.parametrize("needs", [(None, None), (0, None), (None, 130.0), (8, 140.0), (1, 79.6)])
def test_met_needs(needs: tuple[int | None, float | None]) -> None:
    node_room.check_needs(make_node(8), gpus=needs[0], gpu_memory_gib=needs[1])


# --- leases

HOLD = """
import sys, time
from harness import leases
from harness.node import Gpu, Node
count, want, what, seconds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
gpus = tuple(Gpu(index=i, uuid=f"GPU-{i}", name="NVIDIA H200", memory_mib=143360, used_mib=0) for i in range(count))
here = Node(hostname="n", cpus=2, memory_mib=1000, gpus=gpus)
with leases.lease(here, gpus=want, wait=60, what=what, on_wait=lambda text: print(text, flush=True)) as lease:
    print("got", *(gpu.index for gpu in lease.gpus), flush=True)
    time.sleep(seconds)
"""


def hold(count: int, want: int, what: str = "other", seconds: float = 60) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", HOLD, str(count), str(want), what, str(seconds)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_the_cpu_is_leased_once_and_freed_by_kill_9() -> None:
    with hold(0, 0, "tiny_lm") as other:
        assert first_line(other) == "got"
        with pytest.raises(NodeError) as caught, leases.lease(make_node(0), gpus=0, wait=0):
            pass
        assert f"the CPU, held by pid {other.pid} (tiny_lm, since 20" in caught.value.what
        waits: list[str] = []
        threading.Timer(0.5, other.send_signal, (signal.SIGKILL,)).start()
        begun = time.monotonic()
        with leases.lease(make_node(0), gpus=0, wait=30, on_wait=waits.append) as lease:
            assert lease.gpus == ()
        assert time.monotonic() - begun < 5
        assert len(waits) == 1
        assert waits[0].startswith("waiting for the CPU, held by pid")


def test_two_runs_get_different_gpus_the_emptiest_first() -> None:
    full, empty = gpus(2)
    node = Node(hostname="n", cpus=2, memory_mib=1000, gpus=(Gpu(**{**vars_of(full), "used_mib": 50_000}), empty))
    with leases.lease(node, gpus=1, wait=0) as first, leases.lease(node, gpus=1, wait=0) as second:
        assert [gpu.index for gpu in first.gpus] == [1]
        assert [gpu.index for gpu in second.gpus] == [0]
        with pytest.raises(NodeError, match="waited 0 s for 1 GPU, held by pid"), leases.lease(node, gpus=1, wait=0):
            pass


def vars_of(gpu: Gpu) -> dict[str, object]:
    return {name: getattr(gpu, name) for name in Gpu.__slots__}


def test_all_or_nothing_a_waiter_for_two_holds_none_meanwhile() -> None:
    with hold(2, 1) as one:
        assert first_line(one) == "got 0"
        with hold(2, 2) as both:
            assert first_line(both).startswith(f"waiting for 2 GPUs, held by pid {one.pid}")
            with leases.lease(make_node(2), gpus=1, wait=5) as lease:
                assert [gpu.index for gpu in lease.gpus] == [1]
            one.kill()
            assert first_line(both) == "got 0 1"
            both.kill()


def test_overlapping_sets_never_deadlock() -> None:
    processes = [hold(3, want, seconds=0.05) for want in (2, 3, 2, 1, 3, 2)]
    for process in processes:
        with process:
            out, _ = process.communicate(timeout=60)
            assert process.returncode == 0
            assert "got" in out


def test_more_than_there_is_is_unmet_at_once() -> None:
    with (
        pytest.raises(UnmetError, match="needs 3 GPUs, this node has 2 GPUs of 140 GiB"),
        leases.lease(make_node(2), gpus=3, wait=60),
    ):
        pass


def test_child_processes_do_not_inherit_a_lease_unless_it_is_handed_to_them() -> None:
    argv = ["sleep", "60"]
    with leases.lease(make_node(1), gpus=1, wait=0) as lease:
        stray = subprocess.Popen(argv, close_fds=False)
    try:
        with leases.lease(make_node(1), gpus=1, wait=0) as lease:
            keeper = subprocess.Popen(argv, pass_fds=lease.fds)
        with pytest.raises(NodeError), leases.lease(make_node(1), gpus=1, wait=0):
            pass
        keeper.kill()
        keeper.wait()
        with leases.lease(make_node(1), gpus=1, wait=0):
            pass
    finally:
        stray.kill()
        stray.wait()


def test_every_user_may_lock(own_leases: Path) -> None:
    before = os.umask(0o077)
    try:
        with leases.lease(make_node(1), gpus=1, wait=0):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(own_leases.stat().st_mode) == 0o1777
    assert {stat.S_IMODE(file.stat().st_mode) for file in own_leases.iterdir()} == {0o666}


def test_a_lease_folder_that_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_LEASES", str(tmp_path / "file" / "leases"))
    with pytest.raises(NodeError, match="cannot make"), leases.lease(make_node(0), gpus=0, wait=0):
        pass


def test_a_lock_file_is_never_followed_through_a_link(own_leases: Path, tmp_path: Path) -> None:
    own_leases.mkdir()
    (tmp_path / "precious").write_text("precious")
    (own_leases / "cpu.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(NodeError, match="cannot open the lock file"), leases.lease(make_node(0), gpus=0, wait=0):
        pass
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_free_port_is_free_and_not_one_that_the_kernel_gives_away() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [node_room.free_port() for _ in range(20)]
    assert all(20_000 <= port < low for port in ports)
    assert len(set(ports)) > 15
    with socket.socket() as server:
        server.bind(("127.0.0.1", ports[0]))
