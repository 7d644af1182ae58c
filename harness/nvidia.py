"""What nvidia-smi says: the one place that runs it and reads it.

A query fails whole where the driver does not know one field of it. So what harness cannot do without is asked alone, in
fields as old as the program, and the rest in queries whose failure is told and never fatal.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.errors import NodeError

SECONDS = 30.0  # a healthy answer takes under one; a wedged driver never answers
_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used")
_FURTHER = (
    *("driver_version", "pci.bus_id", "compute_cap", "mig.mode.current", "persistence_mode", "ecc.mode.current"),
    "ecc.errors.uncorrected.volatile.total",
)
_REMAPPED = ("remapped_rows.pending", "remapped_rows.failure")
_APPS = ("gpu_uuid", "pid", "process_name", "used_memory")
_FIX = "repair the driver, or set CUDA_VISIBLE_DEVICES to nothing to use this node without its GPUs"
_UNKNOWN_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')
# `CUDA Version`, of newer drivers `CUDA UMD Version`.
_CUDA = re.compile(r"^CUDA (?:\w+ )?Version\s*:\s*(\d[\d.]*)", re.MULTILINE)
_UNTOLD = re.compile(r"\[.+\]|N/A")
"""What stands for a value: `[N/A]`, `[Not Supported]`, `[Insufficient Permissions]`, `[GPU requires reset]`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One GPU as nvidia-smi lists it; memory in MiB."""

    index: int
    uuid: str
    name: str
    total: int | None
    used: int | None
    untold: str = ""
    """What it says in place of a memory that is None."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """Answers to an optional query."""

    rows: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By UUID: field → value. What nvidia-smi had no value for is left out."""
    untold: tuple[str, ...] = ()
    """Why something is missing for every GPU, in words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class App:
    """A process that computes on a GPU."""

    uuid: str
    pid: int
    name: str
    used: int | None
    """MiB; None where the driver does not tell."""


def query() -> tuple[Row, ...] | None:
    """All GPUs of this machine, or None where there is no nvidia-smi.

    Raises:
        NodeError: nvidia-smi fails, does not answer or says what we cannot read; in its own words.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    done = _run(program, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
    if done.returncode:
        raise NodeError(f"nvidia-smi failed with exit {done.returncode}: {_words(done)}", fix=_FIX)
    return tuple(_row(line) for line in done.stdout.splitlines() if line.strip())


def _run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [program, *words], capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NodeError(f"nvidia-smi did not answer within {SECONDS:.0f} s", fix=_FIX) from error
    except OSError as error:
        raise NodeError(f"{program} cannot be started: {error.strerror}", fix=_FIX) from error


def _words(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stderr + done.stdout).split()) or "no output"


def _row(line: str) -> Row:
    parts = [part.strip() for part in line.split(",")]
    try:
        index, uuid, name, total, used = parts
        return Row(
            index=int(index), uuid=uuid, name=name, total=_mib(total), used=_mib(used),
            untold=next((word for word in (total, used) if _UNTOLD.fullmatch(word)), ""),
        )  # fmt: skip
    except ValueError as error:
        raise NodeError(f"nvidia-smi printed a line that is not {', '.join(_FIELDS)}: {line!r}", fix=_FIX) from error


def _mib(word: str) -> int | None:
    return None if _UNTOLD.fullmatch(word) else int(word)


def further() -> Told:
    """Of every GPU the fields of `_FURTHER`, as far as this driver knows them."""
    return _ask("--query-gpu", "uuid", _FURTHER)


def remapped_rows() -> Told:
    """Whether rows of memory wait for a reset to be replaced, and whether one could not be: `Yes` or `No`."""
    return _ask("--query-remapped-rows", "gpu_uuid", _REMAPPED)


def _ask(option: str, key: str, fields: Sequence[str]) -> Told:
    """An optional query. A field that the driver does not know is left out of the next try, and told."""
    program, untold = shutil.which("nvidia-smi"), list[str]()
    left = list(fields)
    while program and left:
        try:
            done = _run(program, f"{option}={','.join((key, *left))}", "--format=csv,noheader,nounits")
        except NodeError as error:
            return Told(untold=(*untold, error.what))
        if done.returncode == 0:
            rows, odd = _table(done.stdout, left)
            return Told(rows=rows, untold=(*untold, *odd))
        unknown = _UNKNOWN_FIELD.search(_words(done))
        if not unknown or unknown[1] not in left:
            return Told(untold=(*untold, f"nvidia-smi {option} failed with exit {done.returncode}: {_words(done)}"))
        left.remove(unknown[1])
        untold.append(f"this driver does not know {unknown[1]}")
    return Told(untold=tuple(untold))


def _table(text: str, fields: Sequence[str]) -> tuple[dict[str, dict[str, str]], list[str]]:
    rows: dict[str, dict[str, str]] = {}
    odd = []
    for line in filter(str.strip, text.splitlines()):
        uuid, *values = (part.strip() for part in line.split(","))
        if len(values) != len(fields):
            odd.append(f"nvidia-smi printed a line that is not {', '.join(fields)}: {line!r}")
            continue
        rows[uuid] = {
            name: value for name, value in zip(fields, values, strict=True) if value and not _UNTOLD.fullmatch(value)
        }
    return rows, odd


def cuda_version() -> str | None:
    """The newest CUDA that the driver can do, `13.0`; None where it is not told. No query has a field for it."""
    program = shutil.which("nvidia-smi")
    try:
        found = _CUDA.search(_run(program, "-q", "-d", "COMPUTE").stdout) if program else None
    except NodeError:
        return None
    return found[1] if found else None


def apps() -> tuple[App, ...]:
    """Processes that compute on a GPU and are visible from here; those of other containers are not.

    Raises:
        NodeError: nvidia-smi fails, does not answer or says what we cannot read.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    done = _run(program, f"--query-compute-apps={','.join(_APPS)}", "--format=csv,noheader,nounits")
    if done.returncode:
        raise NodeError(f"nvidia-smi failed with exit {done.returncode}: {_words(done)}", fix=_FIX)
    return tuple(_app(line) for line in done.stdout.splitlines() if line.startswith("GPU-"))


def _app(line: str) -> App:
    try:
        uuid, pid, rest = line.split(",", 2)
        name, used = rest.rsplit(",", 1)  # a path may hold commas
        return App(uuid=uuid.strip(), pid=int(pid), name=name.strip(), used=_mib(used.strip()))
    except ValueError as error:
        raise NodeError(f"nvidia-smi printed a line that is not {', '.join(_APPS)}: {line!r}", fix=_FIX) from error


def address(text: str) -> str:
    """A place on the PCI bus in one form: `0000:2a:00`, of `00000000:2A:00.0` as of `PCI:0000:2a:00`."""
    return text.lower().removeprefix("pci:").partition(".")[0][-len("0000:2a:00") :]


def visible(rows: tuple[Row, ...], devices: str | None) -> tuple[Row, ...]:
    """The rows that CUDA_VISIBLE_DEVICES leaves, in its order: indices, or UUIDs or unique beginnings of them.

    Raises:
        NodeError: an entry names no GPU of this machine; CUDA itself would silently drop it and all after it. Or it
            names a part of a GPU (MIG).
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
    if word.upper().startswith("MIG-"):
        raise NodeError(
            f"CUDA_VISIBLE_DEVICES names {word!r}, a part of a GPU in MIG mode, and harness uses whole GPUs",
            fix="name GPUs that are not in MIG mode, by index or UUID, or unset it; MIG itself is left as it is",
        )
    found = [row for row in rows if (word.isdigit() and row.index == int(word)) or _begins(row.uuid, word)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(str(row.index) for row in rows) or "none"
    raise NodeError(f"CUDA_VISIBLE_DEVICES names {word!r}, this node has GPUs {there}", fix="correct or unset it")


def _begins(uuid: str, word: str) -> bool:
    return word.upper().startswith("GPU-") and uuid.upper().startswith(word.upper())
