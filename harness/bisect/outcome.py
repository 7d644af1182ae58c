"""`bisection.json`: what was asked, every probe, the answer. Written after each probe; all reports are made from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from harness.bisect.marks import Mark
from harness.errors import UsageError
from harness.record import replace_text, writable
from harness.signature import Signature

SCHEMA = 1
FILE = "bisection.json"
Ending = Literal["found", "range", "not reproduced", "no culprit", "flaky", "error"]
"""found: one build · range: several, of which one it is · not reproduced: an end is not as it was said · no culprit:
all builds alike · flaky: the two builds found changed their minds · error: an end could not be judged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One build, judged once."""

    build: str
    role: Literal["bad end", "good end", "merge base", "probe", "proof", "again"]
    """proof: whether a way around leaves the chased failure in place · again: one of the pair found, once more."""
    mark: Mark
    why: str
    runs: tuple[str, ...]
    """Folders of the runs, the plain one first."""
    under: str = ""
    """`under edit of F in FILE, removes nothing`; empty for a plain mark."""
    met: tuple[str, ...] = ()
    """Titles of what the runs failed with, the outermost first; empty text for one that passed."""
    seconds: float = 0.0
    """Of the runs, those found on disk included."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """One bug that hides another."""

    cover: str
    """Title of what is met first."""
    hidden: str
    """Title of what is met behind it."""
    builds: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bisection:
    id: str
    """Name of its folder; the same question has the same."""
    scenario: str
    variant: str | None
    good: str
    bad: str
    fix: bool
    """It is the first build without the failure that was looked for."""
    node_class: str
    command: str
    """The command line that asks it again, or goes on with it."""
    started: str
    harness: str
    schema: int = SCHEMA
    state: Literal["running", "finished", "interrupted"] = "running"
    ended: str | None = None
    signature: Signature | None = None
    stop: str | None = None
    also: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    range: tuple[str, ...] = ()
    """The builds of the finest range that was searched, in order."""
    predicted: str = ""
    """Said before the search: how many probes, how many minutes."""
    probes: tuple[Probe, ...] = ()
    ending: Ending | None = None
    culprits: tuple[str, ...] = ()
    """The change came with one of these."""
    before: str | None = None
    """The last build before it."""
    untested: tuple[str, ...] = ()
    """Culprits that were not probed, because those around them cannot be judged for one reason."""
    sentence: str = ""
    fix_hint: str = ""
    ladder: tuple[Rung, ...] = ()
    log: str = ""
    """`git log --oneline` of what lies between, where there is a repository."""
    packages: tuple[str, ...] = ()
    """Packages beside the server's own that differ between the last build before the change and the first one after."""
    posterior: Mapping[str, float] = field(default_factory=dict)
    """With `--confidence`: the probability of each build that has one worth naming."""


_ADAPTER: TypeAdapter[Bisection] = TypeAdapter(Bisection)


def save(bisection: Bisection, folder: Path) -> None:
    """Write it atomically.

    Raises:
        NodeError: the folder cannot be written.
    """
    data: dict[str, Any] = _ADAPTER.dump_python(bisection, mode="json")
    with writable(folder):
        replace_text(folder / FILE, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> Bisection:
    """Read a `bisection.json`, or the one in a folder.

    Raises:
        UsageError: no such file, or not a bisection of this schema.
    """
    file = path / FILE if path.is_dir() else path
    try:
        return _ADAPTER.validate_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} is not a readable bisection: {error}", fix="name its folder in reports/") from error
