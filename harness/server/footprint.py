"""What a server holds of the node's memory: its processes, shared memory, GPUs.

Host memory of the processes is PSS (/proc/PID/smaps_rollup): a page that n processes share counts 1/n in each, so that
the sum over forked workers is true. RSS would count the weights that they share once for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.server import proctree

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """All in MiB."""

    processes: int
    host: float | None
    """PSS of the server's processes; None where the kernel did not tell."""
    shared: float
    """Shared memory and tmpfs of the whole node: what /dev/shm holds outlives its makers."""
    used: float
    """Memory of the whole node that is not available to others."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """Used on each leased GPU, by UUID."""


def take(root: int | None, gpus: Mapping[str, int], *, proc: Path = Path("/proc")) -> Footprint:
    """Now. `root`: the process whose descendants are the server's, itself included; None: there is no server.

    `gpus`: MiB used on each leased GPU, as the driver says.
    """
    pids = [] if root is None else [root, *(process.pid for process in proctree.descendants(root))]
    sizes = [_pss(proc / str(pid)) for pid in pids]
    known = [size for size in sizes if size is not None]
    node = _meminfo((proc / "meminfo").read_text(encoding="ascii").splitlines())
    return Footprint(
        processes=len(pids),
        host=round(sum(known), 1) if len(known) == len(sizes) else None,
        shared=round(node["Shmem"], 1),
        used=round(node["MemTotal"] - node["MemAvailable"], 1),
        gpus=gpus,
    )


def _pss(folder: Path) -> float | None:
    """MiB of one process; 0 of one that ended in between; None where we may not look."""
    try:
        return _meminfo((folder / "smaps_rollup").read_text(encoding="utf-8").splitlines()[1:]).get("Pss")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    except OSError:
        return None


def _meminfo(lines: Iterable[str]) -> dict[str, float]:
    """Rows `Name:  123 kB` in MiB."""
    rows = (line.split() for line in lines)
    return {row[0].rstrip(":"): int(row[1]) * 1024 / MIB for row in rows if len(row) == 3}  # noqa: PLR2004 - with a unit
