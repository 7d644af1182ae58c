"""Memory: what a footprint counts, and what is made of four of them."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from harness.checks.memory import MemoryParams, judge
from harness.server import footprint
from harness.server.footprint import Footprint

EMPTY = Footprint(processes=0, host=0.0, shared=10.0, used=900.0)
READY = Footprint(processes=3, host=700.0, shared=40.0, used=1700.0)
CPU = {"before": EMPTY, "ready": READY, "last": replace(READY, host=716.0), "after": replace(EMPTY, used=930.0)}
GPU = {
    moment: replace(value, gpus={"GPU-a": used, "GPU-b": used + 5})
    for (moment, value), used in zip(CPU.items(), (500, 40_000, 40_200, 510), strict=True)
}


def judged(memory, **params):
    return judge(MemoryParams(**params), memory)


def test_of_a_node_without_gpus():
    result = judged(CPU)
    assert result.outcome == "pass"
    assert {m.name: m.value for m in result.measurements} == {
        "host_ready": 700.0, "host_growth": 16.0, "shared_left": 0.0, "host_left": 30.0,
    }  # fmt: skip
    assert {m.unit for m in result.measurements} == {"MiB"}


def test_of_several_gpus_the_worst_counts():
    result = judged(GPU)
    assert result.outcome == "pass"
    values = {m.name: m.value for m in result.measurements}
    assert (values["gpu_ready"], values["gpu_growth"], values["gpu_left"]) == (40_005.0, 200.0, 10.0)


@pytest.mark.parametrize(
    ("memory", "params", "message"),
    [
        (CPU, {"max_host": 600}, "the server's processes take more than they may (700 MiB, at most 600)"),
        (CPU, {"max_host_growth": 8}, "the server's processes grew while it answered (16 MiB, at most 8)"),
        (CPU, {"max_host_left": 20}, "the node's memory did not come back (30 MiB, at most 20)"),
        (GPU, {"max_gpu": 30_000}, "a GPU holds more than it may (40005 MiB, at most 30000)"),
        (GPU, {"max_gpu_growth": 100}, "the memory of a GPU grew while it answered (200 MiB, at most 100)"),
        (GPU, {"max_gpu_left": 8}, "the memory of a GPU did not come back (10 MiB, at most 8)"),
        (
            {**CPU, "after": replace(EMPTY, shared=200.0)}, {},
            "shared memory did not come back (190 MiB, at most 64)",
        ),
        (
            {**CPU, "ready": replace(READY, host=None)}, {"max_host": 900},
            "the server's processes take more than they may (unknown MiB, at most 900)",
        ),
    ],
)  # fmt: skip
def test_limits(memory, params, message):
    result = judged(memory, **params)
    assert (result.outcome, result.message) == ("fail", message)
    assert len([m for m in result.measurements if not m.ok]) == 1


def test_pages_that_processes_share_count_once(tmp_path):
    """100 MiB, touched before the fork: RSS would say 200."""
    code = (
        "import os, time; x = bytearray(b'x') * (100 << 20); pid = os.fork(); print('up', flush=True); time.sleep(60)"
    )
    before = footprint.take(None, {})
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        try:
            parent.stdout.readline()
            parent.stdout.readline()
            taken = footprint.take(parent.pid, {"GPU-a": 7})
        finally:
            for process in footprint.proctree.descendants(parent.pid):
                os.kill(process.pid, 9)
            parent.kill()
    assert (before.processes, before.host) == (0, 0.0)
    assert (taken.processes, taken.gpus) == (2, {"GPU-a": 7})
    assert 100 <= taken.host < 160
    assert taken.used > 0


def test_shared_memory_of_the_node_is_seen():
    before = footprint.take(None, {}).shared
    name = f"/dev/shm/harness-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        with open(name, "wb") as file:  # noqa: PTH123
            file.write(b"x" * (64 << 20))
        assert footprint.take(None, {}).shared >= before + 60
    finally:
        os.unlink(name)  # noqa: PTH108


def test_processes_that_are_gone_or_not_ours(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 2048 kB\nMemAvailable: 1024 kB\nShmem: 512 kB\nHugePages_Total: 0\n")
    taken = footprint.take(1, {}, proc=tmp_path)
    assert (taken.host, taken.used, taken.shared) == (0.0, 1.0, 0.5), "it ended in between"
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "smaps_rollup").mkdir()  # reading it fails
    assert footprint.take(1, {}, proc=tmp_path).host is None
