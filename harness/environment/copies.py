"""A copy of an installed package that may be changed, put in front of the environment, which stays as it is.

    <place>/site-packages/vllm/               PYTHONPATH of the launch begins here
      v1/core.py                              copied, with its time, so that its byte code stays valid
      v1/__pycache__/core.cpython-311.pyc ──▶ link
      _C.abi3.so                          ──▶ link
    <place>/site-packages/vllm.libs       ──▶ link

Nothing is ever opened for writing that lies in the environment: its files may be hard links into a cache that every
other environment shares.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

PYTHONPATH = "PYTHONPATH"
SITE = "site-packages"
"""Name of a folder of packages: tracebacks are shortened at it, as those of the original."""


def in_front(site: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The variables of a launch that looks into `site` before all else."""
    return {**env, PYTHONPATH: os.pathsep.join(filter(None, (str(site), env.get(PYTHONPATH))))}


def mirror(source: Path, copy: Path, *, wanted: Callable[[str], bool]) -> None:
    """Real folders, copied Python sources, links to everything else.

    `wanted` is asked for each file by its path as seen from site-packages; those of a folder come before what is below.

    Raises:
        OSError: it cannot be written.
    """
    for folder, folders, files in os.walk(source):
        there = copy / os.path.relpath(folder, source)
        if os.path.lexists(there) and (there.is_symlink() or not there.is_dir()):  # the copy has something else there
            folders.clear()
            continue
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        folders[:] = [name for name in folders if name not in links]
        for name in (*files, *links):
            if wanted((Path(source.name) / os.path.relpath(folder, source) / name).as_posix()):
                there.mkdir(parents=True, exist_ok=True)
                _bring(Path(folder) / name, there / name)


def _bring(file: Path, copy: Path) -> None:
    if file.suffix == ".py" and not file.is_symlink():
        shutil.copy2(file, copy)
    else:
        copy.symlink_to(file.absolute())


def compiled_from(file: str) -> str:
    """`a/__pycache__/b.cpython-311.pyc` → `a/b.py`: byte code of another source would be run in its place."""
    folder, _, name = file.rpartition("/")
    return f"{folder.removesuffix('__pycache__')}{name.split('.', 1)[0]}.py" if name.endswith(".pyc") else ""


def link_libraries(home: Path, site: Path) -> None:
    """Shared libraries that a wheel brought along are looked for beside the package: `$ORIGIN/../vllm.libs`."""
    for libraries in home.glob("*.libs"):
        if not (site / libraries.name).exists():
            (site / libraries.name).symlink_to(libraries.absolute())
