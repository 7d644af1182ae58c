"""Which kernels were compiled, read from the compile caches: the files tell it where no log line does.

inductor/5s/c5sx….py        cpp_fused_add_0 = async_compile.cpp_pybinding(…        one name a kernel (torch 2.13)
triton/<hash>/fwd_kernel.json                                                      its stem is the name (triton 3.x)
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_INDUCTOR = re.compile(r"^(\w+) = async_compile\.\w+\(", re.MULTILINE)
_MOST_BYTES = 8 << 20
"""A generated module has kilobytes."""


class Watch:
    """The caches below a folder, from now on. Other servers that share them are seen too."""

    def __init__(self, caches: Path) -> None:
        self._caches = caches
        self._before = set(_files(caches))

    def names(self) -> tuple[str, ...]:
        """Kernels that were compiled since, by name."""
        new = sorted(file for file in _files(self._caches) if file not in self._before)
        return tuple(dict.fromkeys(name for file in new for name in _names(Path(file))))


def _files(folder: Path) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names if name.endswith((".py", ".json")))  # noqa: PTH118 - fast


def _names(file: Path) -> list[str]:
    if file.suffix == ".json":
        is_kernel = file.with_suffix(".ttir").exists() and not file.name.startswith("__grp__")
        return [file.stem] if is_kernel else []
    try:
        with file.open(encoding="utf-8", errors="replace") as source:
            return _INDUCTOR.findall(source.read(_MOST_BYTES))
    except OSError:
        return []  # moved to its place just now: the next look finds it there
