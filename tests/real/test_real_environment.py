"""Real releases from the package index into a fresh cache: seconds, megabytes, and an exact re-creation."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness import clock, environment
from harness.build import parse
from harness.environment import Environment
from harness.environment.envcache import disk_bytes
from harness.node import Node

pytestmark = [pytest.mark.real, pytest.mark.slow]
NODE = Node(hostname="n", cpus=2, memory_mib=1000)
MB = 1_000_000


def timed(word: str, cache: Path, lock: Path | None = None) -> tuple[Environment, float, int]:
    """Provide a build: the environment, the seconds, and the disk that it took."""
    before, begun = disk_bytes(cache), clock.now()
    made = environment.provide(parse(word), NODE, cache=cache, lock=lock, on_step=print)
    seconds, added = clock.now() - begun, disk_bytes(cache) - before
    print(f"{word}{' from its lock' if lock else ''}: {seconds:.1f} s, {added / MB:.0f} MB")
    return made, seconds, added


def says(made: Environment) -> str:
    done = subprocess.run([*made.command, "--version"], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.strip().splitlines()[-1]


def test_two_releases_and_a_lock_file(tmp_path: Path) -> None:
    first, _, whole = timed("release:0.32.0+cpu", tmp_path)
    second, seconds, added = timed("release:0.29.0+cpu", tmp_path)
    assert added < whole / 4
    assert seconds < 120
    assert says(first) == "0.32.0+cpu"
    assert says(second) == "0.29.0+cpu"
    assert first.packages["torch"] == "2.13.0+cpu"
    assert not {"torchvision", "torchaudio", "torchcodec"} & first.packages.keys()

    lock = tmp_path / "packages.lock"
    environment.write_lock(second, lock)
    again, _, _ = timed("release:0.29.0+cpu", tmp_path, lock)
    assert again.python != second.python
    assert again.packages == second.packages
    assert says(again) == "0.29.0+cpu"

    pruned = environment.prune(tmp_path, everything=True)
    print(f"pruned {len(pruned.removed)} environments: {pruned.freed_bytes / MB:.0f} MB")
    assert pruned.freed_bytes > whole
