"""Shared by the tests of the server: a Server around the stand-in, and what is left of it."""

import json
import os
import socket
import sys
import time
from pathlib import Path

from harness.launch import Launch
from harness.masking import Masker
from harness.server import proctree
from harness.server.living import Server

STANDIN = str(Path(__file__).with_name("standin.py"))
HARD_TO_KILL = ["ignore", "SIGTERM", "SIGINT", "SIGHUP"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def launch(steps, port, *, env=()):
    return Launch(
        argv=(sys.executable, STANDIN, json.dumps(steps)),
        env={**os.environ, **dict(env)},
        recorded_env={},
        host="127.0.0.1",
        port=port,
        served_model_name="standin",
        caches=Path("/nowhere/caches"),
    )


def make_server(
    steps, folder, *, port=None, secrets=(), literals=(b"MARK",), startup=30, silence=20, stop=10, on_line=print, env=()
):
    return Server(
        launch(steps, port or free_port(), env=env),
        folder=Path(folder),
        health_path="/health",
        literals=literals,
        startup=startup,
        silence=silence,
        stop=stop,
        masker=Masker(secrets),
        on_line=on_line,
    )


def pids(log, label):
    """Pids that processes printed as `LABEL pid`."""
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith(label + " ")]


def lives(pid):
    process = proctree.read(pid)
    return process is not None and process.state not in "ZX"


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.005)
