"""A build that can be started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.build import Accelerator, Build
from harness.clock import Deadline
from harness.environment.envcache import Entry
from harness.node import Node
from harness.node_class import CPU


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
    parts: tuple[Entry, ...] = ()
    """What of the cache it is made of: not to be pruned while it is used."""

    def class_on(self, node: Node) -> str:
        """The node class that a run of it has there: GPUs do nothing for a build for CPUs."""
        return CPU if self.accelerator == "cpu" and node.gpus else node.node_class


@dataclass(frozen=True, kw_only=True, slots=True)
class Making:
    """What all ways of making an environment in the cache share."""

    node: Node
    cache: Path
    deadline: Deadline
    on_step: Callable[[str], None]
    """Told in words what goes on."""
