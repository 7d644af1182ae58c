"""Which build of the server: `release:0.30.0`, `lock:FILE`, `source:PATH@REV`, `commit:SHA`, `venv:PATH` and others.

release:0.30.0  release:0.30.0+cpu       the suffix picks the distribution; without one the node decides
source:PATH[@REV][,base=0.30.0[+cpu]]    sources of a git repository over the binaries of a release;
                                         without REV the working tree as it stands
commit:SHA[+cpu]                         the wheel of a commit, from the index in $HARNESS_COMMIT_INDEX
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from packaging.version import InvalidVersion, Version

from harness.errors import UsageError

BuildKind = Literal["release", "lock", "source", "commit", "venv", "tree", "current"]
Accelerator = Literal["cpu", "cuda"]

FORMS = "release:0.30.0, release:0.30.0+cpu, lock:FILE, source:PATH@REV, commit:SHA, venv:PATH, tree:DIR or current"
_LATER = ("image",)  # kinds that the design names and that cannot be made yet
_COMPONENTS = 3
_SHA = re.compile(r"([0-9a-fA-F]{7,40})(?:\+(\w+))?")
# The last @ is the one in front of the revision, except in `main@{upstream}`. A path with an @ of its own and no
# revision is written `/a@b@`.
_AT_REVISION = re.compile(r"(.*)@(?!\{)(.*)", re.DOTALL)
_OPTION = re.compile(r"(.*),(\w+)=([^/]*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """An identity, not an installation: `environment.provide` makes it runnable."""

    kind: BuildKind
    ref: str
    """Version of a release, hex digits of a commit, path of a lock file, a venv or a repository, comma-separated
    folders of a tree, empty for `current`."""
    accelerator: Accelerator | None = None
    """Only for releases, commits and bases, and only where the user chose; None: the node decides."""
    rev: str = ""
    """Of a source: what git calls the commit; empty for the working tree."""
    base: str = ""
    """Of a source: version of the release whose binaries it gets; empty: the nearest one that git knows."""

    def __str__(self) -> str:
        """The canonical word: `parse(str(build)) == build`."""
        suffix = f"+{self.accelerator}" if self.accelerator else ""
        if self.kind == "source":
            at = f"@{self.rev}" if self.rev or "@" in self.ref else ""
            return f"source:{self.ref}{at}" + (f",base={self.base}{suffix}" if self.base else "")
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
    read = _READERS.get(kind)
    if read is None:
        raise _unknown(kind, ref, word)
    return read(ref, word)


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
    return Build(kind="release", ref=_padded(version), accelerator=_accelerator(version.local, word))


def _accelerator(suffix: str | None, word: str) -> Accelerator | None:
    if suffix not in (None, *get_args(Accelerator)):
        raise UsageError(f"{word!r}: unknown accelerator {suffix!r}", fix="write +cpu, +cuda or neither")
    return suffix  # type: ignore[return-value]  # checked above


def _source(ref: str, word: str) -> Build:
    option = _OPTION.fullmatch(ref)
    if option and option[2] != "base":
        raise UsageError(f"{word!r}: a source has no option {option[2]!r}", fix="write source:PATH@REV,base=0.30.0")
    base = _release(option[3].strip(), word) if option else None
    place = option[1] if option else ref
    found = _AT_REVISION.fullmatch(place)
    path, rev = (found[1], found[2].strip()) if found else (place, "")
    if rev.startswith("-") or any(sign.isspace() for sign in rev):
        raise UsageError(f"{word!r}: {rev!r} is no revision", fix="write a commit, a branch or a tag after the @")
    where = _absolute(path.strip(), word)
    if base is None:
        return Build(kind="source", ref=where, rev=rev)
    return Build(kind="source", ref=where, rev=rev, base=base.ref, accelerator=base.accelerator)


def _tree(ref: str, word: str) -> Build:
    return Build(kind="tree", ref=",".join(_absolute(part.strip(), word) for part in ref.split(",")))


def _commit(ref: str, word: str) -> Build:
    found = _SHA.fullmatch(ref)
    if found is None:
        raise UsageError(f"{word!r}: {ref!r} is no commit", fix="write 7 to 40 hexadecimal digits, best all 40")
    return Build(kind="commit", ref=found[1].lower(), accelerator=_accelerator(found[2], word))


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


_READERS: dict[str, Callable[[str, str], Build]] = {
    "release": _release,
    "lock": lambda ref, word: Build(kind="lock", ref=_absolute(ref, word)),
    "source": _source,
    "commit": _commit,
    "venv": lambda ref, word: Build(kind="venv", ref=_absolute(ref, word)),
    "tree": _tree,
}
