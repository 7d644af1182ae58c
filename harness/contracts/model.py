"""What a contract finds, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Rule = Literal["dropped-argument", "never-set", "override", "declared-count", "missing-import"]
State = Literal["live", "latent"]
"""Live: something in this build reads, calls or runs into it. Latent: nothing does yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A line of the sources, and the function around it."""

    file: str
    """As seen from site-packages: vllm/v1/core.py."""
    line: int
    function: str = ""
    """Class.method, or the name of a function."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" {self.function}" if self.function else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One contract that is broken at one place."""

    rule: Rule
    subject: str
    """Dotted path of the class; of a missing import, of the module that imports."""
    member: str
    """What of it: an attribute, `method.parameter`, the name of a count, the name that is imported."""
    state: State
    message: str
    """One sentence without lines or files: only they move while the fault stays."""
    place: Place
    uses: tuple[Place, ...] = ()
    """Who reads it, or who calls it so."""
    hierarchy: str = ""
    """Name of the hierarchy in contracts.yaml; empty for rules that look at all of a package."""
    refs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What a baseline accepts: stable while lines, messages and liveness move."""
        return f"{self.rule}:{self.subject}.{self.member}"

    @property
    def title(self) -> str:
        """The short name of the class and the member, for people."""
        name = self.subject if self.rule == "missing-import" else self.subject.rpartition(".")[2]
        return f"{self.rule}:{name}.{self.member}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was found in one build."""

    build: str
    """As it was named."""
    version: str
    content: str
    """12 hex digits of the sources."""
    files: int
    """Python files of the package."""
    findings: tuple[Finding, ...]
    classes: dict[str, int] = field(default_factory=dict)
    """By hierarchy, how many classes were looked at."""
    notes: tuple[str, ...] = ()
    """What was not looked at, and why."""
    unread: tuple[str, ...] = ()
    """Files that could not be read, each with why: what is broken in them, nobody sees."""
