"""The machine we are on: its GPUs and memory, who may use them (leases), and whether they are fit for a run."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import clock, locks, nvidia
from harness.build import Accelerator
from harness.errors import NodeError, UnmetError

IDLE_MIB = 2048
"""What a GPU may have in use without counting as busy: driver, display, a monitoring agent."""
_RETRY_SECONDS = 0.1
_TURNSTILE_SECONDS = 10.0
_MIB_PER_GIB = 1024
_LOWEST_PORT = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    index: int
    uuid: str
    name: str
    memory_mib: int
    used_mib: int
    """Memory in use when the node was read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    hostname: str
    cpus: int
    """Those this process may use."""
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()
    node_class: str = "cpu"
    """Hardware kind, key of baselines and of per-class limits: `h200`, `cpu`."""

    @property
    def accelerator(self) -> Accelerator:
        return "cuda" if self.gpus else "cpu"

    def record(self) -> Mapping[str, Any]:
        """The node as the run record keeps it."""
        return {**asdict(self), "gpus": [asdict(gpu) for gpu in self.gpus]}


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """What one run may use until it ends; nobody else on this machine gets it meanwhile."""

    gpus: tuple[Gpu, ...]
    """Empty: the CPU is leased."""
    fds: tuple[int, ...] = ()
    """Descriptors that hold the locks, not inherited. A process that gets them (`pass_fds`) keeps the lease with us."""


def read() -> Node:
    """Look at this machine; CUDA_VISIBLE_DEVICES hides GPUs from us as it does from the server.

    Raises:
        NodeError: nvidia-smi is there and fails, or CUDA_VISIBLE_DEVICES names a GPU that is not.
    """
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    rows = () if nvidia.hidden(devices) else nvidia.visible(nvidia.query() or (), devices)
    return _node(tuple(map(_gpu, rows)))


def describe() -> Node:
    """As `read`, for a record that must exist before anything may fail: GPUs that cannot be read are left out."""
    try:
        return read()
    except NodeError:
        return _node((), node_class="unknown")


def _node(gpus: tuple[Gpu, ...], node_class: str | None = None) -> Node:
    return Node(
        hostname=socket.gethostname(),
        cpus=len(os.sched_getaffinity(0)),
        memory_mib=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        gpus=gpus,
        node_class=node_class or nvidia.class_of(tuple(gpu.name for gpu in gpus)),
    )


def _gpu(row: nvidia.Row) -> Gpu:
    return Gpu(index=row.index, uuid=row.uuid, name=row.name, memory_mib=row.total, used_mib=row.used)


def gpu_used_mib(gpus: Sequence[Gpu]) -> dict[str, int]:
    """Memory in use now, in MiB, by UUID; without GPUs nothing is asked.

    Raises:
        NodeError: nvidia-smi fails, or a GPU has fallen off the bus since the node was read.
    """
    if not gpus:
        return {}
    used = {row.uuid: row.used for row in nvidia.query() or ()}
    if gone := [str(gpu.index) for gpu in gpus if gpu.uuid not in used]:
        raise NodeError(
            f"GPU {', '.join(gone)} is no longer listed by nvidia-smi", fix="look for Xid errors in the kernel log"
        )
    return {gpu.uuid: used[gpu.uuid] for gpu in gpus}


def check_needs(node: Node, *, gpus: int | None, gpu_memory_gib: float | None, fix: str = "") -> None:
    """Compare what a scenario needs with what the node has, whoever uses it now.

    Raises:
        UnmetError: too few GPUs, or too small ones; `fix` names the alternatives.
    """
    if gpus and len(_large_enough(node.gpus, gpu_memory_gib)) < gpus:
        size = f" of {gpu_memory_gib:g} GiB" if gpu_memory_gib else ""
        raise UnmetError(f"needs {_count(gpus)}{size}, this node has {_has(node.gpus)}", fix=fix)


def _large_enough(gpus: Sequence[Gpu], gib: float | None) -> list[Gpu]:
    return [gpu for gpu in gpus if gpu.memory_mib >= (gib or 0) * _MIB_PER_GIB]


def _has(gpus: Sequence[Gpu]) -> str:
    sizes = sorted({gpu.memory_mib // _MIB_PER_GIB for gpu in gpus})
    return f"{_count(len(gpus))} of {'/'.join(map(str, sizes))} GiB" if gpus else "none"


def _count(gpus: int) -> str:
    return f"{gpus} GPU{'s' * (gpus != 1)}"


def check_free(gpus: Sequence[Gpu], *, utilization: float = 0.9) -> None:
    """Before a launch: see that the share of memory which the server will claim is really free on every GPU.

    `utilization` is the server's gpu-memory-utilization: 0.85 of 143,771 MiB leaves 21,566 MiB for others.

    Raises:
        NodeError: another process holds more than that; names the MiB.
    """
    used = gpu_used_mib(gpus)
    for gpu in gpus:
        allowed = max(IDLE_MIB, int(gpu.memory_mib * (1 - utilization)))
        if used[gpu.uuid] > allowed:
            raise NodeError(
                f"GPU {gpu.index} ({gpu.name}) has {used[gpu.uuid]} MiB in use before the launch, {allowed} may be",
                fix="end the process that holds it (nvidia-smi lists it), or choose others with CUDA_VISIBLE_DEVICES",
            )


@contextmanager
def lease(
    node: Node,
    *,
    gpus: int,
    wait: float,
    on_wait: Callable[[str], None] = lambda _: None,
    what: str = "a run",
    gpu_memory_gib: float | None = None,
) -> Iterator[Lease]:
    """Hold `gpus` GPUs, or the CPU for 0, against every other run on this machine, until the block or the process ends.

    All or nothing, so that two that want overlapping sets never wait for each other. Emptiest GPUs first. `wait` is the
    seconds to wait for others (0 tries once), `on_wait` is told once for each new holder that we wait for, `what` is
    what others read of us meanwhile, GPUs of less than `gpu_memory_gib` are left to them.

    Raises:
        UnmetError: the node has too few such GPUs at all.
        NodeError: still taken after `wait` seconds; names who holds it.
    """
    check_needs(node, gpus=gpus, gpu_memory_gib=gpu_memory_gib)
    folder, deadline, told = lease_folder(), clock.Deadline.after(wait), ""
    able = sorted(_large_enough(node.gpus, gpu_memory_gib), key=lambda gpu: (gpu.used_mib, gpu.index))
    wanted: dict[str, Gpu | None] = {gpu.uuid: gpu for gpu in able} if gpus else {"cpu": None}
    while True:
        with ExitStack() as stack:
            with _turnstile(folder, wait):
                held, busy = _try(stack, folder, tuple(wanted), count=max(gpus, 1), what=what)
            if held:
                taken = [gpu for name in held if (gpu := wanted[name])]
                yield Lease(gpus=tuple(sorted(taken, key=lambda gpu: gpu.index)), fds=tuple(held.values()))
                return
        words = f"{_count(gpus) if gpus else 'the CPU'}, held by {busy}"
        if deadline.expired:
            raise NodeError(f"waited {wait:g} s for {words}", fix="wait for that run to end, or end it, and try again")
        if words != told:
            on_wait(f"waiting for {words}")
            told = words
        clock.sleep(min(_RETRY_SECONDS, deadline.left))


def _try(stack: ExitStack, folder: Path, names: Sequence[str], *, count: int, what: str) -> tuple[dict[str, int], str]:
    """One pass: `count` of the named locks with their descriptors, or none of them and who holds the rest."""
    held: dict[str, int] = {}
    busy: list[str] = []
    for name in names:
        fd = locks.open_file(folder / f"{name}.lock")
        if not locks.try_lock(fd):
            os.close(fd)
            busy.append(locks.holder(folder / f"{name}.lock"))
            continue
        stack.callback(os.close, fd)
        locks.sign(fd, what)
        held[name] = fd
        if len(held) == count:
            return held, ""
    stack.close()  # inside the turnstile: nobody sees the half that we give back
    return {}, " and ".join(dict.fromkeys(busy))


@contextmanager
def _turnstile(folder: Path, wait: float) -> Iterator[None]:
    # One process at a time tries, so that two half-successful tries never keep taking from each other. A pass takes
    # milliseconds; only a stopped process can hold it longer.
    deadline = clock.Deadline.after(max(wait, _TURNSTILE_SECONDS))
    path = folder / "turnstile.lock"
    fd = locks.open_file(path)
    try:
        while not locks.try_lock(fd):
            if deadline.expired:
                raise NodeError(
                    f"{path} is held by a stopped process", fix="find it with `lsof` on that file and end it"
                )
            clock.sleep(0.005)
        yield
    finally:
        os.close(fd)


def lease_folder() -> Path:
    """Where the lock files of this machine's leases are: $HARNESS_LEASES, else one folder for all users."""
    folder = Path(os.environ.get("HARNESS_LEASES") or "/tmp/harness-leases")  # noqa: S108 - for all users
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o1777)  # whatever the umask: every user may add locks, nobody may take away another's
    except FileExistsError:
        pass
    except OSError as error:
        raise NodeError(
            f"cannot make {folder}: {error.strerror}", fix="set HARNESS_LEASES to a folder for all runs here"
        ) from error
    return folder


def free_port() -> int:
    """A loopback port nobody listens on, below the range that the kernel gives to anyone who asks for port 0."""
    for port in random.sample(range(_LOWEST_PORT, _ephemeral_low()), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise NodeError("found no free port in 100 tries", fix="look for what holds thousands of ports (ss -tln)")


def _ephemeral_low() -> int:
    try:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        low = 32_768
    return low if low >= _LOWEST_PORT + 1000 else 65_536
