"""The cache of release environments: where each one is, whether it is complete and in use, and how it goes away.

CACHE/envs/NAME/                the virtual environment; its scripts name this path, so it is built in place;
                                or site-packages/ with the sources of a commit, an overlay on another environment
CACHE/envs/NAME/complete.json   written last: without it the folder is half built and will be built again
CACHE/envs/.locks/NAME          exclusive while it is built or removed, shared while a run uses it; never removed
CACHE/envs/.logs/NAME.log       all that the installer said
CACHE/uv/                       the content itself; environments are hard links into it
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import clock, locks
from harness.errors import BuildError, NodeError

SCHEMA = 1
_MARKER = "complete.json"
_POLL_SECONDS = 0.1
_REMOVAL_SECONDS = 60.0
_BLOCK = 512  # st_blocks counts these, whatever the file system's block size


def cache_root() -> Path:
    """$HARNESS_CACHE, else $XDG_CACHE_HOME/harness, else ~/.cache/harness."""
    if own := os.environ.get("HARNESS_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "harness"


FileId = tuple[int, int]
"""Device and inode: what hard links have in common."""
Sizes = dict[FileId, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One environment of the cache, there or not."""

    cache: Path
    name: str

    @property
    def folder(self) -> Path:
        return self.cache / "envs" / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def lock(self) -> Path:
        return self.cache / "envs" / ".locks" / self.name

    @property
    def log(self) -> Path:
        return self.cache / "envs" / ".logs" / f"{self.name}.log"

    def read(self) -> dict[str, Any] | None:
        """What was noted when it was completed; None: it is not there, half built, or its interpreter has gone."""
        try:
            noted: dict[str, Any] = json.loads((self.folder / _MARKER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        runs_on = Path(noted.get("interpreter", self.python))  # of an overlay: that of its base
        return noted if noted.get("schema") == SCHEMA and runs_on.exists() else None

    def touch(self) -> None:
        """Note that it was used now."""
        (self.folder / _MARKER).touch()

    def finish(self, noted: dict[str, Any]) -> None:
        """Mark it complete; the marker appears whole or not at all."""
        part = self.folder / f".{_MARKER}.part"
        part.write_text(json.dumps({"schema": SCHEMA, **noted}, indent=1), encoding="utf-8")
        part.replace(self.folder / _MARKER)

    def remove(self) -> None:
        """Delete it; the lock must be held. The marker goes first, so that a killed removal leaves a half-built one."""
        (self.folder / _MARKER).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=False)

    @contextmanager
    def building(self, *, deadline: clock.Deadline, on_wait: Callable[[str], None]) -> Iterator[int]:
        """Hold the environment alone; yields the descriptor that holds the lock, for the installer to inherit.

        Raises:
            NodeError: another process held it until the deadline.
        """
        make_folders(self)
        fd = locks.open_file(self.lock)
        try:
            _wait(fd, self, deadline=deadline, on_wait=on_wait)
            locks.sign(fd, f"builds {self.name}")
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keep it from being removed until the block or the process ends.

        Raises:
            BuildError: it is being removed, or has gone since it was provided.
        """
        make_folders(self)
        fd = locks.open_file(self.lock)
        try:
            # Held for an instant by one who lists, for seconds by one who removes it: then it is gone.
            deadline = clock.Deadline.after(_REMOVAL_SECONDS)
            while not (ours := locks.try_lock(fd, shared=True)) and not deadline.expired:
                clock.sleep(_POLL_SECONDS)
            if not ours or self.read() is None:
                raise BuildError(f"the environment {self.name} was removed meanwhile", fix="start the run again")
            self.touch()
            yield
        finally:
            os.close(fd)


def make_folders(entry: Entry) -> None:
    try:
        for file in (entry.lock, entry.log):
            file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NodeError(
            f"cannot make {error.filename}: {error.strerror}", fix="set HARNESS_CACHE to a folder with space"
        ) from error


def _wait(fd: int, entry: Entry, *, deadline: clock.Deadline, on_wait: Callable[[str], None]) -> None:
    told = ""
    if locks.try_lock(fd):
        return
    clock.sleep(_POLL_SECONDS)  # one who lists holds it for an instant: nothing to speak of
    while not locks.try_lock(fd):
        words = f"waiting for {locks.holder(entry.lock)}"
        if deadline.expired:
            raise NodeError(
                f"gave up after {deadline.budget:g} s {words}", fix="end that process, or give it more time"
            )
        if words != told:
            on_wait(words)
            told = words
        clock.sleep(_POLL_SECONDS)


@contextmanager
def full_disk(cache: Path) -> Iterator[None]:
    """What is written into the cache.

    Raises:
        NodeError: it cannot be, because the disk is full, read-only or over a quota.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        free = shutil.disk_usage(cache).free >> 20
        raise NodeError(
            f"cannot write below {cache}: {error.strerror} ({free} MB free)",
            fix="free some disk (`harness env prune`), or set HARNESS_CACHE to a folder with 4 GB",
        ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """One line of `harness env list`."""

    name: str
    folder: Path
    build: str
    """Canonical word of the build; empty where the folder is half built."""
    complete: bool
    in_use: bool
    """A run uses it, or somebody builds it."""
    used: float
    """Last use, seconds since 1970; 0 where it was never complete."""
    total_bytes: int
    own_bytes: int
    """Disk that no other environment shares."""


def list_environments(cache: Path) -> tuple[Listed, ...]:
    """All environments of a cache, by name; also half-built ones."""
    folders = sorted(path for path in (cache / "envs").glob("[!.]*") if path.is_dir())
    sizes = {folder.name: _sizes(folder) for folder in folders}
    holders = Counter(file for files in sizes.values() for file in files)
    return tuple(_listed(Entry(cache=cache, name=name), files, holders) for name, files in sizes.items())


def _listed(entry: Entry, files: Sizes, holders: Mapping[FileId, int]) -> Listed:
    noted = entry.read()
    marker = entry.folder / _MARKER
    return Listed(
        name=entry.name,
        folder=entry.folder,
        build=str(noted["build"]) if noted else "",
        complete=noted is not None,
        in_use=_is_held(entry),
        used=marker.stat().st_mtime if marker.exists() else 0.0,
        total_bytes=sum(files.values()),
        own_bytes=sum(size for file, size in files.items() if holders[file] == 1),
    )


def _is_held(entry: Entry) -> bool:
    make_folders(entry)
    fd = locks.open_file(entry.lock)
    try:
        return not locks.try_lock(fd)
    finally:
        os.close(fd)


def disk_bytes(folder: Path) -> int:
    """Disk used below a folder; a file with several names in it counts once."""
    return sum(_sizes(folder).values())


def _sizes(folder: Path) -> Sizes:
    return {(s.st_dev, s.st_ino): s.st_blocks * _BLOCK for s in _stats(folder)}


def _stats(folder: Path) -> Iterator[os.stat_result]:
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                found = os.lstat(os.path.join(path, name))  # noqa: PTH118 - 20,000 files: Path objects take seconds
            except FileNotFoundError:  # somebody else tidies up
                continue
            if stat.S_ISREG(found.st_mode):
                yield found
