"""A Ray cluster of raylets on this machine, loopback only, started and stopped by a test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness import node

RAY = Path(sys.executable).with_name("ray")
STORE = 100 << 20
_NONE: Mapping[str, str] = {}


@dataclass
class Cluster:
    """`port` of the head, the raylet of each node."""

    folder: Path
    host: str
    port: int
    env: dict[str, str]
    raylets: list[psutil.Process] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def add(
        self, *words: str, host: str = "", within: Sequence[str] = (), variables: Mapping[str, str] = _NONE
    ) -> psutil.Process:
        """Start one more node, by a command line behind `within`; gives its raylet."""
        where = [f"--address={self.address}"]
        if not self.raylets:
            where = ["--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self.folder}"]
        fixed = [f"--node-ip-address={host or self.host}", "--num-cpus=2", f"--object-store-memory={STORE}"]
        line = [*within, str(RAY), "start", *where, *fixed, "--disable-usage-stats", *words]
        before = set(self._raylets())
        subprocess.run(line, env={**self.env, **variables}, check=True, stdout=subprocess.DEVNULL)
        (raylet,) = set(self._raylets()) - before
        self.raylets.append(raylet)
        return raylet

    def _raylets(self) -> list[psutil.Process]:
        return [
            process
            for process in psutil.process_iter()
            if _name(process) == "raylet" and any(str(self.folder) in word for word in process.cmdline())
        ]

    def stop(self) -> None:
        """End what belongs to this cluster, and nothing else."""
        mine = [each for each in psutil.process_iter() if _of(each, self.folder)]
        for process in mine:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(mine, timeout=20)


def title(process: psutil.Process) -> str:
    """What a process calls itself: Ray's workers say what they do."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def has(process: psutil.Process, word: str) -> bool:
    return word in title(process)


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.name()
    return ""


def _of(process: psutil.Process, folder: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        return any(f"{folder}/" in word or word.endswith(str(folder)) for word in words) and "pytest" not in words[:3]
    return False


@contextlib.contextmanager
def started(*words: str, host: str = "127.0.0.1", **variables: str) -> Iterator[Cluster]:
    """A cluster of one node."""
    folder = Path(tempfile.mkdtemp(prefix="hr-", dir="/tmp"))  # short: Ray makes Unix sockets below it
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", **variables}
    made = Cluster(folder, host, node.free_port(), env)
    try:
        made.add(*words)
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def hands() -> list[psutil.Process]:
    """Our actors: Ray names their processes so."""
    return [each for each in psutil.process_iter() if title(each).startswith("ray::Hand.work")]


def wait_for(what, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)
