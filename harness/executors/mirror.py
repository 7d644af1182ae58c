"""A folder that grows on one node, and the same folder on another: what changed, as pieces to send and to write.

Logs only grow and are sent from where the last look ended; everything else is small and replaced as a whole, so that a
reader sees the old or the new one, as beside the writer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.errors import HarnessError

PIECE = 4 << 20
"""Bytes of one piece at most."""
GROWING = (".log", ".times")


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    path: str
    """Below the folder, with `/`."""
    offset: int
    data: bytes
    grows: bool
    """Whether it is put into the file where it stands, at its offset; else the file appears with its last piece."""
    last: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    inode: int
    changed: int
    size: int


class Source:
    """The folder that is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, _Seen] = {}

    def changes(self, *, last: bool = False) -> Iterator[Piece]:
        """What was written since the last look; the folder need not be there yet.

        In the `last` look every file that is replaced as a whole is sent once more: two that were written within one
        tick of the file system's clock, under one name and of one size, look the same.
        """
        if last:
            self._seen = {path: seen for path, seen in self._seen.items() if path.endswith(GROWING)}
        for file in sorted(self._folder.rglob("*")):
            if file.is_file() and not file.is_symlink() and not file.name.startswith("."):
                with suppress(FileNotFoundError):  # taken away, or replaced, while we looked
                    yield from self._of(file)

    def _of(self, file: Path) -> Iterator[Piece]:
        path = file.relative_to(self._folder).as_posix()
        before = self._seen.get(path)
        with file.open("rb") as opened:
            known = os.fstat(opened.fileno())  # of what is read, whatever takes its name meanwhile
            now = _Seen(known.st_ino, known.st_mtime_ns, known.st_size)
            if now == before:
                return
            grows = path.endswith(GROWING)
            more = before if grows and before and before.inode == now.inode and before.size <= now.size else None
            sent = opened.seek(more.size if more else 0)
            while True:
                data = opened.read(min(PIECE, now.size - sent))
                sent += len(data)
                last = sent >= now.size or not data
                yield Piece(path=path, offset=sent - len(data), data=data, grows=grows, last=last)
                if last:
                    break
        self._seen[path] = _Seen(now.inode, now.changed, sent)


class Target:
    """The folder that becomes the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, piece: Piece) -> Path:
        """Put a piece where it belongs; gives the file.

        Raises:
            HarnessError: it belongs nowhere below the folder.
        """
        path = PurePosixPath(piece.path)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise HarnessError(f"a node sent a file named {piece.path!r}", fix="see which harness runs there")
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        place = file if piece.grows else file.with_name(f".{file.name}.part")
        with place.open("r+b" if piece.offset else "wb") as out:
            out.seek(piece.offset)
            out.write(piece.data)
        if piece.last and not piece.grows:
            place.replace(file)
        return file
