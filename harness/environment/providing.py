"""A Build made runnable: cached, locked against a second builder, verified, sharing its content, prunable."""

from __future__ import annotations

import errno
import hashlib
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from harness import clock, record
from harness.build import Accelerator, Build
from harness.environment import content, installer, interpreter, lockfile
from harness.environment.envcache import Entry, cache_root
from harness.errors import BuildError, NodeError
from harness.node import Node
from harness.runtimes.vllm_recipes import DISTRIBUTIONS, MODULE, PACKAGE, PROGRAM, Recipe, recipe

INSTALL_SECONDS = 3600.0
_OURS = ("release", "lock")
"""Kinds of builds that are installed into the cache."""
_HINT = "name a build, such as --build release:0.32.0 (any release can be made) or --build venv:PATH"


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """Where a build is installed and how its own program is started; the harness never imports it."""

    build: Build
    version: str
    """Version of the server's distribution, without a local part: `0.32.0`; `unknown` where it cannot be read."""
    accelerator: Accelerator
    command: tuple[str, ...]
    """argv of the server's own program, up to the subcommand: (`/…/bin/vllm`,)."""
    python: Path
    """The interpreter that the program runs on."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the program needs to find itself (PYTHONPATH of a tree)."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Resolved version of every distribution in it."""
    python_version: str = ""
    """Of the interpreter: `3.11.7`."""
    content: str = ""
    """12 hex digits of what is in the build; its packages' versions stand apart."""


def provide(
    build: Build,
    node: Node,
    *,
    cache: Path | None = None,
    on_step: Callable[[str], None] = lambda _: None,
    lock: Path | None = None,
    within: float = INSTALL_SECONDS,
) -> Environment:
    """Make a build runnable: a release, locked or not, is installed once into the cache; others stay where they are.

    `on_step` is told in words what goes on, and whom it waits for where another process builds the same. With `lock`, a
    lock file, the release is made exactly as that says, beside the one resolved now. `within` is the seconds for all of
    it, waiting for another builder included.

    Raises:
        BuildError: it cannot be made or is not there; what to do.
        NodeError: the disk is full, or another process builds it for longer than `within`.
    """
    if build.kind == "lock" and lock is None:
        file = Path(build.ref)
        made = provide(from_lock(file), node, cache=cache, on_step=on_step, lock=file, within=within)
        return replace(made, build=build)
    if build.kind == "release":
        return _release(
            build, node, cache=cache or cache_root(), on_step=on_step, lock=lock, deadline=clock.Deadline.after(within)
        )
    if lock:
        raise BuildError(f"a lock file cannot be applied to {build}", fix="it re-creates releases only")
    return {"venv": _venv, "tree": _tree, "current": _current}[build.kind](build, node)


@contextmanager
def in_use(environment: Environment) -> Iterator[None]:
    """Keep an environment from being pruned until the block, or the process, ends; only those of the cache can be.

    Raises:
        BuildError: it was pruned since it was provided.
    """
    folder = environment.python.parent.parent
    if environment.build.kind not in _OURS:
        yield
        return
    with Entry(cache=folder.parent.parent, name=folder.name).using():
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


def _release(
    build: Build,
    node: Node,
    *,
    cache: Path,
    on_step: Callable[[str], None],
    lock: Path | None,
    deadline: clock.Deadline,
) -> Environment:
    pins = _pins(build, lock) if lock else None
    accelerator = build.accelerator or (lockfile.read(lock).build.accelerator if lock else None) or node.accelerator
    how = recipe(build.version, accelerator)
    entry = Entry(cache=cache, name=_name(how, pins))
    if noted := entry.read():
        return _from_cache(build, entry, noted)
    with entry.building(deadline=deadline, on_wait=on_step) as fd:
        if noted := entry.read():  # made by the process that we waited for
            return _from_cache(build, entry, noted)
        begun = clock.now()
        site = installer.Site(entry=entry, recipe=how, deadline=deadline, lock_fd=fd, on_step=on_step)
        with _full_disk(cache):
            found = installer.install(site, pins)
            noted = {
                "build": str(replace(build, accelerator=accelerator)),
                "accelerator": accelerator,
                "python": found.version,
                "recipe": how.digest,
                "created": clock.utc(),
                "seconds": round(clock.now() - begun, 1),
                "packages": dict(found.packages),
            }
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
    )


@contextmanager
def _full_disk(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        free = shutil.disk_usage(cache).free >> 20
        raise NodeError(
            f"cannot write below {cache}: {error.strerror} ({free} MB free)",
            fix="free some disk (`harness env prune`), or set HARNESS_CACHE to a folder with 4 GB",
        ) from error


# --- environments that others made


def _venv(build: Build, node: Node) -> Environment:
    root = Path(build.ref)
    python, script = root / "bin" / "python", root / "bin" / PROGRAM
    if not root.is_dir():
        raise BuildError(f"{root} is not a folder", fix=f"name a virtual environment that is there, or {_HINT}")
    if not python.exists():
        raise BuildError(
            f"{root} is not a virtual environment: it has no bin/python", fix="name the folder that holds bin/"
        )
    if not script.is_file():
        raise BuildError(f"{root} has no bin/{PROGRAM}", fix=f"install {PROGRAM} into it, or {_HINT}")
    interpreter.of_script(script)  # a moved environment has scripts that point to where it was
    return _described(build, node, interpreter.inspect(python), command=(str(script),))


def _current(build: Build, node: Node) -> Environment:
    # Beside our own interpreter counts as current too: `.venv/bin/harness` works without activating the environment.
    beside = Path(sys.executable).parent / PROGRAM
    found = shutil.which(PROGRAM) or (str(beside) if beside.is_file() else None)
    if found is None:
        raise BuildError(f"there is no {PROGRAM} on PATH, nor beside the interpreter of harness", fix=_HINT)
    python = interpreter.of_script(Path(found))
    return _described(build, node, interpreter.inspect(python), command=(found,))


def _tree(build: Build, node: Node) -> Environment:
    folders = [Path(part) for part in build.ref.split(",")]
    for folder in folders:
        if not folder.is_dir():
            raise BuildError(f"{folder} is not a folder", fix="name the folders that hold the packages")
    python = Path(sys.executable)
    found = interpreter.inspect(python, before=folders)
    if not any((folder / PACKAGE / "__init__.py").is_file() for folder in (*folders, *found.paths)):
        raise BuildError(
            f"no folder of {build} holds a package {PACKAGE!r}", fix=f"name the folder that holds {PACKAGE}/"
        )
    command = (str(python), "-m", MODULE)
    path = ":".join(map(str, folders))
    return replace(_described(build, node, found, command=command, before=folders), env={"PYTHONPATH": path})


def _described(
    build: Build,
    node: Node,
    found: interpreter.Interpreter,
    *,
    command: tuple[str, ...],
    before: Sequence[Path] = (),
) -> Environment:
    own = next((found.packages[name] for name in DISTRIBUTIONS if name in found.packages), "")
    return Environment(
        build=build,
        version=_public(own),
        accelerator=_accelerator(found.packages, node),
        command=command,
        python=found.python,
        packages=found.packages,
        python_version=found.version,
        content=content.of_files(command, (*before, *found.paths)),
    )


def _public(version: str) -> str:
    try:
        return Version(version).public
    except InvalidVersion:
        return "unknown"


def _accelerator(packages: Mapping[str, str], node: Node) -> Accelerator:
    """What its torch was made for: `2.13.0+cpu` is the CPU, everything else CUDA; without one, what the node has."""
    torch = packages.get("torch")
    if torch is None:
        return node.accelerator
    return "cpu" if torch.endswith("+cpu") else "cuda"
