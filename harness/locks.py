"""Locks between processes: flock on a file. The kernel frees one when its holder ends, also by SIGKILL.

The file's text says who holds it, for messages only; it is stale as soon as the lock is free, and never believed then.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

from harness import clock
from harness.errors import NodeError


def open_file(path: Path) -> int:
    """Open a lock file, made if missing, writable for every user; not inherited by child processes.

    Raises:
        NodeError: the file cannot be opened or made.
    """
    try:
        return _open(path)
    except OSError as error:
        raise NodeError(
            f"cannot open the lock file {path}: {error.strerror}",
            fix=f"make {path.parent} writable for this user, or choose another folder",
        ) from error


def _open(path: Path) -> int:
    # First without O_CREAT: in a sticky, world-writable folder the kernel refuses O_CREAT on another user's file.
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:  # made by another process between the two calls
            return os.open(path, flags)
        os.fchmod(fd, 0o666)  # whatever the umask: the next user must be able to lock it too
        return fd


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Take the lock if it is free, without waiting; True: it is ours until the descriptor is closed."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise NodeError(f"cannot lock: {error.strerror}", fix="use a folder on a local file system") from error
    return True


def sign(fd: int, what: str) -> None:
    """Write into a lock file that we hold who we are and what for."""
    text = json.dumps({"pid": os.getpid(), "since": clock.utc(), "what": what})
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(), 0)


def holder(path: Path) -> str:
    """Who signed a lock that is taken: `pid 4711 (tiny_lm, since 2026-11-30T23:50:01Z)`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        since = f"{data['since'][:19]}Z"
        return f"pid {int(data['pid'])} ({data['what']}, since {since})"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that did not sign"  # between taking and signing, or a full disk
