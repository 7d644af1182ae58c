"""What an interpreter has installed, read from the metadata on disk: nothing of it is ever imported."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from harness.errors import BuildError

SECONDS = 30.0
OURS = "harness"
"""INSTALLER of the metadata that a recipe adds: an alias, not a package."""
_ASK = """
import json, sys
print(json.dumps({"version": ".".join(map(str, sys.version_info[:3])), "paths": [p for p in sys.path if p]}))
"""
_METADATA = ("*.dist-info/METADATA", "*.egg-info/PKG-INFO")
_SHEBANG_BYTES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    python: Path
    version: str
    paths: tuple[Path, ...]
    """Where it looks for packages, PYTHONPATH left out."""
    packages: Mapping[str, str]
    """Version of every distribution, by normalised name."""


def inspect(python: Path, *, before: Sequence[Path] = ()) -> Interpreter:
    """Ask an interpreter for its paths and read the metadata there; folders in `before` come first, as in PYTHONPATH.

    Raises:
        BuildError: it does not start, or does not answer within 30 s.
    """
    fix = "name an environment whose interpreter works: --build venv:PATH or --build release:VERSION"
    # -E: the server does not get our PYTHONPATH either.
    argv = [str(python), "-E", "-c", _ASK]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=True, cwd="/")
        answer = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        words = (getattr(error, "stderr", None) or str(error) or repr(error)).strip().splitlines()
        raise BuildError(f"the interpreter {python} does not answer: {words[-1]}", fix=fix) from error
    paths = tuple(map(Path, answer["paths"]))
    return Interpreter(python=python, version=answer["version"], paths=paths, packages=packages((*before, *paths)))


def packages(folders: Iterable[Path]) -> dict[str, str]:
    """Version of every distribution in these folders by normalised name, sorted; the first folder that has one wins."""
    found: dict[str, str] = {}
    for folder in folders:
        for pattern in _METADATA:
            for file in sorted(folder.glob(pattern)):
                if named := _read(file):
                    found.setdefault(*named)
    return dict(sorted(found.items()))


def _read(file: Path) -> tuple[str, str] | None:
    installer = file.with_name("INSTALLER")
    if installer.is_file() and installer.read_text(encoding="utf-8").strip() == OURS:
        return None
    head = file.read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0]
    fields = dict(line.split(": ", 1) for line in head.splitlines() if line.startswith(("Name: ", "Version: ")))
    if len(fields) != 2:  # noqa: PLR2004 - an unfinished or foreign folder; pip does not list it either
        return None
    return canonicalize_name(fields["Name"].strip()), fields["Version"].strip()


def of_script(script: Path) -> Path:
    """The interpreter of a console script, from its first lines.

    Three forms exist: `#!/path/python`, `#!/usr/bin/env python3`, and for paths too long or with spaces a shell line
    `'''exec' "/path/python" "$0" "$@"` below `#!/bin/sh`.

    Raises:
        BuildError: it is no Python console script, or its interpreter is gone (the environment was moved).
    """
    words = _interpreter_words(script)
    found = shutil.which(words[0]) if words else None
    if words and Path(words[0]).name.startswith(("python", "pypy")):
        if found:
            return Path(found)
        raise BuildError(
            f"{script} runs on {words[0]}, which is not there", fix="the environment was moved or broken: make it again"
        )
    raise BuildError(f"{script} is not a Python console script", fix="name the environment itself: --build venv:PATH")


def _interpreter_words(script: Path) -> list[str]:
    with script.open("rb") as file:
        first, second = [*file.read(_SHEBANG_BYTES).decode("utf-8", "replace").splitlines(), "", ""][:2]
    if not first.startswith("#!"):
        return []
    if second.startswith("'''exec' "):
        rest = second.removeprefix("'''exec' ")
        return [rest.split('"')[1] if rest.startswith('"') else rest.split()[0]]
    words = first[2:].split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    return words
