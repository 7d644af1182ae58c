"""What nvidia-smi says: the one place that runs it and reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

from harness.errors import NodeError

SECONDS = 30.0  # a healthy answer takes under one; a wedged driver never answers
_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used")
_FIX = "repair the driver, or set CUDA_VISIBLE_DEVICES to nothing to use this node without its GPUs"

# Hardware kinds that baselines are kept for, by a word of the product name.
CLASSES = (
    *("gb300", "gb200", "b300", "b200", "gh200", "h200", "h100", "h800", "h20"),
    *("a100", "a800", "a40", "a30", "a10g", "a10", "l40s", "l40", "l20", "l4", "v100", "t4"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One GPU as nvidia-smi lists it; memory in MiB."""

    index: int
    uuid: str
    name: str
    total: int
    used: int


def query() -> tuple[Row, ...] | None:
    """All GPUs of this machine, or None where there is no nvidia-smi.

    Raises:
        NodeError: nvidia-smi fails, does not answer or says what we cannot read; in its own words.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    argv = [program, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise NodeError(f"nvidia-smi did not answer within {SECONDS:.0f} s", fix=_FIX) from error
    except OSError as error:
        raise NodeError(f"{program} cannot be started: {error.strerror}", fix=_FIX) from error
    if done.returncode:
        words = " ".join((done.stderr + done.stdout).split()) or "no output"
        raise NodeError(f"nvidia-smi failed with exit {done.returncode}: {words}", fix=_FIX)
    return tuple(_row(line) for line in done.stdout.splitlines() if line.strip())


def _row(line: str) -> Row:
    parts = [part.strip() for part in line.split(",")]
    try:
        index, uuid, name, total, used = parts
        return Row(index=int(index), uuid=uuid, name=name, total=int(total), used=int(used))
    except ValueError as error:
        raise NodeError(f"nvidia-smi printed a line that is not {', '.join(_FIELDS)}: {line!r}", fix=_FIX) from error


def visible(rows: tuple[Row, ...], devices: str | None) -> tuple[Row, ...]:
    """The rows that CUDA_VISIBLE_DEVICES leaves, in its order: indices, or UUIDs or unique beginnings of them.

    Raises:
        NodeError: an entry names no GPU of this machine; CUDA itself would silently drop it and all after it.
    """
    if devices is None:
        return rows
    words = [word.strip() for word in devices.split(",") if word.strip()]
    if hidden(devices):
        return ()
    return tuple(_named(rows, word) for word in words)


def hidden(devices: str | None) -> bool:
    """Whether CUDA_VISIBLE_DEVICES hides every GPU: set, and nothing, `-1` or `NoDevFiles`."""
    return devices is not None and devices.strip().lower() in ("", "-1", "nodevfiles")


def _named(rows: tuple[Row, ...], word: str) -> Row:
    found = [row for row in rows if (word.isdigit() and row.index == int(word)) or _begins(row.uuid, word)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(str(row.index) for row in rows) or "none"
    raise NodeError(f"CUDA_VISIBLE_DEVICES names {word!r}, this node has GPUs {there}", fix="correct or unset it")


def _begins(uuid: str, word: str) -> bool:
    return word.upper().startswith("GPU-") and uuid.upper().startswith(word.upper())


def class_of(names: tuple[str, ...]) -> str:
    """Node class of GPUs by their product names: `h200`; `cpu` without any, both joined by + where they differ."""
    return "+".join(sorted({_class(name) for name in names})) or "cpu"


def _class(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.lower())
    known = next((known for known in CLASSES if known in words), None)
    return known or "-".join(word for word in words if word not in ("nvidia", "geforce")) or "gpu"
