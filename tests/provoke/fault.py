"""What a fault is: one thing that is made wrong before or while a real server starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    """Code that runs in every process of the server as soon as it has imported `module` (there as `module`)."""

    module: str
    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Strike:
    """A signal to the process whose command line holds `process`, once the log holds `after`."""

    after: str
    process: str
    signal: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    name: str
    cause: str
    """One sentence: what was done, and so the true cause."""
    serve: tuple[str, ...] = ()
    """Flags after (and so instead of) the recorder's own."""
    env: Mapping[str, str] = field(default_factory=dict)
    model: Callable[[Path], None] | str | None = None
    """Changes a copy of tiny_lm, or what to serve instead of it."""
    patch: Patch | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    """`RLIMIT_…` of the server's processes."""
    strike: Strike | None = None
    hub: int | None = None
    """A hub on loopback that answers everything with this status."""
    request: bool = False
    """Send a completion once it is ready."""
    seconds: float = 240
    """When to give up: a hang is a fault too."""
