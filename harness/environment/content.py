"""What is in a build, in 12 hex digits: the same digits, the same program. Versions of its dependencies stand apart."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.runtimes.vllm_recipes import PACKAGE, Recipe


def of_recipe(recipe: Recipe) -> str:
    """Of a release: an index never changes what it published."""
    return _digest([recipe.requirement, recipe.accelerator, recipe.digest])


def of_wheel(recipe: Recipe, wheel: str) -> str:
    """Of the wheel of a commit, named by its SHA-256 where the index says that, else by the commit."""
    return _digest([recipe.requirement, recipe.accelerator, recipe.digest, wheel])


def of_sources(key: str, base: str) -> str:
    """Of sources over the binaries of a release: what the sources are, and the content of the release."""
    return _digest([key, base])


def of_files(command: Iterable[str], roots: Iterable[Path]) -> str:
    """Of what lies somewhere: its program, and every file of the server's package.

    Python sources by their content, all else (libraries of a gigabyte) by name and size.
    """
    program = [_content(Path(word)) for word in command if Path(word).suffix in ("", ".py") and Path(word).is_file()]
    home = next((root / PACKAGE for root in roots if (root / PACKAGE / "__init__.py").is_file()), None)
    return _digest([*program[:1], *(_package(home) if home else ())])


def _package(home: Path) -> Iterator[str]:
    for place, folders, names in os.walk(home):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            file = Path(place, name)
            what = _content(file) if name.endswith(".py") else str(file.stat().st_size)
            yield f"{file.relative_to(home)} {what}"


def _content(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
