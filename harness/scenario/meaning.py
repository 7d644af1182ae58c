"""What a scenario asks, whatever it is called and wherever it lies: two of one meaning need not both be run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.scenario.model import Scenario

ASKED = ("runtime", "model", "revision", "serve", "env", "needs", "budgets", "subject", "checks", "when", "starts")
"""Not its name, variant, description and refs, nor what is expected to come of it."""
HASHED_BYTES = 64 << 20
"""Larger files (weights) count by size and time of change: reading a terabyte would take longer than the run."""


def meaning(scenario: Scenario) -> str:
    """12 hex digits of what is asked, local paths by their content.

    A model of the hub counts by its id and the revision that was asked for: without a `revision` it may move.
    """
    digests = {path: _digest(Path(path)) for _, path in scenario.local}
    resolved = scenario.resolved()
    asked = _by_content({key: resolved[key] for key in ASKED}, digests)
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]


def _by_content(value: Any, digests: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _by_content(each, digests) for key, each in value.items()}
    if isinstance(value, list):
        return [_by_content(each, digests) for each in value]
    return digests.get(value, value) if isinstance(value, str) else value


def _digest(path: Path) -> str:
    """Of a file or of all files below a folder; of what is not there, its absence."""
    total = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(_files(path)):
        total.update(f"{os.path.relpath(file, path)}\0{_content(file)}\0".encode())
    return f"sha256:{total.hexdigest()}"


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)


def _content(file: Path) -> str:
    try:
        known = file.stat()
        if known.st_size > HASHED_BYTES:
            return f"{known.st_size} {known.st_mtime_ns}"
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        return error.strerror or "unreadable"
