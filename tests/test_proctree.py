"""Reading /proc: descendants, names, listening sockets."""

import os
import socket
import subprocess
import sys
import time

from harness.server import proctree
from harness.server.probe import foreign_owner
from harness.server.quiet import Quiet


def test_this_process_reads_itself():
    me = proctree.read(os.getpid())
    assert (me.pid, me.ppid, me.session) == (os.getpid(), os.getppid(), os.getsid(0))
    assert me.state == "R"
    assert me.rss > 1 << 20
    assert me.threads >= 1
    assert proctree.read(2**22 + 1) is None


def test_a_name_with_spaces_and_brackets_is_read(tmp_path):
    program = tmp_path / "a) R (b"
    program.symlink_to(os.path.realpath("/bin/sleep"))
    with subprocess.Popen([program, "30"]) as process:
        time.sleep(0.1)
        assert proctree.read(process.pid).name == "a) R (b"
        process.kill()


def test_a_long_name_is_completed_from_the_command_line(tmp_path):
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'VLLM::EngineCore'); time.sleep(30)"
    with subprocess.Popen(["VLLM::EngineCore", "-c", code], executable=sys.executable) as process:
        while proctree.read(process.pid).name != "VLLM::EngineCor":
            time.sleep(0.01)
        assert proctree.title(proctree.read(process.pid)) == "VLLM::EngineCore"
        process.kill()


def test_descendants_are_found_parents_first_and_zombies_are_not():
    code = "import subprocess, sys; subprocess.Popen(['sleep', '30']); print('up', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        table = proctree.everything()
        names = [p.pid for p in proctree.descendants(os.getpid(), processes=table)]
        (sleeper,) = [p for p in table.values() if p.ppid == process.pid]
        assert names.index(process.pid) < names.index(sleeper.pid)
        os.kill(sleeper.pid, 9)
        while sleeper.pid in {p.pid for p in proctree.descendants(process.pid)}:
            time.sleep(0.01)
        assert proctree.read(sleeper.pid).state == "Z", "dead, but its parent has not looked"
        process.stdin.close()


def test_the_owner_of_a_listening_socket_is_named():
    me = proctree.read(os.getpid())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert foreign_owner("127.0.0.1", port, [me]) is None
        assert foreign_owner("127.0.0.1", port, []) == f"process {me.pid} ({proctree.title(me)})"
        assert proctree.listening_sockets("127.0.0.2", port) == set(), "another address is another server"
    assert foreign_owner("127.0.0.1", port, []) is None


def test_a_socket_on_all_addresses_counts_also_on_ipv6():
    with socket.create_server(("", 0), family=socket.AF_INET) as four:
        assert len(proctree.listening_sockets("127.0.0.1", four.getsockname()[1])) == 1
    if socket.has_dualstack_ipv6():
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as six:
            assert len(proctree.listening_sockets("127.0.0.1", six.getsockname()[1])) == 1


def sample(pid, cpu, rss=1, started=7):
    return proctree.Process(pid, 1, 1, "p", "S", started, cpu, rss, 1)


def test_quiet_needs_both_no_output_and_no_work():
    quiet = Quiet(10.0, start=0.0)
    for second in range(12):
        quiet.feed(float(second), [sample(1, cpu=3.0)])  # 3 s burnt before the first sample, nothing since
    assert quiet.is_hung(11.0, last_output=0.0)
    assert not quiet.is_hung(11.0, last_output=2.0)


def test_quiet_allows_for_polling_loops_and_sees_new_processes():
    idle, busy = Quiet(10.0, start=0.0), Quiet(10.0, start=0.0)
    for second in range(12):
        idle.feed(float(second), [sample(1, cpu=0.04 * second)])
        busy.feed(float(second), [sample(100 + second, cpu=0.1)])  # a compiler process a second
    assert idle.is_hung(11.0, last_output=0.0)
    assert not busy.is_hung(11.0, last_output=0.0)


def test_a_reused_number_is_a_new_process():
    quiet = Quiet(2.0, start=0.0)
    quiet.feed(0.0, [sample(1, cpu=50.0)])
    for second in (1.0, 2.0, 3.0):
        quiet.feed(second, [sample(1, cpu=0.5, started=int(second))])
    assert not quiet.is_hung(3.0, last_output=0.0)


def test_peak_memory_is_the_highest_sum():
    quiet = Quiet(2.0, start=0.0)
    for rss in (10, 30, 20):
        quiet.feed(rss, [sample(1, 0, rss), sample(2, 0, rss)])
    assert quiet.peak_rss == 60
