"""Folders of one run in the cache, gone when it ends; those of harnesses that were killed are removed on the way."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import locks
from harness.environment.envcache import cache_root
from harness.errors import NodeError


@contextmanager
def folder(kind: str) -> Iterator[Path]:
    """A name of our own below `kind` in the cache; the folder is not made, but removed in the end.

    Raises:
        NodeError: the cache cannot be written.
    """
    place = cache_root() / kind
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NodeError(
            f"cannot make a folder in {place}: {error}", fix="make room, or set HARNESS_CACHE to another folder"
        ) from error
    for stale in place.glob("*.lock"):
        _sweep(stale)
    lock = place / f"{uuid.uuid4().hex}.lock"
    fd = locks.open_file(lock)
    try:
        while not locks.try_lock(fd):  # a sweep looks at it just now, and lets go at once
            pass
        yield lock.with_suffix("")
    finally:
        _remove(lock)
        os.close(fd)


def _sweep(lock: Path) -> None:
    fd = locks.open_file(lock)
    try:
        if locks.try_lock(fd):
            _remove(lock)
    finally:
        os.close(fd)


def _remove(lock: Path) -> None:
    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
    lock.unlink(missing_ok=True)
