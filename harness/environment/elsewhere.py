"""Environments that others made: looked at where they are, never changed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness.build import Accelerator, Build
from harness.environment import content, interpreter
from harness.environment.copies import PYTHONPATH
from harness.environment.model import Environment
from harness.errors import BuildError
from harness.node import Node
from harness.runtimes.vllm_recipes import DISTRIBUTIONS, MODULE, PACKAGE, PROGRAM

_HINT = "name a build, such as --build release:0.32.0 (any release can be made) or --build venv:PATH"


def venv(build: Build, node: Node) -> Environment:
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


def current(build: Build, node: Node) -> Environment:
    # Beside our own interpreter counts as current too: `.venv/bin/harness` works without activating the environment.
    beside = Path(sys.executable).parent / PROGRAM
    found = shutil.which(PROGRAM) or (str(beside) if beside.is_file() else None)
    if found is None:
        raise BuildError(f"there is no {PROGRAM} on PATH, nor beside the interpreter of harness", fix=_HINT)
    python = interpreter.of_script(Path(found))
    return _described(build, node, interpreter.inspect(python), command=(found,))


def tree(build: Build, node: Node) -> Environment:
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
    return replace(_described(build, node, found, command=command, before=folders), env={PYTHONPATH: path})


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
