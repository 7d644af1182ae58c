"""Which build of the server: `release:0.30.0`, `lock:FILE`, `venv:PATH`, `tree:DIR[,DIR…]`, `current`.

An *accelerator* suffix picks the distribution of a release: `release:0.30.0+cpu`, `release:0.30.0+cuda`; without one
the node decides.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from packaging.version import InvalidVersion, Version

from harness.errors import UsageError

BuildKind = Literal["release", "lock", "venv", "tree", "current"]
Accelerator = Literal["cpu", "cuda"]

FORMS = "release:0.30.0, release:0.30.0+cpu, lock:FILE, venv:PATH, tree:DIR[,DIR…] or current"
_LATER = ("commit", "source", "image")  # kinds that the design names and that cannot be made yet
_COMPONENTS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """An identity, not an installation: `environment.provide` makes it runnable."""

    kind: BuildKind
    ref: str
    """Version of a release, path of a lock file or a venv, comma-separated folders of a tree, empty for `current`."""
    accelerator: Accelerator | None = None
    """Only for releases, and only where the user chose; None: the node decides."""

    def __str__(self) -> str:
        """The canonical word: `parse(str(build)) == build`."""
        suffix = f"+{self.accelerator}" if self.accelerator else ""
        return "current" if self.kind == "current" else f"{self.kind}:{self.ref}{suffix}"

    @property
    def version(self) -> Version:
        """Version of a release.

        Raises:
            UsageError: the build is no release, so it has no place in an order.
        """
        if self.kind != "release":
            raise UsageError(f"{self} has no version to order by", fix="compare releases, such as release:0.30.0")
        return Version(self.ref)


def sort_key(build: Build) -> Version:
    """Key that puts releases in their order: 0.9.2 < 0.10.0rc1 < 0.10.0."""
    return build.version


def parse(word: str) -> Build:
    """Read a build as named on the command line.

    Raises:
        UsageError: unknown kind (with a suggestion), a kind that cannot be made yet, a bad version or an empty path.
    """
    kind, colon, ref = (part.strip() for part in word.partition(":"))
    if not colon:
        return _bare(kind)
    if kind == "release":
        return _release(ref, word)
    if kind == "lock":
        return Build(kind="lock", ref=_absolute(ref, word))
    if kind == "venv":
        return Build(kind="venv", ref=_absolute(ref, word))
    if kind == "tree":
        return Build(kind="tree", ref=",".join(_absolute(part.strip(), word) for part in ref.split(",")))
    raise _unknown(kind, ref, word)


def _bare(word: str) -> Build:
    """A word without a colon: `current` or a version."""
    if word == "current":
        return Build(kind="current", ref="")
    if word[:1].isdigit() or word[:2].lower() in {f"v{digit}" for digit in range(10)}:
        return _release(word, word)
    if word.startswith((".", "/", "~")) or os.sep in word:
        raise UsageError(f"{word!r} is a path, not a build", fix=f"name a virtual environment as venv:{word}")
    raise _unknown(word, "", word)


def _release(ref: str, word: str) -> Build:
    try:
        version = Version(ref)
    except InvalidVersion as error:
        raise UsageError(f"{word!r}: {ref!r} is not a version", fix="write it as release:0.30.0") from error
    if version.local not in (None, *get_args(Accelerator)):
        raise UsageError(f"{word!r}: unknown accelerator {version.local!r}", fix="write +cpu, +cuda or neither")
    accelerator: Accelerator | None = version.local  # type: ignore[assignment]  # checked above
    return Build(kind="release", ref=_padded(version), accelerator=accelerator)


def _padded(version: Version) -> str:
    # The index takes 0.30 and 0.30.0 for the same release, so they must be one build here too.
    missing = _COMPONENTS - len(version.release)
    release = ".".join(map(str, version.release))
    return version.public.replace(release, release + ".0" * missing, 1)


def _absolute(path: str, word: str) -> str:
    if not path:
        raise UsageError(f"{word!r}: a path is empty", fix=f"write {FORMS}")
    # Not resolved: the program of a virtual environment behind a link must keep the name that the user gave it.
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - Path.resolve() follows links


def _unknown(kind: str, ref: str, word: str) -> UsageError:
    if kind in _LATER:
        return UsageError(f"{word!r}: builds of kind {kind!r} cannot be made yet", fix=f"use {FORMS}")
    close = difflib.get_close_matches(kind, (*get_args(BuildKind), *_LATER), n=1)
    if not close:
        return UsageError(f"{word!r} names no build", fix=f"write {FORMS}")
    meant = close[0] if close[0] == "current" else f"{close[0]}:{ref or '…'}"
    return UsageError(f"{word!r} names no build; did you mean {meant!r}?", fix=f"write {FORMS}")
