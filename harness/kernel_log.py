"""What the kernel's log says of GPUs while a run has them: Xids, from /dev/kmsg.

Each read of the device gives one record, `LEVEL,SEQUENCE,MICROSECONDS,FLAGS;TEXT`, the time since boot (kernel.org,
Documentation/ABI/testing/dev-kmsg). Levels of 8 and more are of programs, which may write what they like. Records that
the kernel has overwritten before they were read give EPIPE once.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from harness import clock, nvidia
from harness.node import Gpu
from harness.xid import Xid

KMSG = Path("/dev/kmsg")
MOST_XIDS = 100
"""Kept of one run: a kernel that faults in a loop writes thousands."""
_RECORD_BYTES = 16_384  # the kernel cuts records at 8 KiB, and refuses a buffer that is smaller than one
_DEVICE = os.makedev(1, 11)
_RECORD = re.compile(r"^[0-7],\d+,(?P<microseconds>\d+),[^;\n]*;(?P<text>.*)$", re.MULTILINE)
# `PCI:0000:2a:00`, of a MIG instance `PCI:0000:2a:00 GPU-I:05`, of old drivers without `PCI:`.
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<address>[0-9a-fA-F]{4,8}(?::[0-9a-fA-F]{2}){2})[^)]*\): (?P<xid>\d+),? ?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """All that came since the log was opened."""

    xids: tuple[Xid, ...] = ()
    trouble: str = ""
    """Why Xids may be missing from it, in one sentence; empty: none is."""


class KernelLog:
    """The kernel's log from this moment on; a context manager. It raises nothing: trouble is told in what was heard.

    `gpus` are those that the run can see, `leased` the UUIDs of those that it has. Another `path` is for tests.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        leased: Sequence[str],
        path: Path = KMSG,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self._gpus = {gpu.address: gpu for gpu in gpus if gpu.address}
        self._leased, self._path, self._read = frozenset(leased), path, read
        self._fd: int | None = None
        self._xids: list[Xid] = []
        self._more, self._lost, self._trouble, self._begun = 0, False, "", 0.0

    def __enter__(self) -> Self:
        self._begun = clock.now()
        try:
            self._fd = _open_at_end(self._path)
        except OSError as error:
            self._trouble = f"the kernel log cannot be read: {self._path}: {error.strerror}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def heard(self) -> Heard:
        """Everything so far; may be asked again."""
        for found in _RECORD.finditer(self._new()):
            if said := _XID.search(found["text"]):
                self._keep(said, found["text"][said.end() :], int(found["microseconds"]) / 1e6 - self._begun)
        told = (
            self._trouble,
            "the kernel log was overwritten before it was read, Xids may be missing" if self._lost else "",
            f"{self._more} more Xids than the {MOST_XIDS} that are kept" if self._more else "",
        )
        return Heard(xids=tuple(self._xids), trouble="; ".join(filter(None, told)))

    def _keep(self, said: re.Match[str], text: str, second: float) -> None:
        if len(self._xids) >= MOST_XIDS:
            self._more += 1
            return
        address = nvidia.address(said["address"])
        gpu = self._gpus.get(address)
        self._xids.append(
            Xid(
                number=int(said["xid"]),
                address=address,
                gpu=gpu.index if gpu else None,
                own=gpu is not None and gpu.uuid in self._leased,
                text=text.strip(),
                second=round(max(0.0, second), 1),
            )
        )

    def _new(self) -> str:
        """What came since the last look. A file that is no device ends with an empty read."""
        pieces: list[bytes] = []
        while self._fd is not None:
            try:
                piece = self._read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:
                self._lost = True
                continue
            except OSError as error:
                self._trouble = f"the kernel log cannot be read to its end: {self._path}: {error.strerror}"
                break
            if not piece:
                break
            pieces.append(piece)
        return b"".join(pieces).decode("utf-8", "replace")


def _open_at_end(path: Path) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_device(os.fstat(fd))
        os.lseek(fd, 0, os.SEEK_END)
    except OSError:
        os.close(fd)
        raise
    return fd


def _check_device(status: os.stat_result) -> None:
    """Containers have a console or /dev/null in its place: those never say anything, which would look like no Xid."""
    if stat.S_ISCHR(status.st_mode) and status.st_rdev != _DEVICE:
        raise OSError(errno.ENODEV, "it is another device here")


@contextmanager
def followed(
    gpus: Sequence[Gpu], *, leased: Sequence[str], note: Callable[[Heard], None]
) -> Iterator[Callable[[], None]]:
    """Follow the kernel's log in a block; without leased GPUs nothing is opened.

    `note` gets all that was heard so far, when the function that the block is given is called, and when an exception
    leaves the block.
    """
    if not leased:
        yield lambda: None
        return
    with KernelLog(gpus, leased=leased, path=KMSG) as log:
        try:
            yield lambda: note(log.heard())
        except BaseException:
            note(log.heard())
            raise
