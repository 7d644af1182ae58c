"""Who cleans up when the one who should is killed: the harness at any moment, either half of the keeper, or both."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from server_helpers import HARD_TO_KILL, free_port, lives, make_server, pids, wait_until

from harness.errors import NodeError
from harness.server import proctree
from harness.server.living import Ready

HERE = Path(__file__).parent
HARNESS = f"""
import sys
sys.path[:0] = {[str(HERE.parent), str(HERE)]!r}
from server_helpers import make_server
import json
server = make_server(json.loads(sys.argv[1]), sys.argv[2])
server._kept.temp = sys.argv[3]
print("go", flush=True)
with server:
    server.wait_ready()
"""


def with_words(word):
    """Living processes with a word in their command line."""
    found = []
    for process in proctree.everything().values():
        try:
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in line and process.state not in "ZX":
            found.append(process.pid)
    return found


def start_harness(folder, word):
    """A harness process around a tree of three that all ignore signals; all carry `word` in their command line."""
    name = f"psm_{word}"
    daemon = ["daemon", [HARD_TO_KILL, ["shm", name], ["pid", "daemon"], ["wait"]]]
    steps = [["say", word], HARD_TO_KILL, daemon, ["fork", [HARD_TO_KILL, ["wait"]]], ["temp"], ["wait"]]
    temp = f"/tmp/hns-{word}"
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, json.dumps(steps), str(folder), temp], stdout=subprocess.PIPE
    )
    assert harness.stdout.readline() == b"go\n"
    return harness, Path(temp), Path("/dev/shm", name)


@pytest.mark.parametrize("moment", [0, 5, 10, 20, 30, 40, 50, 60, 80, 100, 150, 200, 300, 500])
def test_kill_9_of_the_harness_leaves_nothing(tmp_path, moment):
    word = f"{random.randrange(1 << 48):012x}"
    harness, temp, shared = start_harness(tmp_path, word)
    time.sleep(moment / 1000 * random.uniform(0.8, 1.2))
    harness.kill()
    harness.wait()
    harness.stdout.close()
    wait_until(lambda: not with_words(word), 5)  # the keeper carries the word in the name of the temporary folder
    assert not temp.exists()
    assert not shared.exists()


def test_kill_9_of_the_harness_with_everything_up(tmp_path):
    word = f"{random.randrange(1 << 48):012x}"
    harness, temp, shared = start_harness(tmp_path, word)
    wait_until(lambda: shared.exists() and (temp / "a" / "file").exists() and pids(tmp_path / "server.log", "daemon"))
    assert len(with_words(word)) == 6  # harness, guard, worker, leader, child, daemon
    begin = time.monotonic()
    harness.kill()
    harness.wait()
    harness.stdout.close()
    wait_until(lambda: not with_words(word), 5)
    assert time.monotonic() - begin < 2
    assert not temp.exists()
    assert not shared.exists()


@pytest.mark.parametrize("victims", ["guard", "worker", "both"])
def test_a_killed_keeper_is_a_node_error_and_leaves_nothing(tmp_path, victims):
    port = free_port()
    steps = [["daemon", [HARD_TO_KILL, ["pid", "daemon"], ["wait"]]], HARD_TO_KILL, ["temp"], ["serve", port], ["wait"]]
    with make_server(steps, tmp_path, port=port) as server:
        assert isinstance(server.wait_ready(), Ready)
        wait_until(lambda: pids(tmp_path / "server.log", "daemon"))
        server._kept.tree()
        guard, worker = server._kept._guard.pid, server._kept._worker
        for pid in {"guard": (guard,), "worker": (worker,), "both": (guard, worker)}[victims]:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server._kept.lost)
        with pytest.raises(NodeError, match="the process that keeps the server ended"):
            server.exited()
        teardown = server.stop()
    assert teardown.survivors == ()
    assert not [pid for pid in (server.pid, guard, worker, *pids(tmp_path / "server.log", "daemon")) if lives(pid)]
    assert not Path(server._kept.temp).exists()


def test_signals_to_everybody_do_not_take_the_keeper_away(tmp_path):
    port = free_port()
    with make_server([HARD_TO_KILL, ["serve", port], ["wait"]], tmp_path, port=port) as server:
        assert isinstance(server.wait_ready(), Ready)
        for pid in (server._kept._guard.pid, server._kept._worker):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(pid, number)
        time.sleep(0.1)
        assert server.exited() is None
        assert server.stop(within=1).survivors == ()
