"""This machine: its GPUs and memory, who may use them (leases), and whether they are fit before and after a run."""

from __future__ import annotations

from dataclasses import dataclass

from harness.build import Accelerator


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
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()
    node_class: str = "cpu"
    """Hardware kind, key of baselines and of per-class limits: `h200`, `cpu`."""

    @property
    def accelerator(self) -> Accelerator:
        return "cuda" if self.gpus else "cpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """What one run may use until it ends; nobody else on this machine gets it meanwhile."""

    gpus: tuple[Gpu, ...]
    """Empty: the CPU is leased."""
