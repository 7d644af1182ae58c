"""The memory of GPUs before a launch and after the stop, and who holds what should be free."""

from __future__ import annotations

import pwd
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from harness import nvidia
from harness.errors import NodeError
from harness.node import Gpu

IDLE_MIB = 2048
"""What a GPU may have in use without counting as busy: driver, display, a monitoring agent."""
SLACK_MIB = 64
"""What may be in use after a stop beyond what was before the launch: the driver's own bookkeeping."""
NOBODY = (
    "held by a process that is not visible from here: another container, or a dead one whose memory the driver kept"
)


def used_mib(gpus: Sequence[Gpu]) -> dict[str, int]:
    """Memory in use now, in MiB, by UUID; without GPUs nothing is asked.

    Raises:
        NodeError: nvidia-smi fails, a GPU has fallen off the bus since the node was read, or tells no memory.
    """
    if not gpus:
        return {}
    rows = {row.uuid: row for row in nvidia.query() or ()}
    if gone := [str(gpu.index) for gpu in gpus if gpu.uuid not in rows]:
        raise NodeError(
            f"GPU {', '.join(gone)} is no longer listed by nvidia-smi", fix="look for Xid errors in the kernel log"
        )
    return {gpu.uuid: _used(rows[gpu.uuid]) for gpu in gpus}


def _used(row: nvidia.Row) -> int:
    if row.used is None:
        raise NodeError(
            f"nvidia-smi does not tell the memory in use on GPU {row.index} ({row.name}): {row.untold}",
            fix="run it as a user who may ask for it, or choose other GPUs with CUDA_VISIBLE_DEVICES",
        )
    return row.used


def check_free(gpus: Sequence[Gpu], *, utilization: float = 0.9) -> None:
    """Before a launch: see that the share of memory which the server will claim is really free on every GPU.

    `utilization` is the server's gpu-memory-utilization: 0.85 of 143,771 MiB leaves 21,566 MiB for others.

    Raises:
        NodeError: another process holds more than that; names it and the MiB.
    """
    used = used_mib(gpus)
    for gpu in gpus:
        allowed = max(IDLE_MIB, int(gpu.memory_mib * (1 - utilization)))
        if used[gpu.uuid] > allowed:
            raise NodeError(
                f"GPU {gpu.index} ({gpu.name}) has {used[gpu.uuid]} MiB in use before the launch, {allowed} may be: "
                f"{holders(gpu.uuid, used[gpu.uuid])}",
                fix="end the process that holds it, or choose others with CUDA_VISIBLE_DEVICES",
            )


def more_than_before(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """MiB by UUID of the memory that did not come back."""
    return {uuid: used - before[uuid] for uuid, used in after.items() if used > before[uuid] + SLACK_MIB}


def kept(more: Mapping[str, int]) -> tuple[str, ...]:
    """A sentence for each GPU whose memory did not come back, with who holds it; `more` in MiB by UUID."""
    return tuple(
        f"GPU {uuid} holds {mib} MiB more than before the run, {holders(uuid, mib)}" for uuid, mib in more.items()
    )


def holders(uuid: str, mib: int) -> str:
    """`held by pid 4711 (python3, alice, 59412 MiB)`: who has `mib` of a GPU, as far as it can be seen."""
    try:
        apps = [app for app in nvidia.apps() if app.uuid == uuid]
    except NodeError as error:
        return f"and who holds it cannot be asked: {error.what}"
    if not apps:
        return NOBODY
    told = [f"pid {app.pid} ({', '.join(_facts(app))})" for app in apps]
    if (rest := mib - sum(app.used or 0 for app in apps)) > IDLE_MIB and all(app.used is not None for app in apps):
        told.append(f"processes that are not visible from here ({rest} MiB)")
    return f"held by {' and '.join(told)}"


def _facts(app: nvidia.App) -> list[str]:
    """Name, user, MiB; in a container the pid may be that of another process here, whose user says nothing."""
    facts = [app.name] if app.name and not app.name.startswith("[") else []
    process = Path("/proc", str(app.pid))
    with suppress(OSError, KeyError):
        line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        if facts and line.startswith(app.name):
            facts.append(pwd.getpwuid(process.stat().st_uid).pw_name)
    return [*facts, *([f"{app.used} MiB"] if app.used is not None else ["its memory is not told"])]
