"""What a reader should know of the machine: driver, GPUs with damaged memory, what the kernel said of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.record import Run
from harness.report.text import one_line

MOST_XIDS = 20


def driver(run: Run) -> str:
    """`580.65.06, CUDA 13.0`; empty for a node without GPUs, or a record of an older harness."""
    told = run.node.get("driver")
    if not isinstance(told, Mapping):
        return ""
    version, cuda = told.get("version"), told.get("cuda")
    return one_line(", ".join([*([str(version)] if version else []), *([f"CUDA {cuda}"] if cuda else [])]))


def remarks(run: Run) -> tuple[str, ...]:
    """A line for each Xid, for each GPU whose memory is damaged, and why some of that is not known."""
    xids = [one_line(f"{xid.words} ({xid.meaning.fault})", 500) for xid in run.xids[:MOST_XIDS]]
    more = len(run.xids) - MOST_XIDS
    return (
        *xids,
        *([f"{more} more Xids"] if more > 0 else []),
        *([one_line(run.kernel_log, 500)] if run.kernel_log else []),
        *_damaged(run),
    )


def _damaged(run: Run) -> Iterator[str]:
    for gpu in _gpus(run):
        if gpu.get("rows_failed"):
            yield one_line(f"GPU {gpu.get('index')}: a row of its memory could not be replaced")
        if gpu.get("rows_pending"):
            yield one_line(f"GPU {gpu.get('index')}: rows of its memory wait for a reset to be replaced")


def _gpus(run: Run) -> list[Mapping[str, Any]]:
    gpus = run.node.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, (list, tuple)) else []
