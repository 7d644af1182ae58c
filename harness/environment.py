"""A Build made runnable: cached, locked against a second builder, verified, sharing its content, prunable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.build import Accelerator, Build


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
