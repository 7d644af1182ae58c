"""Processes as the kernel tells them: who descends from whom, what they burn, who listens on a port. Linux, /proc.

Only the standard library and light imports, because the keeper starts with this in a few milliseconds and runs without
site-packages. A process that ends while it is being read is simply not there.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_COMM_LONGEST = 15
_LISTEN = "0A"


class Process(NamedTuple):
    pid: int
    ppid: int
    session: int
    name: str
    """At most 15 characters: what the process calls itself. See `title` for the long form."""
    state: str
    """One letter, `T` stopped, `Z` dead but not yet reaped, `D` in the kernel and deaf."""
    started: int
    """Clock ticks since boot: pid and start together name a process for ever."""
    cpu: float
    """Seconds of user and system time."""
    rss: int
    """Resident bytes, shared pages included."""
    threads: int


def read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs the keeper its quick start
            head, _, tail = file.read().rpartition(b") ")
    except OSError:
        return None
    name = head.partition(b"(")[2].decode(errors="replace")
    f = tail.split()  # f[0] is field 3 of proc_pid_stat(5)
    return Process(
        pid, int(f[1]), int(f[3]), name, f[0].decode(), int(f[19]),
        (int(f[11]) + int(f[12])) / _TICK, int(f[21]) * _PAGE, int(f[17]),
    )  # fmt: skip


def everything() -> dict[int, Process]:
    found = (read(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())  # noqa: PTH208
    return {process.pid: process for process in found if process}


def descendants(root: int, *, processes: dict[int, Process] | None = None) -> list[Process]:
    """All living descendants of `root`, parents first; those that only wait to be reaped are dead and not listed."""
    table = everything() if processes is None else processes
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.ppid, []).append(process)
    found, queue = [], [root]
    while queue:
        for child in children.get(queue.pop(0), ()):
            found.append(child)
            queue.append(child.pid)
    return [process for process in found if process.state not in "ZX"]


def title(process: Process) -> str:
    """The name without its cut at 15 characters, where the process renamed itself: `VLLM::EngineCore`."""
    try:
        with open(f"/proc/{process.pid}/cmdline", "rb") as file:  # noqa: PTH123
            first = file.read(256).replace(b"\0", b" ").split(b" ", 1)[0].decode(errors="replace")
    except OSError:
        return process.name
    is_cut = len(process.name) == _COMM_LONGEST and first.startswith(process.name)
    return first if is_cut else process.name


def descriptors(pid: int) -> list[tuple[str, str]]:
    """Open descriptors as (number, target), a target being a path or `socket:[123]`; empty where we may not look."""
    folder = f"/proc/{pid}/fd"
    found: list[tuple[str, str]] = []
    try:
        for fd in os.listdir(folder):  # noqa: PTH208
            try:
                found.append((fd, os.readlink(f"{folder}/{fd}")))  # noqa: PTH115
            except OSError:  # closed in between
                continue
    except OSError:
        return found
    return found


def open_files(pid: int) -> set[str]:
    return {target for _, target in descriptors(pid)}


def listening_sockets(host: str, port: int) -> set[str]:
    """The TCP sockets that would take a connection to `host` (IPv4 digits), as `socket:[inode]`, like `open_files`."""
    digits = "".join(f"{int(byte):02X}" for byte in reversed(host.split(".")))  # the kernel prints it little-endian
    wanted = {f"{address}:{port:04X}" for address in ("0" * 8, digits, "0" * 32, "0" * 16 + "FFFF0000" + digits)}
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{table}", encoding="ascii") as file:  # noqa: PTH123
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:  # no IPv6 here
            continue
        found |= {f"socket:[{row[9]}]" for row in rows if row[3] == _LISTEN and row[1] in wanted}
    return found
