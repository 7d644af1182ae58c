"""Where runs are made: here, or on the nodes of a Ray cluster. base.py draws it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from harness.errors import UsageError
from harness.executors.base import Ask, Executor, Facts, Job, Pool
from harness.executors.local import Local

__all__ = ["Ask", "Executor", "Facts", "Job", "Local", "Pool", "choose"]


def choose(address: str | None, *, node_class: str | None = None) -> AbstractContextManager[Executor]:
    """Here for None, else on the Ray cluster at an address (`auto`: the one that this node belongs to).

    Raises:
        UsageError: Ray is not installed, no cluster answers, or none of its nodes is of that class.
    """
    if address is None:
        if node_class is not None:
            raise UsageError(
                "--node-class chooses nodes of a cluster", fix="name the cluster with --ray, or leave it out"
            )
        return nullcontext(Local())
    try:
        from harness.executors.ray import connected  # noqa: PLC0415 - an extra, and slow to import
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise UsageError("--ray needs Ray, which is not installed here", fix="pip install 'harness[ray]'") from error
    return connected(address, node_class=node_class)
