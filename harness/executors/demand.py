"""What a run asks of a cluster, as resources that its nodes declare. Pure.

node-class:h200   1 or more, on each node of that class; without it nothing tells classes apart
GPU               real ones; on a node without GPUs a number of runs that may share its CPU
harness-cpu       the same, for nodes that should declare no GPUs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.build import Build
from harness.errors import UnmetError, UsageError
from harness.scenario import Scenario

Resources = Mapping[str, float]

CLASS = "node-class:"
CPU = "harness-cpu"
SOME = 0.001
"""Of a resource that only says where: a node that declares 1 of it takes as many runs as its GPUs allow."""
_HELP = "start its nodes with `ray start --num-gpus N`, or with `--resources '{\"harness-cpu\": N}'`"


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    gpus: float = 0.0
    others: Resources = field(default_factory=dict)

    @property
    def all(self) -> dict[str, float]:
        return {**({"GPU": self.gpus} if self.gpus else {}), **self.others}

    @property
    def words(self) -> str:
        """`8 GPU, node-class:h200`."""
        return ", ".join(name if amount == SOME else f"{amount:g} {name}" for name, amount in self.all.items())

    def fits(self, node: Resources) -> bool:
        return all(node.get(name, 0.0) >= amount for name, amount in self.all.items())


def class_of(nodes: Sequence[Resources], wanted: str | None) -> str | None:
    """The class whose nodes are used: the one that is wanted, else the only one that is declared, if any is.

    Raises:
        UsageError: no node declares it, or there are several and none is named.
    """
    declared = sorted({name.removeprefix(CLASS) for node in nodes for name in node if name.startswith(CLASS)})
    if wanted is not None and wanted not in declared:
        has = f"they declare {', '.join(declared)}" if declared else "they declare no class"
        fix = f"start its nodes with `ray start --resources '{{\"{CLASS}{wanted}\": 1}}'`, or name another class"
        raise UsageError(f"no node of the cluster declares {CLASS}{wanted}, {has}", fix=fix)
    if wanted is None and len(declared) > 1:
        raise UsageError(
            f"the cluster has nodes of the classes {', '.join(declared)}", fix="name one with --node-class"
        )
    return wanted or next(iter(declared), None)


def of_run(scenario: Scenario, build: Build, nodes: Sequence[Resources], node_class: str | None) -> Demand:
    """What one launch takes: all GPUs of its parallel sizes on one node, or a part of a CPU.

    Raises:
        UsageError: no node declares how many runs it may have.
        UnmetError: none has so much, even when it is idle.
    """
    name = _counted(build, nodes, node_class)
    gpus = float(scenario.needs.gpus or scenario.world_size)
    asked = _with_class(Demand(gpus=gpus) if name == "GPU" else Demand(others={CPU: 1.0}), node_class)
    if not any(asked.fits(node) for node in nodes):
        most = max((node.get(name, 0.0) for node in _of_class(nodes, node_class)), default=0.0)
        what = f"needs {asked.words} on one node, and no node of the cluster has more than {most:g} {name}"
        raise UnmetError(what, fix="wait until such a node has joined, or run a smaller variant")
    return asked


def to_look(build: Build, nodes: Sequence[Resources], node_class: str | None) -> Demand:
    """What it takes only to be where such runs are made."""
    name = _counted(build, nodes, node_class)
    return _with_class(Demand(gpus=SOME) if name == "GPU" else Demand(others={CPU: SOME}), node_class)


def _counted(build: Build, nodes: Sequence[Resources], node_class: str | None) -> str:
    order = (CPU, "GPU") if build.accelerator == "cpu" else ("GPU", CPU)
    declared = {name for node in _of_class(nodes, node_class) for name, amount in node.items() if amount}
    for name in order:
        if name in declared:
            return name
    raise UsageError("the cluster does not say how many runs a node may have at once", fix=_HELP)


def _of_class(nodes: Sequence[Resources], node_class: str | None) -> list[Resources]:
    return [node for node in nodes if node_class is None or f"{CLASS}{node_class}" in node]


def _with_class(demand: Demand, node_class: str | None) -> Demand:
    where = {f"{CLASS}{node_class}": SOME} if node_class else {}
    return Demand(gpus=demand.gpus, others={**demand.others, **where})
