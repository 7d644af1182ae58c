"""`kill -9` in the middle of every step of a bisection, then the same command: same answer, no run repeated."""

import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import standin_build

from harness import record
from harness.bisect import outcome

ROOT = Path(__file__).parents[1]
CULPRIT, BUILDS = 3, 6


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Six trees, the fourth of which brought a crash."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    words = []
    for at in range(BUILDS):
        words.append(str(standin_build.make_tree(tmp_path / str(at), version=f"0.{at}.0")))
        source = tmp_path / str(at) / "tree" / "vllm" / "core.py"
        shutil.rmtree(source.parent / "__pycache__")
        if at < CULPRIT:
            source.write_text(
                source.read_text().replace("self.states, self.copied = 4, 2", "self.states, self.copied = 4, 4")
            )
    (tmp_path / "builds").write_text("\n".join(words))
    standin_build.make_scenario(tmp_path, [], "budgets: {startup: 30s, silence: 20s}")
    return [sys.executable, "-m", "harness", "bisect", "stand-in.yaml", "--builds", "builds"]


STEPS = [
    ("notice: bad end", 1), ("run: ", 1), ("step: environment", 1), ("spawned: ", 1), ("verdict", 1), ("mark: BAD", 1),
    ("notice: good end", 1), ("spawned: ", 2), ("phase: stop", 2), ("mark: GOOD", 1), ("builds are possible", 1),
    ("spawned: ", 3), ("mark: ", 3), ("mark: ", 4), ("notice: once more", 1), ("spawned: ", 5), ("verdict", 5),
    ("notice: once more", 2), ("mark: ", 6),
]  # fmt: skip


def killed_at(command, folder, text, count):
    """Kill it when the text was printed for the `count`-th time."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            count -= text in line
            if count == 0:
                process.send_signal(signal.SIGKILL)
                break
        assert count == 0, f"{text!r} was never printed so often"
        process.wait()


def _steps():
    """Every third one each time that CI runs, the others where all is tried."""
    for at, step in enumerate(STEPS):
        yield pytest.param(*step, marks=[] if at % 3 == 0 else [pytest.mark.slow])


@pytest.mark.parametrize(("text", "count"), list(_steps()))
def test_the_same_command_goes_on(command, tmp_path, text, count):
    killed_at(command, tmp_path, text, count)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = tmp_path.glob("reports/bisect-*/bisection.json")
    told = outcome.load(file)
    assert (told.ending, told.culprits) == ("found", (f"tree:{tmp_path / str(CULPRIT) / 'tree'}",))
    found = [record.load(path) for path in tmp_path.glob("reports/*/run.json")]
    finished = Counter(run.build for run in found if run.state == "finished")
    asked = Counter(probe.build for probe in told.probes)
    assert finished == asked
    assert len(found) - sum(finished.values()) <= 1
