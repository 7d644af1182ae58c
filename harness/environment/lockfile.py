"""The lock file of an environment: `name==version` lines, as in a requirements file, that re-create it exactly.

The header keeps what the lines cannot: the build, the interpreter, and the recipe's own steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.build import Build, parse
from harness.errors import BuildError
from harness.runtimes.vllm_recipes import recipe

_TITLE = "# lock file of a harness environment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    build: Build
    """A release with its accelerator, where it can be made again."""
    python: str
    """Full version of the interpreter: `3.11.7`."""
    packages: Mapping[str, str]

    @property
    def pins(self) -> tuple[str, ...]:
        return tuple(f"{name}=={version}" for name, version in self.packages.items())


def text(lock: Lock) -> str:
    """The file's text. A build that is no release gets its packages listed, and no command that makes it."""
    build, used = lock.build, None
    if build.kind == "release" and build.accelerator:
        used = recipe(build.version, build.accelerator)
    remake = f"# re-create: harness env add --lock FILE (Python {_minor(lock.python)})"
    header = [
        _TITLE,
        f"# build: {lock.build}",
        f"# python: {lock.python}",
        *([f"# recipe: {used.digest}"] if used else []),
        *(f"# override: {line}" for line in (used.overrides if used else ())),
        remake if used else "# made elsewhere: this lists what it holds",
    ]
    return "\n".join((*header, *lock.pins)) + "\n"


def read(path: Path, *, of_any: bool = False) -> Lock:
    """Read a lock file; with `of_any` also one that only lists what a build holds that was not made by us.

    Raises:
        BuildError: not readable, not such a file, or a line that is no pin; says which.
    """
    fix = "name the packages.lock of a run, or of `harness env add`"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise BuildError(f"{path} cannot be read: {error}", fix=fix) from error
    header = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    if lines[:1] != [_TITLE] or not {"build", "python"} <= header.keys():
        raise BuildError(f"{path} is not a lock file of a harness environment", fix=fix)
    build = parse(header["build"])
    if not of_any and (build.kind != "release" or build.accelerator is None):
        raise BuildError(
            f"{path} describes {build}, which was not made by us", fix="only the locks of releases re-create them"
        )
    pins = dict(
        _pin(path, number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")
    )
    return Lock(build=build, python=header["python"], packages=pins)


def _pin(path: Path, number: int, line: str) -> tuple[str, str]:
    name, equals, version = line.strip().partition("==")
    if not (name and equals and version) or name.startswith("-"):
        raise BuildError(f"{path}:{number}: {line!r} is no `name==version`", fix="restore the file as it was written")
    return name, version


def check_python(lock: Lock, running: str) -> None:
    """A lock is for one minor version of Python: wheels of another differ.

    Raises:
        BuildError: ours is another one.
    """
    if _minor(lock.python) != _minor(running):
        raise BuildError(
            f"the lock is for Python {_minor(lock.python)}, this is {running}",
            fix=f"run harness on Python {_minor(lock.python)}",
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
