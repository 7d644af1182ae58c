"""Ray itself: a cluster of raylets on this machine, stand-ins for servers. Skipped where the extra is not installed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import ray_cluster
import standin_build

from harness import record

pytest.importorskip("ray", reason="the extra `ray` is not installed: pip install 'harness[ray]'")

ROOT = Path(__file__).parents[1]
BUDGETS = "budgets: {startup: 90s, silence: 60s, stop: 5s}"


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    names = {"HARNESS_CACHE": "cache", "HARNESS_LEASES": "leases", "HARNESS_HISTORY": "history.sqlite"}
    own = {name: str(folder / word) for name, word in names.items()}
    return {**own, "RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def cluster(variables):
    with ray_cluster.started("--num-gpus=4", '--resources={"node-class:cpu": 1}', **variables) as made:
        yield made


@pytest.fixture
def place(tmp_path, variables, monkeypatch):
    for name, word in variables.items():
        monkeypatch.setenv(name, word)
    standin_build.make_build(tmp_path)
    return tmp_path


def harness(place, *words, **rest):
    return subprocess.Popen(
        [sys.executable, "-m", "harness", *words, "--build", f"venv:{place / 'venv'}"], cwd=place,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **rest,
    )  # fmt: skip


def scenarios(place, steps, *names):
    return [standin_build.make_scenario(place, steps, BUDGETS, name=name).name for name in names]


def records(place):
    return [record.load(file) for file in sorted(place.glob("reports/*/run.json"))]


def servers(place):
    """Stand-ins whose steps name this test's folder."""
    every = psutil.process_iter()
    return [each for each in every if ray_cluster.has(each, "standin.py") and ray_cluster.has(each, str(place))]


def until(process, text, count=1):
    for line in process.stdout:
        count -= text in line
        if count == 0:
            return
    raise AssertionError(f"{text!r} was never printed so often")


def test_four_at_once_each_with_a_lease_of_its_own(cluster, place, variables):
    """None of them ends before all of them have begun."""
    steps = [["say", "hello"], ["meet", str(place / "met"), 4], ["serve", "PORT"], ["wait"]]
    names = scenarios(place, steps, *"abcd")
    done = harness(place, "run", *names, "--ray", cluster.address)
    out, _ = done.communicate(timeout=120)
    assert done.returncode == 0, out
    assert [run.verdict for run in records(place)] == ["PASS"] * 4
    shares = sorted(file.name for file in Path(variables["HARNESS_LEASES"]).glob("cpu-*.lock"))
    assert shares == ["cpu-0.lock", "cpu-1.lock", "cpu-2.lock", "cpu-3.lock"]
    assert out.count("step: [") == 12


@pytest.mark.parametrize("victim", ["worker", "child"])
def test_a_process_that_is_killed_is_an_error_and_the_run_is_made_once_more(cluster, place, victim):
    steps = [["say", "hello"], ["once", str(place / "been")], ["serve", "PORT"], ["wait"]]
    (name,) = scenarios(place, steps, "a")
    process = harness(place, "run", name, "--ray", cluster.address)
    until(process, "spawned")
    ray_cluster.wait_for((place / "been").exists)
    (worker,) = ray_cluster.hands()
    below = worker.children(recursive=True)
    (child,) = [each for each in worker.children() if ray_cluster.has(each, "spawn_main")]
    (worker if victim == "worker" else child).kill()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    first, second = records(place)
    assert (first.verdict, first.blame, first.signature, second.verdict) == ("ERROR", "node", None, "PASS")
    assert "was killed" in first.reason or "lost it" in first.reason
    assert not psutil.wait_procs(below, timeout=20)[1], "no orphan"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_whoever_stops_the_driver_stops_the_servers(cluster, place, number):
    names = scenarios(place, [["say", str(place)], ["wait"]], "a", "b")
    process = harness(place, "run", *names, "--ray", cluster.address)
    until(process, "spawned", 2)
    ray_cluster.wait_for(lambda: len(servers(place)) == 2)
    below = {child for hand in ray_cluster.hands() for child in hand.children(recursive=True)}
    assert set(servers(place)) <= below
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130), out
    assert not psutil.wait_procs(below, timeout=30)[1]
    if number != signal.SIGKILL:
        assert {(run.state, run.teardown and run.teardown.survivors) for run in records(place)} == {("interrupted", ())}


def test_a_node_that_is_taken_away(place, variables):
    """Two raylets; the one with the run is killed in its middle, and the run goes to the other."""
    steps = [["say", "hello"], ["once", str(place / "been")], ["serve", "PORT"], ["wait"]]
    (name,) = scenarios(place, steps, "a")
    with ray_cluster.started("--num-gpus=0", **variables) as made:
        one = made.add("--num-gpus=1", '--resources={"node-class:cpu": 1}')
        process = harness(place, "run", name, "--ray", made.address)
        until(process, "spawned")
        ray_cluster.wait_for((place / "been").exists)
        made.add("--num-gpus=1", '--resources={"node-class:cpu": 1}')
        below = [child for worker in ray_cluster.hands() for child in worker.children(recursive=True)]
        one.kill()
        out, _ = process.communicate(timeout=180)
        assert process.returncode == 0, out
        first, second = records(place)
        assert (first.verdict, first.blame, first.signature, second.verdict) == ("ERROR", "node", None, "PASS")
        assert "of the cluster) was lost, or the process" in first.reason
        assert below
        assert not psutil.wait_procs(below, timeout=30)[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ray", "127.0.0.1:1"], "no cluster answers"),
        (["--ray", "ray://127.0.0.1:10001"], "results cannot come back through a Ray client"),
    ],
)
def test_an_address_without_a_cluster(place, words, said):
    names = scenarios(place, standin_build.HEALTHY, "a")
    done = harness(place, "run", *names, *words)
    out, _ = done.communicate(timeout=120)
    assert (done.returncode, said in out) == (2, True), out
