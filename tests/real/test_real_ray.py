"""Ray with real servers: four at once on two cores, a worker that is killed, releases bisected, a node taken away."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import ray_cluster

from harness import locks, record
from harness.bisect import outcome

pytest.importorskip("ray", reason="the extra `ray` is not installed: pip install 'harness[ray]'")
pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TINY = [str(ROOT / "scenarios" / "tiny_lm.yaml"), "--variant", "eager"]
ONE_CHECK = ["--set", "checks={replace: {warmup: {}}}"]
CLASS = '--resources={"node-class:cpu": 1}'
SPACE, HERE, THERE = "harness-ray", "10.213.7.1", "10.213.7.2"


@pytest.fixture
def variables(tmp_path, monkeypatch, vllm_environment):
    """`vllm_environment` holds the CPU against other tests; runs under Ray have leases of their own."""
    own = {"HARNESS_HISTORY": str(tmp_path / "history"), "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}
    for name, word in own.items():
        monkeypatch.setenv(name, word)
    return {**own, "HARNESS_LEASES": str(tmp_path / "leases")}


def leases(folder):
    """Names of the leases in it that somebody holds."""
    held = []
    for file in sorted(folder.glob("cpu-*.lock")):
        fd = locks.open_file(file)
        if not locks.try_lock(fd):
            held.append(file.stem)
        os.close(fd)
    return held


def harness(place, *words):
    line = [sys.executable, "-m", "harness", *words]
    return subprocess.Popen(line, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def lines(process, began):
    """What it prints, printed with the seconds since `began` for the evidence."""
    for line in process.stdout:
        print(f"{time.monotonic() - began:6.1f} s  {line}", end="")
        yield line


def below():
    return {child for hand in ray_cluster.hands() for child in hand.children(recursive=True)}


def named(processes, word):
    return [each for each in processes if ray_cluster.has(each, word)]


def records(place):
    return sorted(map(record.load, place.glob("reports/*/run.json")), key=lambda run: run.started)


def test_four_real_servers_at_once_each_with_its_own_lease(variables, vllm_build, tmp_path):
    most, seen, held, began = 0, set(), [], time.monotonic()
    with ray_cluster.started("--num-gpus=4", CLASS, **variables) as made:
        words = [*TINY, *ONE_CHECK, "--repeat", "4", "--build", str(vllm_build), "--ray", made.address]
        process = harness(tmp_path, "run", *words)
        for _ in lines(process, began):
            seen |= (now := below())
            most = max(most, len(named(now, "VLLM::EngineCore")))
            held = max(held, leases(tmp_path / "leases"), key=len)
        assert process.wait() == 0
        assert [run.verdict for run in records(tmp_path)] == ["PASS"] * 4
        assert most == 4
        assert held == ["cpu-0", "cpu-1", "cpu-2", "cpu-3"]
        assert not psutil.wait_procs(seen, timeout=30)[1]


def test_a_worker_with_a_real_server_that_is_killed(variables, vllm_build, tmp_path):
    """Of two runs on two nodes one loses its worker while its engine starts; it is made again on the other node."""
    killed, at, nodes, began = [], 0.0, [], time.monotonic()
    with ray_cluster.started("--num-gpus=1", CLASS, **variables) as made:
        made.add("--num-gpus=1", CLASS, variables={"HARNESS_LEASES": str(tmp_path / "leases of another")})
        words = [*TINY, *ONE_CHECK, "--repeat", "2", "--build", str(vllm_build), "--ray", made.address]
        process = harness(tmp_path, "run", *words)
        for line in lines(process, began):
            nodes += [line.rpartition("(node ")[2][:8]] if "notice: " in line and "(node " in line else []
            if not killed and (engines := named(below(), "VLLM::EngineCore")) and len(nodes) == 2:
                (hand,) = [each for each in ray_cluster.hands() if engines[0] in each.children(recursive=True)]
                killed = hand.children(recursive=True)
                hand.kill()
                at = time.monotonic()
                assert not psutil.wait_procs(killed, timeout=60)[1], "no orphan"
                print(f"{len(killed)} processes below the worker gone {time.monotonic() - at:.1f} s after its SIGKILL")
        assert process.wait() == 0
    assert killed
    lost = [run for run in records(tmp_path) if run.verdict == "ERROR"]
    assert [run.verdict for run in records(tmp_path)].count("PASS") == 2
    assert [(run.blame, run.signature) for run in lost] == [("node", None)]
    print(lost[0].reason)
    assert len(nodes) == 3
    assert len(set(nodes)) == 2
    assert nodes[2] not in lost[0].reason


def rounds(runs):
    """The most runs of which each began after the one before had ended."""
    count, free = 0, ""
    for run in sorted(runs, key=lambda run: run.ended):
        if run.started >= free:
            count, free = count + 1, run.ended
    return count


def test_a_bisection_of_releases_with_three_workers_takes_fewer_rounds(variables, tmp_path):
    flag = ["--set", "checks={replace: {}}", "--set", "serve.calculate-kv-scales=true"]
    ends = ["--good", "0.27.0+cpu", "--bad", "0.32.0+cpu"]
    told, taken = {}, {}
    with ray_cluster.started("--num-gpus=3", CLASS, **variables) as made:
        for jobs in (1, 3):
            place, began = tmp_path / str(jobs), time.monotonic()
            place.mkdir()
            words = [*TINY, *flag, *ends, "--jobs", str(jobs), "--ray", made.address]
            process = harness(place, "bisect", *words)
            for _ in lines(process, began):
                pass
            assert process.wait() == 0
            (folder,) = place.glob("reports/bisect-*")
            told[jobs], taken[jobs] = outcome.load(folder), rounds(records(place))
            print(jobs, taken[jobs], told[jobs].predicted, f"{time.monotonic() - began:.0f} s")
    assert told[1].culprits == told[3].culprits == ("release:0.28.0+cpu",)
    assert taken[3] < taken[1]


@pytest.fixture
def space():
    """A network namespace that sees this machine over one pair of interfaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and the program `ip`")
    steps = [
        f"netns add {SPACE}",
        f"link add {SPACE}0 type veth peer name {SPACE}1 netns {SPACE}",
        f"addr add {HERE}/24 dev {SPACE}0",
        f"link set {SPACE}0 up",
        f"-n {SPACE} addr add {THERE}/24 dev {SPACE}1",
        f"-n {SPACE} link set {SPACE}1 up",
        f"-n {SPACE} link set lo up",
    ]
    try:
        for step in steps:
            subprocess.run(["ip", *step.split()], check=True)
        yield SPACE
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run(["ip", "netns", "del", SPACE], check=True)


def test_a_node_that_the_network_loses(variables, vllm_build, tmp_path, space):
    """Nobody closes a connection: the cluster must notice by itself, and so must the node that is alone."""
    gone, at, began = [], 0.0, time.monotonic()
    with ray_cluster.started("--num-gpus=0", host=HERE, **variables) as made:
        within = ["ip", "netns", "exec", space]
        made.add("--num-gpus=1", CLASS, host=THERE, within=within)
        words = [*TINY, *ONE_CHECK, "--build", str(vllm_build), "--ray", made.address]
        process = harness(tmp_path, "run", *words)
        for line in lines(process, began):
            if not gone and named(below(), "VLLM::EngineCore"):
                gone, at = list(below()), time.monotonic()
                other = {"HARNESS_LEASES": str(tmp_path / "leases of another")}
                made.add("--num-gpus=1", CLASS, variables=other)
                subprocess.run(["ip", "link", "set", f"{space}0", "down"], check=True)
                print(f"taken away {time.monotonic() - began:.1f} s")
            if "made once more" in line:
                print(f"noticed {time.monotonic() - at:.1f} s after")
        assert process.wait() == 0
        first, second = records(tmp_path)
        print(first.reason)
        assert (first.verdict, first.blame, first.signature, second.verdict) == ("ERROR", "node", None, "PASS")
        left = psutil.wait_procs(gone, timeout=180)[1]
        print(f"{len(gone)} processes of the lone node gone {time.monotonic() - at:.1f} s after")
        assert not left
