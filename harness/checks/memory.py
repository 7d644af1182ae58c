"""The memory that the server takes, whether it grows while it answers, and whether all of it comes back.

Four moments of the scenario's own server: before the spawn, at ready, before the stop, after it; judged in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from harness.checks.base import AfterStop, CheckContext, CheckResult, Measurement, Params, measured
from harness.server.footprint import Footprint

NAME = "memory"
MOST_MIB = 1 << 30
"""A PiB: no node has it."""
MOMENTS = ("before", "ready", "last", "after")


class MemoryParams(Params):
    max_gpu_left: Annotated[int, Field(ge=0, le=MOST_MIB)] = 64
    """MiB on any one GPU after the stop, beyond those before the spawn: the driver's own bookkeeping moves by a few."""
    max_shared_left: Annotated[int, Field(ge=0, le=MOST_MIB)] = 64
    """MiB of shared memory (/dev/shm) on the node after the stop, beyond those before the spawn."""
    max_host_left: Annotated[int, Field(ge=0, le=MOST_MIB)] | None = None
    """MiB in use on the node after the stop, beyond those before the spawn; for a node that runs nothing else."""
    max_gpu: Annotated[int, Field(ge=1, le=MOST_MIB)] | None = None
    """MiB on any one GPU at ready."""
    max_host: Annotated[int, Field(ge=1, le=MOST_MIB)] | None = None
    """MiB of the server's processes at ready (PSS)."""
    max_gpu_growth: Annotated[int, Field(ge=0, le=MOST_MIB)] | None = None
    """MiB on any one GPU from ready to the end of the checks."""
    max_host_growth: Annotated[int, Field(ge=0, le=MOST_MIB)] | None = None
    """MiB of the server's processes from ready to the end of the checks."""


class Memory:
    name = NAME
    params: type[Params] = MemoryParams

    def prepare(self, params: MemoryParams, *, model: str, corpora: Path) -> None:
        """Nothing: it needs no file."""

    def run(self, context: CheckContext) -> AfterStop:
        params: MemoryParams = context.params

        return AfterStop(finish=lambda run: judge(params, run.own[-1].memory))


def judge(params: MemoryParams, memory: Mapping[str, Footprint]) -> CheckResult:
    """`memory`: the footprint at each of `MOMENTS`. Pure."""
    before, ready, last, after = (memory[moment] for moment in MOMENTS)
    measurements = (
        _measured("host_ready", ready.host, params.max_host),
        _measured("host_growth", _difference(last.host, ready.host), params.max_host_growth),
        _measured("shared_left", _difference(after.shared, before.shared), params.max_shared_left),
        _measured("host_left", _difference(after.used, before.used), params.max_host_left),
        *_of_gpus(params, memory),
    )
    wrong = [value for value in measurements if not value.ok]
    shown = ", ".join(f"{value.name} {value.value:g} MiB" for value in measurements if isinstance(value.value, float))
    words = {
        "host_ready": "the server's processes take more than they may",
        "host_growth": "the server's processes grew while it answered",
        "shared_left": "shared memory did not come back",
        "host_left": "the node's memory did not come back",
        "gpu_ready": "a GPU holds more than it may",
        "gpu_growth": "the memory of a GPU grew while it answered",
        "gpu_left": "the memory of a GPU did not come back",
    }
    message = "; ".join(f"{words[each.name]} ({_number(each.value)} MiB, at most {each.limit:g})" for each in wrong)
    return CheckResult(
        name=NAME, outcome="fail" if wrong else "pass", message=message or shown, measurements=measurements
    )


def _of_gpus(params: MemoryParams, memory: Mapping[str, Footprint]) -> tuple[Measurement, ...]:
    before, ready, last, after = (memory[moment].gpus for moment in MOMENTS)
    if not before:
        return ()
    return (
        _measured("gpu_ready", max(ready.values()), params.max_gpu),
        _measured("gpu_growth", max(last[gpu] - ready[gpu] for gpu in ready), params.max_gpu_growth),
        _measured("gpu_left", max(after[gpu] - before[gpu] for gpu in before), params.max_gpu_left),
    )


def _difference(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier


def _measured(name: str, value: float | None, limit: float | None) -> Measurement:
    rounded = None if value is None else round(float(value), 1) + 0.0  # no "-0"; what is shown is what is judged
    return measured(name, rounded, "MiB", limit)


def _number(value: float | str | None) -> str:
    return f"{value:g}" if isinstance(value, float) else "unknown"
