"""The Python files of a build, wherever it lies: a wheel, an environment, a folder of sources. Nothing is imported."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tokenize
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from io import BytesIO
from pathlib import Path

from harness.errors import BuildError

_METADATA = re.compile(r"(?P<name>[^/]+?)-(?P<version>[^/-]+)\.dist-info")
_NATIVE = (".so", ".pyd")
LARGEST = 32 << 20
"""Bytes of a Python file: the largest of vLLM has 0.5 MB."""


class Sources(ABC):
    """The files of one package, named as seen from the folder that holds it: `vllm/v1/core.py`."""

    def __init__(self, package: str, *, version: str) -> None:
        self.package, self.version = package, version
        self.odd: dict[str, str] = {}
        """Python files that are not read, and why."""

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
            self._texts[name] = _decoded(self._bytes(name))
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


def _decoded(data: bytes) -> str:
    """As Python decodes a source: by its byte order mark, its `coding:` line, else UTF-8 (PEP 263)."""
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(data).readline)
        return data.decode(encoding, errors="replace")
    except SyntaxError:  # a coding that does not exist: parsing will say so
        return data.decode(errors="replace")


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
            links = (name for name in folders if self._leads_elsewhere(Path(place, name)))
            self.odd.update((self._name(place, name), "a link to a folder of Python files") for name in links)
            for name in names:
                file = self._name(place, name)
                if why := _odd(Path(place, name)) if name.endswith(".py") else "":
                    self.odd[file] = why
                else:
                    yield file

    def _leads_elsewhere(self, folder: Path) -> bool:
        """Whether it is a link to Python files that are not read anyway; links are not followed."""
        if not folder.is_symlink():
            return False
        there, package = folder.resolve(), (self._root / self.package).resolve()
        inside = there.is_relative_to(package) or package.is_relative_to(there)
        return not inside and next(there.rglob("*.py"), None) is not None

    def _name(self, place: str, name: str) -> str:
        return Path(place, name).relative_to(self._root).as_posix().encode("utf-8", "backslashreplace").decode()

    def _listed(self) -> tuple[str, ...]:
        return self._files

    def _bytes(self, name: str) -> bytes:
        return (self._root / name).read_bytes()


def _odd(file: Path) -> str:
    """Why a file is not read; empty for one that is."""
    try:
        status = file.stat()
    except OSError as error:
        return str(error.strerror)
    if not stat.S_ISREG(status.st_mode):
        return "no regular file"
    if status.st_size > LARGEST:
        return f"{status.st_size >> 20} MB, and at most {LARGEST >> 20} are read"
    return "" if str(file).isprintable() else "its name is no text"


class Wheel(Sources):
    """A package in a wheel, read where it is."""

    def __init__(self, file: Path, package: str) -> None:
        super().__init__(package, version=file.name.split("-")[1] if file.name.count("-") > 1 else "")
        try:
            self._zip = zipfile.ZipFile(file)
        except (OSError, zipfile.BadZipFile) as error:
            raise BuildError(f"{file} is no wheel: {error}", fix="download it again") from error
        self._path = file
        inside = [each for each in self._zip.infolist() if each.filename.startswith(f"{package}/")]
        large = {each.filename: each.file_size for each in inside if each.file_size > LARGEST}
        told = f"MB, and at most {LARGEST >> 20} are read"
        self.odd = {name: f"{size >> 20} {told}" for name, size in large.items() if name.endswith(".py")}
        self._files = tuple(each.filename for each in inside if each.filename not in self.odd)

    def _listed(self) -> tuple[str, ...]:
        return self._files

    def _bytes(self, name: str) -> bytes:
        try:
            return self._zip.read(name)
        except (
            OSError,
            zipfile.BadZipFile,
            RuntimeError,
            zlib.error,
        ) as error:  # RuntimeError: encrypted, unknown method
            raise BuildError(f"{name} in {self._path} cannot be read: {error}", fix="download it again") from error

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
