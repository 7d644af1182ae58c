"""Small packages written by a test, and what the contracts say of them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

from harness.contracts import checking, reading
from harness.contracts.contracts_file import Contracts
from harness.contracts.hierarchy import Classes
from harness.contracts.index import Index
from harness.contracts.model import Finding, Report

Files = Mapping[str, str]


def write(root: Path, files: Files) -> Path:
    """A package `pkg` below a folder; names without `.py`, folders with `/`. Returns the folder."""
    texts = {"__init__": "", **files}
    for name, text in texts.items():
        file = root / "pkg" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        for folder in file.parent.relative_to(root / "pkg").parents:
            (root / "pkg" / folder / "__init__.py").touch()
        (file.parent / "__init__.py").touch()
        file.write_text(textwrap.dedent(text), encoding="utf-8")
    return root


def contracts(*roots: str, rules: tuple[str, ...] = (), **more: object) -> Contracts:
    hierarchy = {"name": "h", "roots": roots, "refs": ("pkg#1",), **({"rules": rules} if rules else {})}
    return Contracts.model_validate(
        {"schema": 1, "package": "pkg", "hierarchies": (hierarchy,) if roots else (), **more}
    )


def report(root: Path, files: Files, rules: Contracts) -> Report:
    return checking.check(reading.at(write(root, files), "pkg"), rules, build="here")


def found(root: Path, files: Files, *roots: str, rule: str) -> dict[str, Finding]:
    """Findings of one rule by `Class.member`."""
    told = report(root, files, contracts(*(roots or ("pkg.a.Base",)), rules=(rule,), imports=False))
    return {each.title.partition(":")[2]: each for each in told.findings}


def classes(root: Path, files: Files) -> Classes:
    return Classes(Index(reading.at(write(root, files), "pkg")))
