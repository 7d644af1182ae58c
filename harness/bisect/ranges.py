"""The builds between two ends, in the order in which a change came to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.build import Build
from harness.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Range:
    """Builds from one end to the other, the older end first; for `--fix` too."""

    builds: tuple[Build, ...]
    notes: tuple[str, ...] = ()
    """What whoever reads the result must know: what was left out, which end is on another branch."""
    merge_base: Build | None = None
    """Where the older end left the line that leads to the newer one, if it did: it is judged before anything else."""
    finer: Callable[[Build, Build], Range | None] | None = None
    """The builds between two neighbours, if there are such: the releases first, then the commits between two."""
    log: Callable[[Build, Build], str] | None = None
    """What lies between two neighbours, for people: `git log --oneline`."""
    lead: Callable[[Build, Build], str] | None = None
    """What changes from one to the other, where their words do not say it: `the change of numpy 2.1.0 → 2.2.0`."""

    def __post_init__(self) -> None:
        if len(self.builds) < 2:  # noqa: PLR2004 - the two ends
            raise UsageError("there is nothing between the two ends", fix="name two different builds")
        if len(set(self.builds)) != len(self.builds):
            twice = next(build for build in self.builds if self.builds.count(build) > 1)
            raise UsageError(f"{twice} is in the range twice", fix="name each build once")

    @property
    def words(self) -> str:
        """`release:0.28.0 … release:0.32.0 (5 builds)`."""
        return f"{self.builds[0]} … {self.builds[-1]} ({len(self.builds)} builds)"
