"""Which build of the server: `release:0.30.0`, `venv:PATH`, `tree:DIR[,DIR…]`, `current`.

An *accelerator* suffix picks the distribution of a release: `release:0.30.0+cpu`, `release:0.30.0+cuda`; without one the
node decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BuildKind = Literal["release", "venv", "tree", "current"]
Accelerator = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """An identity, not an installation: `environment.provide` makes it runnable."""

    kind: BuildKind
    ref: str
    """Version of a release, path of a venv, comma-separated folders of a tree, empty for `current`."""
    accelerator: Accelerator | None = None
    """Only for releases, and only where the user chose; None: the node decides."""
