"""Environments between two recorded ones that differ in their packages, the server held still: `--vary-deps`.

    good  numpy 2.1.0, tokenizers 0.20, torch 2.13.0        00.lock
          numpy 2.2.0, tokenizers 0.20, torch 2.13.0        01-numpy-2.2.0.lock
    bad   numpy 2.2.0, tokenizers 0.21, torch 2.13.0        02-tokenizers-0.21.lock

Changes are applied one after the other, by name: all that a recorded environment says of its packages is name and
version, so no order of dependencies can be known without asking an index, and the order must be the same tomorrow for a
broken off search to go on. What does not go together in between cannot be installed or dies of its import: such an
environment cannot be judged, and changes that only work together come out as a range.

A failure that takes two changes is found at the one that is applied last of them: without the other it would not be
there either. The answer is then true of the environment before it, which has all earlier changes.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness import record
from harness.bisect.choosing import Ends
from harness.bisect.ranges import Range
from harness.build import Build, parse
from harness.environment import lockfile
from harness.environment.changes import PackageChange, applied, difference
from harness.environment.lockfile import Lock
from harness.errors import BuildError, NodeError, UsageError
from harness.runtimes.vllm_recipes import DISTRIBUTIONS, accelerator_of

_INSTALLED = ("release", "lock", "venv", "current")
"""Builds whose server is a distribution with a version, so that the index may have it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """The environment that a run, or `harness env add`, wrote down."""

    lock: Lock
    """Of a release, so that it can be made again."""
    notes: tuple[str, ...] = ()


def between(good: Path, bad: Path, *, fix: bool, out: Path) -> tuple[Ends, Range]:
    """The environments between two recorded ones, as lock files in a folder of `out` that these two always get.

    Raises:
        UsageError: not recorded environments, of different servers or Pythons, or without a difference.
        NodeError: the lock files cannot be written.
    """
    first, last = (recorded(bad), recorded(good)) if fix else (recorded(good), recorded(bad))
    changes = varied(first.lock, last.lock)
    builds = _written(_steps(first.lock, changes), changes, out)
    ends = Ends(good=builds[-1], bad=builds[0], fix=True) if fix else Ends(good=builds[0], bad=builds[-1])

    def lead(before: Build, after: Build) -> str:
        made = changes[builds.index(before) : builds.index(after)]
        return f"the change of {made[0]}" if len(made) == 1 else f"one of the changes of {', '.join(map(str, made))}"

    return ends, Range(builds=builds, notes=tuple(dict.fromkeys((*first.notes, *last.notes))), lead=lead)


def varied(first: Lock, last: Lock) -> tuple[PackageChange, ...]:
    """What has to change in the first environment to make the last of it, in the order in which it is changed.

    Raises:
        UsageError: the servers differ, or nothing does.
    """
    servers = [{name: lock.packages.get(name) for name in DISTRIBUTIONS} for lock in (first, last)]
    if first.build != last.build or servers[0] != servers[1]:
        raise UsageError(
            f"the server differs too: {first.build} and {last.build}",
            fix="bisect the builds first, with --good and --bad",
        )
    changes = difference(first.packages, last.packages, held=DISTRIBUTIONS)
    if not changes:
        raise UsageError("both environments have the same packages", fix="name two environments that differ")
    return changes


# --- what was recorded


def recorded(path: Path) -> Recorded:
    """Read the environment of a run (its folder or its run.json), or a packages.lock.

    Raises:
        UsageError: it is none, is for another Python, or has a server that no index can have.
    """
    try:
        lock = _of_run(path) if path.suffix == ".json" else lockfile.read(_lock_in(path), of_any=True)
        lockfile.check_python(lock, platform.python_version())
    except BuildError as error:
        raise UsageError(error.what, fix=error.fix) from error
    return _as_release(lock, path)


def _lock_in(path: Path) -> Path:
    return path / "packages.lock" if path.is_dir() else path


def _of_run(file: Path) -> Lock:
    """A run.json alone does not say its Python: that of its packages.lock, or else ours."""
    run, beside = record.load(file), file.with_name("packages.lock")
    if beside.is_file():
        return lockfile.read(beside, of_any=True)
    if not run.packages:
        raise UsageError(f"{file} never came to an environment: {run.reason}", fix="name a run that started a server")
    return Lock(build=parse(run.build), python=platform.python_version(), packages=run.packages)


def _as_release(lock: Lock, path: Path) -> Recorded:
    name = next((name for name in DISTRIBUTIONS if name in lock.packages), None)
    if name is None or lock.build.kind not in _INSTALLED:
        raise UsageError(
            f"{path} describes {lock.build}, whose server is no release", fix="name the environments of releases"
        )
    release = Build(kind="release", ref=_public(lock.packages[name], path), accelerator=accelerator_of(name))
    made = lock.build.kind in ("release", "lock")
    note = f"{path} describes {lock.build}: its packages are installed anew, as {release}"
    return Recorded(lock=replace(lock, build=release), notes=() if made else (note,))


def _public(version: str, path: Path) -> str:
    try:
        return Version(version).public
    except InvalidVersion as error:
        raise UsageError(f"{path}: {version!r} is not a version of a server", fix="name another run") from error


# --- the environments between


def _steps(first: Lock, changes: Sequence[PackageChange]) -> Iterator[Lock]:
    """Of k changes k+1 environments, both ends included."""
    for count in range(len(changes) + 1):
        yield replace(first, packages=applied(first.packages, changes[:count]))


def _written(locks: Iterator[Lock], changes: Sequence[PackageChange], out: Path) -> tuple[Build, ...]:
    texts = list(map(lockfile.text, locks))
    digest = hashlib.sha256((texts[0] + texts[-1]).encode()).hexdigest()[:8]
    folder = (out / f"packages-{digest}").absolute()
    width = len(str(len(changes)))
    names = ("", *(f"-{change.name}-{change.after or 'removed'}" for change in changes))
    files = [folder / f"{count:0{max(2, width)}}{name}.lock" for count, name in enumerate(names)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in zip(files, texts, strict=True):
            record.replace_text(file, text)
    except OSError as error:
        raise NodeError(f"{folder} cannot be written: {error}", fix="make room, or choose another --out") from error
    return tuple(parse(f"lock:{file}") for file in files)
