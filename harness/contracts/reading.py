"""The Python files of a build, wherever it lies: a wheel, an environment, a folder of sources. Nothing is imported."""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from harness.errors import BuildError

_METADATA = re.compile(r"(?P<name>[^/]+?)-(?P<version>[^/-]+)\.dist-info")
_NATIVE = (".so", ".pyd")


class Sources(ABC):
    """The files of one package, named as seen from the folder that holds it: `vllm/v1/core.py`."""

    def __init__(self, package: str, *, version: str) -> None:
        self.package, self.version = package, version

    @cached_property
    def names(self) -> frozenset[str]:
        """All Python files."""
        return frozenset(name for name in self._listed() if name.endswith(".py"))

    @cached_property
    def native(self) -> frozenset[str]:
        """Dotted names of compiled modules: `vllm._C` for vllm/_C.abi3.so."""
        files = (name for name in self._listed() if name.endswith(_NATIVE))
        return frozenset(_dotted(name) for name in files)

    @cached_property
    def content(self) -> str:
        """12 hex digits: the same digits, the same Python sources."""
        rows = sorted(f"{name} {self._fingerprint(name)}" for name in self.names)
        return hashlib.sha256("\n".join([*rows, *sorted(self.native)]).encode()).hexdigest()[:12]

    def text(self, name: str) -> str:
        """The text of a file, kept: every rule looks through all of them (40 MB)."""
        if name not in self._texts:
            self._texts[name] = self._bytes(name).decode(errors="replace")
        return self._texts[name]

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {}

    @abstractmethod
    def _listed(self) -> tuple[str, ...]: ...

    @abstractmethod
    def _bytes(self, name: str) -> bytes: ...

    def _fingerprint(self, name: str) -> str:
        return hashlib.sha256(self._bytes(name)).hexdigest()


def _dotted(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"{folder.replace('/', '.')}.{file.partition('.')[0]}"


class Folder(Sources):
    """A package in a folder: site-packages, or a checkout."""

    def __init__(self, root: Path, package: str) -> None:
        super().__init__(package, version=_version(root, package))
        self._root = root
        self._files = tuple(self._walk())

    def _walk(self) -> Iterator[str]:
        for place, folders, names in os.walk(self._root / self.package):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in names:
                yield Path(place, name).relative_to(self._root).as_posix()

    def _listed(self) -> tuple[str, ...]:
        return self._files

    def _bytes(self, name: str) -> bytes:
        return (self._root / name).read_bytes()


class Wheel(Sources):
    """A package in a wheel, read where it is."""

    def __init__(self, file: Path, package: str) -> None:
        super().__init__(package, version=file.name.split("-")[1] if file.name.count("-") > 1 else "")
        try:
            self._zip = zipfile.ZipFile(file)
        except (OSError, zipfile.BadZipFile) as error:
            raise BuildError(f"{file} is no wheel: {error}", fix="download it again") from error
        inside = (name for name in self._zip.namelist() if name.startswith(f"{package}/"))
        self._files = tuple(inside)

    def _listed(self) -> tuple[str, ...]:
        return self._files

    def _bytes(self, name: str) -> bytes:
        return self._zip.read(name)

    def _fingerprint(self, name: str) -> str:
        info = self._zip.getinfo(name)  # a wheel says what is in it without being unpacked
        return f"{info.CRC:08x} {info.file_size}"


class Archive(Sources):
    """A package whose files are at hand."""

    def __init__(self, files: Mapping[str, bytes], package: str, *, version: str) -> None:
        super().__init__(package, version=version)
        self._held = files

    def _listed(self) -> tuple[str, ...]:
        return tuple(self._held)

    def _bytes(self, name: str) -> bytes:
        return self._held[name]


def at(path: Path, package: str) -> Sources:
    """The sources of a package at a path: a wheel, an environment, or a folder that is or holds the package.

    Raises:
        BuildError: there is no such package.
    """
    if path.is_file() and path.suffix == ".whl":
        found: Sources = Wheel(path, package)
    else:
        found = Folder(_root(path, package), package)
    if f"{package}/__init__.py" not in found.names:
        raise BuildError(f"{path} has no package {package!r}", fix=f"name a wheel, or a folder that holds {package}/")
    return found


def _root(path: Path, package: str) -> Path:
    """The folder that holds the package."""
    if not path.is_dir():
        raise BuildError(f"{path} is neither a wheel nor a folder", fix="name one of them, or a build")
    if path.name == package and (path / "__init__.py").is_file():
        return path.absolute().parent
    installed = sorted(path.glob("lib/python3*/site-packages"))
    places = (path, *installed, path / "site-packages", path / "src")
    found = next((place for place in places if (place / package / "__init__.py").is_file()), None)
    if found is None:
        raise BuildError(f"{path} has no package {package!r}", fix=f"name a folder that holds {package}/")
    return found


def _version(root: Path, package: str) -> str:
    """What the metadata beside a package says; empty for a checkout."""
    found = (match for each in sorted(root.glob("*.dist-info")) if (match := _METADATA.fullmatch(each.name)))
    ours = (each for each in found if each["name"].replace("_", "-").split("-")[0] == package)
    return next((each["version"].partition("+")[0] for each in ours), "")
