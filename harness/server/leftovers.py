"""What a server leaves outside its processes: objects in /dev/shm and its temporary folder. Runs inside the keeper.

An object is the server's when a process of its tree was seen to map it or hold it open. Looking costs a pass over the
memory maps, so that is done only when a name appeared that nobody has explained yet.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat

from harness.server import proctree

SHM = "/dev/shm"  # noqa: S108 - the kernel's own place for shared memory
_LOOKS = 5  # a name that no process of ours held in so many looks is somebody else's


def objects() -> dict[int, str]:
    """Name by inode. Inodes, because glibc maps a semaphore under a first name and then links it to its real one."""
    try:
        with os.scandir(SHM) as entries:
            return {entry.inode(): entry.name for entry in entries}
    except OSError:
        return {}


def held(pid: int) -> set[int]:
    """Inodes in /dev/shm that a process maps or holds open."""
    found = set()
    for fd, target in proctree.descriptors(pid):
        if target.startswith(SHM):
            with contextlib.suppress(OSError):  # closed in between
                found.add(os.stat(f"/proc/{pid}/fd/{fd}").st_ino)  # noqa: PTH116
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123
            maps = file.read()
    except OSError:
        return found
    if SHM.encode() in maps:
        found |= {int(line.split(None, 5)[4]) for line in maps.splitlines() if SHM.encode() in line}
    return found


class SharedMemory:
    """Attributes new objects in /dev/shm to the tree below `root`."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._before = set(objects())
        self._looks: dict[int, int] = {}
        self.ours: set[int] = set()

    def look(self) -> None:
        """Cheap where nothing new appeared."""
        unknown = {n for n in set(objects()) - self._before - self.ours if self._looks.get(n, 0) < _LOOKS}
        if not unknown:
            return
        for process in proctree.descendants(self._root):
            self.ours |= held(process.pid) & unknown
        for inode in unknown - self.ours:
            self._looks[inode] = self._looks.get(inode, 0) + 1

    def remove(self) -> list[str]:
        removed = []
        for path in sorted(f"{SHM}/{name}" for inode, name in objects().items() if inode in self.ours):
            try:
                os.unlink(path)  # noqa: PTH108
            except OSError:
                continue  # stays in `left`
            removed.append(path)
        return removed

    def left(self) -> list[str]:
        """New objects of this user that nobody uses and that we cannot prove to be the server's."""
        new = {inode: name for inode, name in objects().items() if inode not in self._before and _is_mine(name)}
        if new:
            used = set().union(*(held(pid) for pid in proctree.everything()))
            new = {inode: name for inode, name in new.items() if inode not in used}
        return sorted(f"{SHM}/{name}" for name in new.values())


def _is_mine(name: str) -> bool:
    try:
        return os.lstat(f"{SHM}/{name}").st_uid == os.getuid()
    except OSError:
        return False


def remove_folder(folder: str) -> list[str]:
    """Delete a temporary folder; says in one line what was in it. Nothing where it is already gone."""
    files = sockets = size = 0
    for parent, _, found in os.walk(folder):
        for name in found:
            try:
                status = os.lstat(f"{parent}/{name}")
            except OSError:
                continue
            files, size = files + 1, size + status.st_size
            sockets += stat.S_ISSOCK(status.st_mode)
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder) or not files:
        return []
    return [f"{folder}: {files} files ({sockets} sockets, {size} bytes)"]
