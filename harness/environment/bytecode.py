"""Byte code that another environment already has for the very same source file is linked, not compiled again.

    envs/A/…/torch/__pycache__/init.cpython-311.pyc ──┐ one file on disk
    envs/B/…/torch/__pycache__/init.cpython-311.pyc ──┘ because A's and B's torch/nn/init.py are one file too

Python accepts byte code whose header names the size and time of the source, and one file has these in both places. It
writes new byte code to a new file, so no environment can change another's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_CACHE = "__pycache__"


def share(site_packages: Path, others: Iterable[Path]) -> int:
    """Link into `site_packages` what the `others` have compiled of identical files; returns how many it linked."""
    return sum(_link(other, site_packages, pyc) for other in others for pyc in _compiled(other))


def _compiled(site_packages: Path) -> Iterator[str]:
    """Paths of byte code below a folder, relative to it."""
    for folder, _, files in os.walk(site_packages):
        if folder.endswith(_CACHE):
            below = os.path.relpath(folder, site_packages)
            yield from (f"{below}/{name}" for name in files if name.endswith(".pyc"))


def _link(other: Path, mine: Path, pyc: str) -> bool:
    folder, name = os.path.split(pyc)
    source = f"{os.path.dirname(folder)}/{name.split('.', 1)[0]}.py"  # noqa: PTH120 - 10,000 files: strings are faster
    with suppress(FileNotFoundError, FileExistsError):  # not in both, being removed, or already there
        if os.path.samefile(f"{other}/{source}", f"{mine}/{source}"):  # noqa: PTH121
            os.makedirs(f"{mine}/{folder}", exist_ok=True)  # noqa: PTH103
            os.link(f"{other}/{pyc}", f"{mine}/{pyc}")
            return True
    return False
