"""The server's life and every way in which it fails, with real processes."""

import http.server
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from server_helpers import HARD_TO_KILL, free_port, launch, lives, make_server, pids, wait_until

from harness.errors import BuildError, NodeError, ScenarioError
from harness.masking import Masker
from harness.server import proctree
from harness.server.living import Exited, Hung, Ready, Server
from harness.server.logpump import LogPump, line_times


def listen(status, port=0):
    """An HTTP server of this very process: somebody else, to the server under test."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_healthy_life(tmp_path):
    port, seen = free_port(), []
    steps = [["say", "MARK one"], ["sleep", 0.3], ["serve", port], ["wait"]]
    with make_server(steps, tmp_path, port=port, on_line=seen.append) as server:
        outcome = server.wait_ready()
        assert isinstance(outcome, Ready)
        assert 0.3 < outcome.t < 10
        assert server.exited() is None
        assert server.tail(5) == ["MARK one"]
        assert server.peak_rss >= 0
        teardown = server.stop()
        assert teardown is server.stop()
    assert [(line.text, line.stream) for line in seen] == [("MARK one", "o")]
    assert teardown.survivors == ()
    assert [step.partition(" +")[0] for step in teardown.steps] == ["SIGTERM leader"]
    assert server.exited() is None, "it did not end by itself"
    assert not lives(server.pid)


def test_harness_knows_within_100_ms_of_the_first_answer(tmp_path):
    port = free_port()
    with make_server([["sleep", 0.4], ["serve", port], ["say", "MARK"], ["wait"]], tmp_path, port=port) as server:
        outcome = server.wait_ready()
        (answers,) = line_times(tmp_path)
    assert isinstance(outcome, Ready)
    assert outcome.t - answers < 0.3, "50 ms between probes; the rest is for a busy machine"


@pytest.mark.parametrize(
    ("last", "how"),
    [
        (["exit", 0], "exit 0"),
        (["exit", 1], "exit 1"),
        (["exit", 2], "exit 2"),
        (["die", "SIGKILL"], "SIGKILL"),
        (["die", "SIGSEGV"], "SIGSEGV"),
    ],
)
def test_an_end_while_starting_is_an_outcome(tmp_path, last, how):
    with make_server([["err", "RuntimeError: boom"], ["sleep", 0.1], last], tmp_path) as server:
        outcome = server.wait_ready()
        knows = time.monotonic() - server.started
    assert isinstance(outcome, Exited)
    assert outcome.how == how
    assert knows - outcome.t < 0.2
    assert (tmp_path / "server.log").read_text() == "RuntimeError: boom\n"


def test_the_last_words_are_on_disk_when_the_end_is_told_however_busy_the_machine_is(tmp_path, monkeypatch):
    """A pump that gets no time of the processor for half a second: the end is known long before the last line."""
    turn = LogPump._turn
    monkeypatch.setattr(LogPump, "_turn", lambda pump: (time.sleep(0.5), turn(pump)))
    with make_server([["say", "the last words"], ["exit", 1]], tmp_path) as server:
        assert isinstance(server.wait_ready(), Exited)
        assert "the last words" in (tmp_path / "server.log").read_text()


def test_exit_0_after_ready_is_an_end_and_told_at_once(tmp_path):
    port, told = free_port(), threading.Event()
    with make_server([["serve", port], ["sleep", 1.0], ["exit", 0]], tmp_path, port=port) as server:
        assert isinstance(server.wait_ready(), Ready)
        server.on_exit(told.set)
        assert told.wait(10)
        exited = server.exited()
        teardown = server.stop()
    assert exited is not None
    assert exited.how == "exit 0"
    assert server.exited() == exited, "the stop does not change how it ended"
    assert teardown.steps == ()
    late = threading.Event()
    server.on_exit(late.set)
    assert late.wait(5), "told at once where it has ended already"


def test_a_daemonised_grandchild_that_ignores_signals_is_killed(tmp_path):
    port = free_port()
    daemon = ["daemon", [["ignore", "SIGTERM", "SIGINT", "SIGHUP"], ["pid", "daemon"], ["wait"]]]
    with make_server(
        [daemon, ["fork", [HARD_TO_KILL, ["pid", "child"], ["wait"]]], ["serve", port], ["wait"]], tmp_path, port=port
    ) as server:
        assert isinstance(server.wait_ready(), Ready)
        log = tmp_path / "server.log"
        wait_until(lambda: pids(log, "daemon") and pids(log, "child"))
        teardown = server.stop()
    assert teardown.survivors == ()
    assert teardown.steps[-1].startswith("SIGKILL tree")
    assert not [pid for pid in (*pids(log, "daemon"), *pids(log, "child"), server.pid) if lives(pid)]


def test_sigterm_ignored_once_is_repeated(tmp_path):
    port = free_port()
    with make_server([["ignore_term", 1], ["serve", port], ["wait"]], tmp_path, port=port) as server:
        assert isinstance(server.wait_ready(), Ready)
        teardown = server.stop()
    assert [step.split()[0] for step in teardown.steps] == ["SIGTERM", "SIGTERM"]
    assert 2 <= teardown.seconds < 6


def test_a_short_stop_budget_is_kept(tmp_path):
    port = free_port()
    with make_server([HARD_TO_KILL, ["serve", port], ["wait"]], tmp_path, port=port) as server:
        assert isinstance(server.wait_ready(), Ready)
        teardown = server.stop(within=1.0)
    assert teardown.seconds < 2.0
    assert [step.split()[0] for step in teardown.steps] == ["SIGTERM", "SIGKILL"]
    assert teardown.survivors == ()


def test_a_starting_server_is_interrupted_not_terminated(tmp_path):
    with make_server([["say", "x"], ["wait"]], tmp_path) as server:
        wait_until(lambda: server.tail(1))
        teardown = server.stop()
    assert [step.split()[0] for step in teardown.steps] == ["SIGINT"]


def test_kill_of_the_leader_takes_the_orphans_down(tmp_path):
    port = free_port()
    with make_server(
        [["fork", [HARD_TO_KILL, ["pid", "engine"], ["wait"]]], ["serve", port], ["wait"]], tmp_path, port=port
    ) as server:
        assert isinstance(server.wait_ready(), Ready)
        wait_until(lambda: pids(tmp_path / "server.log", "engine"))
        os.kill(server.pid, signal.SIGKILL)
        begin = time.monotonic()
        wait_until(server.exited)
        assert time.monotonic() - begin < 0.5
        teardown = server.stop()
    assert [step.split()[0] for step in teardown.steps] == ["SIGKILL"]
    assert not lives(*pids(tmp_path / "server.log", "engine"))
    assert teardown.seconds < 4


def test_an_open_pipe_of_an_orphan_does_not_block_us(tmp_path):
    with make_server([["fork", [HARD_TO_KILL, ["wait"]]], ["say", "last words"], ["exit", 1]], tmp_path) as server:
        assert isinstance(server.wait_ready(), Exited)
        assert server.tail(1) == ["last words"]


def test_someone_elses_200_is_noticed(tmp_path):
    other = listen(200)
    try:
        with make_server([["sleep", 5], ["exit", 1]], tmp_path, port=other.server_port) as server:
            with pytest.raises(
                NodeError, match=rf"another server answers on port {other.server_port}: process {os.getpid()} "
            ):
                server.wait_ready()
            server.stop()
        assert not lives(server.pid)
    finally:
        other.shutdown()
        other.server_close()


def test_a_busy_port_alone_is_the_servers_to_report(tmp_path):
    other = listen(503)
    try:
        with make_server(
            [["sleep", 0.3], ["err", "[Errno 98] address already in use"], ["exit", 1]],
            tmp_path,
            port=other.server_port,
        ) as server:
            assert isinstance(server.wait_ready(), Exited)
    finally:
        other.shutdown()
        other.server_close()


def test_not_200_is_not_ready(tmp_path):
    port = free_port()
    with make_server([["serve", port, 503], ["wait"]], tmp_path, port=port, startup=1.5) as server:
        outcome = server.wait_ready()
    assert isinstance(outcome, Hung)
    assert outcome.reason == "startup"
    assert 1.4 < outcome.t < 4


def test_a_port_that_never_answers_delays_nobody(tmp_path):
    port = free_port()
    with make_server([["deaf", port], ["sleep", 1.0], ["exit", 3]], tmp_path, port=port) as server:
        outcome = server.wait_ready()
        knows = time.monotonic() - server.started
    assert isinstance(outcome, Exited)
    assert outcome.how == "exit 3"
    assert knows - outcome.t < 0.2


def test_silence_is_a_hang_with_evidence(tmp_path):
    steps = [["say", "last line"], ["fork", [["stop"]]], ["wait"]]
    with make_server(steps, tmp_path, silence=1.0, secrets=("last",)) as server:
        outcome = server.wait_ready()
        teardown = server.stop()
    assert isinstance(outcome, Hung)
    assert outcome.reason == "silence"
    assert 1.0 <= outcome.quiet_seconds < 5
    assert len(outcome.stacks) == 3
    summary, leader, child = ((tmp_path / name).read_text() for name in outcome.stacks)
    assert "*** line" in summary
    assert "state T" in child
    assert "state S" in leader
    assert "== native threads" in leader
    assert "standin.py" in leader or "none: " in leader, "a stack, or why there is none"
    assert [step.split()[0] for step in teardown.steps] == ["SIGKILL"], "nobody asks a hung tree politely"
    assert teardown.seconds < 2


def test_a_server_that_hangs_after_ready_is_not_asked_politely(tmp_path):
    port = free_port()
    with make_server([HARD_TO_KILL, ["serve", port], ["wait"]], tmp_path, port=port) as server:
        assert isinstance(server.wait_ready(), Ready)
        assert "stacks/summary.txt" in server.collect_hang()
        assert [step.split()[0] for step in server.stop().steps] == ["SIGKILL"]


def test_work_without_output_is_not_a_hang(tmp_path):
    with make_server([["burn", 2.5, 0.5], ["exit", 0]], tmp_path, silence=1.0) as server:
        assert isinstance(server.wait_ready(), Exited)


def test_output_without_work_is_not_a_hang(tmp_path):
    with make_server([*[["say", "x"], ["sleep", 0.4]] * 6, ["exit", 0]], tmp_path, silence=1.0) as server:
        assert isinstance(server.wait_ready(), Exited)


def test_own_temporary_folder_and_shared_memory_are_removed(tmp_path):
    port, name = free_port(), f"psm_standin{os.getpid()}"
    steps = [["env", "TMPDIR"], ["cwd"], ["temp"], ["fork", [["shm", name], ["wait"]]], ["serve", port], ["wait"]]
    with make_server(steps, tmp_path, port=port) as server:
        assert isinstance(server.wait_ready(), Ready)
        wait_until(Path("/dev/shm", name).exists)
        folder, working_folder = server.tail(2)
        assert folder == working_folder
        assert len(folder) < 108 - 60
        assert Path(folder).stat().st_mode & 0o777 == 0o700
        teardown = server.stop()
    assert teardown.removed == (f"/dev/shm/{name}", f"{folder}: 2 files (1 sockets, 5 bytes)")
    assert not Path(folder).exists()
    assert not Path("/dev/shm", name).exists()
    assert not [entry for entry in teardown.left if name in entry]


def test_shared_memory_that_nobody_was_seen_to_hold_is_reported_not_removed(tmp_path):
    port, name = free_port(), f"sem.mp-standin{os.getpid()}"
    try:
        with make_server([["shm", name, "close"], ["serve", port], ["wait"]], tmp_path, port=port) as server:
            assert isinstance(server.wait_ready(), Ready)
            teardown = server.stop()
        assert f"/dev/shm/{name}" in teardown.left
    finally:
        Path("/dev/shm", name).unlink()


def test_secrets_travel_to_the_server_but_into_no_argv_and_no_file(tmp_path):
    port, secret = free_port(), "hf_canary_0123456789"
    steps = [["env", "HF_TOKEN"], ["serve", port], ["wait"]]
    with make_server(steps, tmp_path, port=port, env={"HF_TOKEN": secret}.items(), secrets=(secret,)) as server:
        assert isinstance(server.wait_ready(), Ready)
        for process in proctree.descendants(os.getpid()):
            assert secret.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        server.collect_hang()
    assert (tmp_path / "server.log").read_text() == "***\n"
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


def test_a_program_that_is_not_there_is_a_build_error(tmp_path):
    plan = replace(launch([], 1), argv=("/no/such/server",))
    server = Server(
        plan,
        folder=tmp_path,
        health_path="/",
        literals=(),
        startup=1,
        silence=1,
        stop=1,
        masker=Masker(),
        on_line=print,
    )
    with pytest.raises(BuildError, match=r"/no/such/server cannot be started: .*No such file"), server:
        pass
    assert not Path(server._kept.temp).exists()


def test_variables_that_no_program_can_have_are_the_scenarios_fault(tmp_path):
    server = make_server([["wait"]], tmp_path, env={"A=B": "x"})
    with pytest.raises(ScenarioError, match="illegal environment variable name") as caught, server:
        pass
    assert caught.value.fix == "correct `env` and `serve` of the scenario"
    with (
        pytest.raises(ScenarioError, match="Argument list too long"),
        make_server([["say", "x" * (3 << 20)]], tmp_path),
    ):
        pass


def test_a_folder_that_cannot_be_written_is_a_node_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NodeError, match="cannot be started"), make_server([["wait"]], tmp_path / "file" / "run"):
        pass


def test_a_full_disk_is_a_node_error_and_the_server_does_not_block(tmp_path):
    (tmp_path / "server.log").symlink_to("/dev/full")
    server = make_server([["flood", 3], ["wait"]], tmp_path)
    with pytest.raises(NodeError, match=r"log cannot be written: .*No space left"), server:
        server.wait_ready()
    assert not lives(server.pid)


def test_a_bug_in_on_line_is_not_swallowed(tmp_path):
    def stumble(line):
        raise LookupError(line.text)

    with (
        make_server([["say", "MARK"], ["wait"]], tmp_path, on_line=stumble) as server,
        pytest.raises(LookupError, match="MARK"),
    ):
        server.wait_ready()


@pytest.mark.parametrize("moment", ["wait", "stop"])
def test_an_interrupt_leaves_nothing(tmp_path, moment):
    port = free_port()
    steps = [
        ["daemon", [HARD_TO_KILL, ["pid", "daemon"], ["wait"]]],
        HARD_TO_KILL,
        ["sleep", 0.2],
        ["pid", "leader"],
        ["wait"],
    ]
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    server = make_server(steps, tmp_path, port=port, stop=3)
    with pytest.raises(KeyboardInterrupt), server:  # noqa: PT012 - the interrupt may come anywhere in it
        wait_until(lambda: pids(tmp_path / "server.log", "leader") and pids(tmp_path / "server.log", "daemon"))
        timer.start()
        if moment == "wait":
            server.wait_ready()
        server.stop()
    assert server.stop().survivors == ()
    assert not [pid for label in ("leader", "daemon") for pid in pids(tmp_path / "server.log", label) if lives(pid)]


def test_a_bug_inside_the_with_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), make_server([["wait"]], tmp_path) as server:
        _ = 1 / 0
    assert not lives(server.pid)
    assert server.stop().survivors == ()


def test_start_leaves_no_descriptor_and_no_child_behind(tmp_path):
    def count():
        return len(list(Path("/proc/self/fd").iterdir()))

    for turn in range(2):  # the first one warms caches up
        before = count()
        with make_server([["exit", 0]], tmp_path / str(turn)) as server:
            server.wait_ready()
    wait_until(lambda: count() == before)
    assert not [process for process in proctree.descendants(os.getpid()) if "keeper.py" in process.name]


def test_a_semaphore_that_was_mapped_under_another_name_is_found(tmp_path):
    """glibc's way: map a file, then link it to its name and unlink the first one."""
    port, name = free_port(), f"sem.mp-linked{os.getpid()}"
    with make_server([["semaphore", name], ["serve", port], ["wait"]], tmp_path, port=port) as server:
        assert isinstance(server.wait_ready(), Ready)
        teardown = server.stop()
    assert f"/dev/shm/{name}" in teardown.removed
    assert not Path("/dev/shm", name).exists()
