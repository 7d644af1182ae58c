"""A Build made runnable: cached, locked against a second builder, verified, sharing its content, prunable."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import clock, record
from harness.build import Build
from harness.environment import content, elsewhere, installer, lockfile, sources
from harness.environment.envcache import Entry, cache_root, full_disk
from harness.environment.model import Environment, Making
from harness.errors import BuildError
from harness.node import Node
from harness.runtimes.vllm_recipes import PROGRAM, Recipe, recipe

INSTALL_SECONDS = 3600.0
_OURS = ("release", "lock")
"""Kinds of builds that a lock file re-creates."""


def provide(
    build: Build,
    node: Node,
    *,
    cache: Path | None = None,
    on_step: Callable[[str], None] = lambda _: None,
    lock: Path | None = None,
    within: float = INSTALL_SECONDS,
) -> Environment:
    """Make a build runnable.

    A release, locked or not, and the wheel of a commit are installed once into the cache, sources are laid there over a
    release, and all else is looked at where it is. `on_step` is told in words what goes on, and whom it waits for where
    another process builds the same. With `lock`, a lock file, the release is made exactly as that says, beside the one
    resolved now. `within` is the seconds for all of it, waiting for another builder included.

    Raises:
        BuildError: it cannot be made or is not there; what to do.
        NodeError: the disk is full, or another process builds it for longer than `within`.
    """
    making = Making(node=node, cache=cache or cache_root(), deadline=clock.Deadline.after(within), on_step=on_step)
    if build.kind == "release":
        return _release(build, making, lock)
    if lock:
        raise BuildError(f"a lock file cannot be applied to {build}", fix="it re-creates releases only")
    return _other(build, making)


def _other(build: Build, making: Making) -> Environment:
    """Of all kinds but releases."""
    if build.kind == "lock":
        file = Path(build.ref)
        return replace(_release(from_lock(file), making, file), build=build)
    if build.kind == "commit":
        from harness.environment import commits  # noqa: PLC0415 - needs a library that an offline node may lack

        return commits.provide(build, making)
    if build.kind == "source":
        return sources.provide(build, making, release=lambda base: _release(base, making, None))
    found = {"venv": elsewhere.venv, "tree": elsewhere.tree, "current": elsewhere.current}
    return found[build.kind](build, making.node)


@contextmanager
def in_use(environment: Environment) -> Iterator[None]:
    """Keep an environment from being pruned until the block, or the process, ends; only those of the cache can be.

    Raises:
        BuildError: it was pruned since it was provided.
    """
    with ExitStack() as stack:
        for part in environment.parts:
            stack.enter_context(part.using())
        yield


def from_lock(path: Path) -> Build:
    """The build that a lock file re-creates: `provide(from_lock(path), node, lock=path)`."""
    return lockfile.read(path).build


def write_lock(environment: Environment, path: Path) -> None:
    """Write the lock file of an environment, atomically."""
    build = environment.build
    if build.kind in _OURS:
        build = Build(kind="release", ref=environment.version, accelerator=environment.accelerator)
    lock = lockfile.Lock(build=build, python=environment.python_version, packages=environment.packages)
    record.replace_text(path, lockfile.text(lock))


# --- releases


def _release(build: Build, making: Making, lock: Path | None) -> Environment:
    pins = _pins(build, lock) if lock else None
    locked = lockfile.read(lock).build.accelerator if lock else None
    accelerator = build.accelerator or locked or making.node.accelerator
    how = recipe(build.version, accelerator)
    entry = Entry(cache=making.cache, name=_name(how, pins))
    if noted := entry.read():
        return _from_cache(build, entry, noted)
    with entry.building(deadline=making.deadline, on_wait=making.on_step) as fd:
        if noted := entry.read():  # made by the process that we waited for
            return _from_cache(build, entry, noted)
        site = installer.Site(entry=entry, recipe=how, deadline=making.deadline, lock_fd=fd, on_step=making.on_step)
        with full_disk(making.cache):
            noted = installer.made(site, replace(build, accelerator=accelerator), pins)
            write_lock(_from_noted(build, entry, noted), entry.folder / "packages.lock")
            entry.finish(noted)
        return _from_noted(build, entry, noted)


def _pins(build: Build, path: Path) -> tuple[str, ...]:
    lock = lockfile.read(path)
    lockfile.check_python(lock, platform.python_version())
    if lock.build.ref != build.ref or build.accelerator not in (None, lock.build.accelerator):
        raise BuildError(f"{path} re-creates {lock.build}, not {build}", fix=f"ask for {lock.build}")
    return lock.pins


def _name(how: Recipe, pins: Sequence[str] | None) -> str:
    """Folder name: everything that makes two environments different is in it."""
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    locked = f"-lock{hashlib.sha256(chr(10).join(pins).encode()).hexdigest()[:8]}" if pins else ""
    return f"{PROGRAM}-{how.version}+{how.accelerator}-{python}-{how.digest}{locked}"


def _from_cache(build: Build, entry: Entry, noted: Mapping[str, Any]) -> Environment:
    entry.touch()
    return _from_noted(build, entry, noted)


def _from_noted(build: Build, entry: Entry, noted: Mapping[str, Any]) -> Environment:
    return Environment(
        build=build,
        version=build.ref,
        accelerator=noted["accelerator"],
        command=(str(entry.folder / "bin" / PROGRAM),),
        python=entry.python,
        packages=noted["packages"],
        python_version=noted["python"],
        content=content.of_recipe(recipe(build.version, noted["accelerator"])),
        parts=(entry,),
    )
