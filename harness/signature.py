"""The identity of a failure: the same on every rank, in every night, on every build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "python_exception", "oom_gpu", "oom_kv_cache", "oom_host", "nccl", "cuda_error", "unsupported_gpu", "compile_error",
    "config_invalid", "cli_usage", "model_unsupported", "weights", "tokenizer", "hub_access", "port_in_use",
    "import_error", "killed_signal", "hang", "disk_full", "check_failed", "other",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    function: str
    file: str
    line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """Equality of two failures is equality of `id`; the other fields are for people and for finding similar ones."""

    id: str
    """12 hex digits of hash(grouping, kind, exception, normalised, and the function where the message is generic)."""
    kind: Kind
    exception: str | None
    message: str
    normalised: str
    """The message without its volatile parts (paths, pids, addresses, ports, numbers that move)."""
    frames: tuple[Frame, ...]
    """The server's own functions first; frames[0] is the deepest frame of the root traceback."""
    process: str | None
    """Tag as printed without its pid (`Worker_TP0`)."""
    phase: str | None
    ranks: str | None
    """Which share of the ranks showed it: `2/2`; None where the log has no ranks."""
    title: str
    """One sentence for people: no rank, phase, path or pid."""
    alternatives: tuple[str, ...] = ()
    """Titles of other root candidates in the same log."""
    confidence: float = 1.0
    """0 to 1: how sure the rules are that this is the cause and not a messenger."""
    grouping: int = 1
    """Version of the rules that made `id`."""


def similar(one: Signature, other: Signature) -> bool:
    """Not the same, but worth a look: the same exception in the same function, or the same message elsewhere."""
    if one.id == other.id:
        return False
    same_place = one.exception == other.exception and one.frames[:1] != () and _place(one) == _place(other)
    return same_place or (one.normalised == other.normalised != "")


def _place(signature: Signature) -> str | None:
    return signature.frames[0].function if signature.frames else None
