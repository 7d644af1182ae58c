"""What a hung tree was doing, written before it is killed: Python stacks, native state, memory, last lines.

stacks/summary.txt          the processes, quiet seconds, last lines of the log
stacks/<pid>-<name>.txt     py-spy's stacks (or why there are none), then every thread as the kernel sees it
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.clock import Deadline
from harness.masking import Masker
from harness.server import proctree
from harness.server.proctree import Process

PER_PROCESS = 10.0
_AT_ONCE = 16
_THREADS = 256


def collect(
    tree: Sequence[Process], folder: Path, *, masker: Masker, quiet: float, tail: Iterable[str]
) -> tuple[str, ...]:
    """Write the evidence; gives their names, relative to the run's folder. Takes 10 s at most per 16 processes."""
    stacks = folder / "stacks"
    stacks.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        texts = list(pool.map(_describe, tree))
    names = [
        f"stacks/{p.pid}-{re.sub(r'[^A-Za-z0-9_.]+', '-', proctree.title(p)).strip('-') or 'process'}.txt" for p in tree
    ]
    for name, text in zip(names, texts, strict=True):
        (folder / name).write_text(masker.text(text), encoding="utf-8", errors="replace")
    summary = "\n".join((f"quiet for {quiet:.1f} s", "", *map(_row, tree), "", "last lines:", *tail, ""))
    (stacks / "summary.txt").write_text(masker.text(summary), encoding="utf-8", errors="replace")
    return ("stacks/summary.txt", *names)


def _row(process: Process) -> str:
    p = process
    return (
        f"{p.pid} {proctree.title(p)}: state {p.state}, parent {p.ppid}, {p.cpu:.2f} s of CPU, "
        f"{p.rss >> 20} MiB resident, {p.threads} threads"
    )


def _describe(process: Process) -> str:
    deadline = Deadline.after(PER_PROCESS)
    native = native_state(process.pid)  # first: it costs nothing and nobody can refuse it
    return f"{_row(process)}\n\n== Python stacks\n{python_stacks(process.pid, deadline)}\n== native threads\n{native}"


def python_stacks(pid: int, deadline: Deadline) -> str:
    """py-spy's dump, or the reason why there is none. Does not stop the process, so it works on a stopped one too."""
    program = _py_spy()
    if program is None:
        return "none: py-spy is not installed\n"
    try:
        done = subprocess.run(
            (program, "dump", "--nonblocking", "--pid", str(pid)),
            capture_output=True, timeout=deadline.left, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"none: py-spy did not answer in {deadline.budget:.0f} s\n"
    if done.returncode == 0:
        return done.stdout.decode(errors="replace")
    why = done.stderr.decode(errors="replace").strip() or f"py-spy ended with {done.returncode}"
    return f"none: {why}\n{_ptrace_hint()}"


def _ptrace_hint() -> str:
    """Ubuntu's default lets only a parent look into a process."""
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii").strip()
    except OSError:
        return ""
    return f"kernel.yama.ptrace_scope is {scope}; 0, or CAP_SYS_PTRACE, allows it\n" if scope != "0" else ""


def native_state(pid: int) -> str:
    """One block a thread: name, state, where in the kernel it waits, which system call. Python or not."""
    threads = sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda task: int(task.name))
    more = f"… {len(threads) - _THREADS} more threads\n" if len(threads) > _THREADS else ""
    return "".join(_thread(task) for task in threads[:_THREADS]) + more


def _thread(task: Path) -> str:
    stat = _text(task / "stat").rpartition(") ")[2]
    call = _text(task / "syscall").split(" ")[0]
    stack = "".join(f"    {line}\n" for line in _text(task / "stack").splitlines())
    state = stat[:1] or "gone"
    where = f"waits in {_text(task / 'wchan')}, system call {call}"
    return f"{task.name} {_text(task / 'comm')}: state {state}, {where}\n{stack}"


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip() or "?"
    except OSError as error:
        return f"? ({error.strerror})"


def _py_spy() -> str | None:
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    return str(beside) if beside.is_file() else shutil.which("py-spy")
