"""The machine we are on: its GPUs and memory, and whether they are what a run needs."""

from __future__ import annotations

import json
import os
import platform
import random
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness import nvidia
from harness.build import Accelerator
from harness.errors import NodeError, UnmetError
from harness.node_class import CPU, class_of

_MIB_PER_GIB = 1024
_LOWEST_PORT = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU as it was when the node was read. None and empty: nvidia-smi does not tell."""

    index: int
    uuid: str
    name: str
    memory_mib: int
    """0 where it is not told."""
    used_mib: int
    untold: str = ""
    """What nvidia-smi says in place of the memory: `[N/A]`."""
    address: str = ""
    """On the PCI bus: `0000:2a:00`."""
    compute_capability: str | None = None
    mig: bool = False
    """It is cut into parts (multi-instance GPU)."""
    persistence: bool | None = None
    ecc: bool | None = None
    uncorrected: int | None = None
    """Uncorrectable memory errors since the driver was loaded."""
    rows_pending: bool | None = None
    """Rows of memory wait for a reset to be replaced; this and the next only in the record of a run."""
    rows_failed: bool | None = None
    """A row of memory could not be replaced: the GPU should be."""

    @property
    def unusable(self) -> str:
        """Why no run gets it; empty: it may."""
        if self.mig:
            return f"GPU {self.index} is in MIG mode, and harness uses whole GPUs and leaves MIG as it is"
        if self.untold:
            return f"of GPU {self.index} ({self.name}) nvidia-smi does not tell the memory: {self.untold}"
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Driver:
    version: str | None = None
    cuda: str | None = None
    """The newest CUDA that it can do."""
    untold: tuple[str, ...] = ()
    """What else was asked and not answered, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    hostname: str
    cpus: int
    """Those this process may use."""
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()
    node_class: str = CPU
    """Hardware kind, key of baselines and of per-class limits: `h200`, `cpu`."""
    kernel: str = ""
    system: str = ""
    """The operating system's own name for itself."""
    driver: Driver | None = None
    """Of NVIDIA; only in the record of a run."""
    trouble: str = ""
    """Why its GPUs could not be read."""

    @property
    def accelerator(self) -> Accelerator:
        return "cuda" if self.gpus else "cpu"

    def record(self) -> Mapping[str, Any]:
        """The node as the run record keeps it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))  # a record that is read again is equal
        return plain


def read() -> Node:
    """Look at this machine; CUDA_VISIBLE_DEVICES hides GPUs from us as it does from the server.

    Raises:
        NodeError: nvidia-smi is there and fails, or CUDA_VISIBLE_DEVICES names a GPU that is not, or a part of one.
    """
    return _read()[0]


def describe() -> Node:
    """As `read`, for a record that must exist before anything may fail, and with all that a record should say.

    GPUs that cannot be read are left out, and `trouble` says why.
    """
    try:
        node, told = _read()
    except NodeError as error:
        return replace(_node((), node_class="unknown"), trouble=error.what)
    if not node.gpus:
        return node
    rows = nvidia.remapped_rows()
    versions = (row.get("driver_version") for row in told.rows.values())
    return replace(
        node,
        gpus=tuple(_with_rows(gpu, rows.rows.get(gpu.uuid, {})) for gpu in node.gpus),
        driver=Driver(
            version=next((version for version in versions if version), None),
            cuda=nvidia.cuda_version(),
            untold=(*told.untold, *rows.untold),
        ),
    )


def _read() -> tuple[Node, nvidia.Told]:
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    rows = () if nvidia.hidden(devices) else nvidia.visible(nvidia.query() or (), devices)
    told = nvidia.further() if rows else nvidia.Told()
    return _node(tuple(_gpu(row, told.rows.get(row.uuid, {})) for row in rows)), told


def _node(gpus: tuple[Gpu, ...], node_class: str | None = None) -> Node:
    return Node(
        hostname=socket.gethostname(),
        cpus=len(os.sched_getaffinity(0)),
        memory_mib=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        gpus=gpus,
        node_class=node_class or class_of([gpu.name for gpu in gpus]),
        kernel=platform.release(),
        system=_system(),
    )


def _system() -> str:
    with suppress(OSError):  # containers made from nothing have no such file
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return ""


def _gpu(row: nvidia.Row, told: Mapping[str, str]) -> Gpu:
    uncorrected = told.get("ecc.errors.uncorrected.volatile.total", "")
    return Gpu(
        index=row.index,
        uuid=row.uuid,
        name=row.name,
        memory_mib=row.total or 0,
        used_mib=row.used or 0,
        untold=row.untold,
        address=nvidia.address(told.get("pci.bus_id", "")),
        compute_capability=told.get("compute_cap"),
        mig=_on(told.get("mig.mode.current")) or False,
        persistence=_on(told.get("persistence_mode")),
        ecc=_on(told.get("ecc.mode.current")),
        uncorrected=int(uncorrected) if uncorrected.isdigit() else None,
    )


def _with_rows(gpu: Gpu, told: Mapping[str, str]) -> Gpu:
    pending, failed = _on(told.get("remapped_rows.pending")), _on(told.get("remapped_rows.failure"))
    return replace(gpu, rows_pending=pending, rows_failed=failed)


def _on(word: str | None) -> bool | None:
    """`Enabled`, `Yes` or a number that is not 0; None for anything that is neither that nor its opposite."""
    if word is not None and word.isdigit():
        return int(word) > 0
    return {"enabled": True, "yes": True, "disabled": False, "no": False}.get((word or "").lower())


def check_needs(node: Node, *, gpus: int | None, gpu_memory_gib: float | None, fix: str = "") -> None:
    """Compare what a scenario needs with what the node has, whoever uses it now.

    Raises:
        UnmetError: too few GPUs that can be used, or too small ones; `fix` names the alternatives.
    """
    if gpus and len(large_enough(node.gpus, gpu_memory_gib)) < gpus:
        size = f" of {gpu_memory_gib:g} GiB" if gpu_memory_gib else ""
        others = "choose other GPUs with CUDA_VISIBLE_DEVICES" if any(gpu.unusable for gpu in node.gpus) else ""
        raise UnmetError(
            f"needs {words_of(gpus)}{size}, this node has {_has(node.gpus)}", fix="; ".join(filter(None, (others, fix)))
        )


def large_enough(gpus: Sequence[Gpu], gib: float | None) -> list[Gpu]:
    """Those that a run may have and that are of so many GiB."""
    return [gpu for gpu in gpus if not gpu.unusable and gpu.memory_mib >= (gib or 0) * _MIB_PER_GIB]


def _has(gpus: Sequence[Gpu]) -> str:
    """`8 GPUs of 79 GiB`, and of each that cannot be used why."""
    usable = [gpu for gpu in gpus if not gpu.unusable]
    sizes = sorted({gpu.memory_mib // _MIB_PER_GIB for gpu in usable})
    words = f"{words_of(len(usable))} of {'/'.join(map(str, sizes))} GiB" if usable else "none"
    why = "; ".join(gpu.unusable for gpu in gpus if gpu.unusable)
    return f"{words} that can be used: {why}" if why else words


def words_of(gpus: int) -> str:
    """`8 GPUs`."""
    return f"{gpus} GPU{'s' * (gpus != 1)}"


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
