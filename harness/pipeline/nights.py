"""What earlier nights found: one file that the agents share, on a disk or restored by whoever wants to keep it.

Of each scenario on each class of node the build that was green last, and the failures that have been red since then. A
failure that is not among them is new, and the green build is the good end of the search for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from harness import locks
from harness.errors import NodeError, UsageError
from harness.record import Run, replace_text, writable

SCHEMA = 1


@dataclass(kw_only=True, slots=True)
class Past:
    """Of one scenario on one class of node."""

    green: str = ""
    """The build that passed last; empty: none did yet."""
    red: dict[str, str] = field(default_factory=dict)
    """Id of each failure since then, and the CI build that met it first."""


@dataclass(kw_only=True, slots=True)
class Nights:
    schema: Annotated[int, Field(ge=SCHEMA, le=SCHEMA)] = SCHEMA
    titles: dict[str, Past] = field(default_factory=dict)

    def of(self, run: Run) -> Past:
        return self.titles.setdefault(f"{run.title} on {run.node_class}", Past())

    def learn(self, run: Run, *, met_in: str) -> None:
        """Note how a run ended; an error, a skip and a known failure say nothing new."""
        past = self.of(run)
        if run.verdict == "PASS":
            past.green, past.red = named(run), {}
        elif run.verdict == "FAIL" and run.signature and not run.expected:
            past.red.setdefault(run.signature.id, met_in)

    def is_new(self, run: Run, *, met_in: str) -> bool:
        """Whether a failure was not there before this CI build: a job that is tried again still finds it new."""
        first = self.of(run).red.get(run.signature.id) if run.signature else met_in
        return first is None or (first == met_in != "")


_ADAPTER: TypeAdapter[Nights] = TypeAdapter(Nights)


def named(run: Run) -> str:
    """The build of a run as it can be asked for tomorrow: what was on a PATH then is a release."""
    return f"release:{run.version}" if run.build == "current" and run.version else run.build


@contextmanager
def kept(file: Path | None) -> Iterator[Nights]:
    """What is in the file, held against other jobs; written back when the block ends well. Without one: nothing.

    Raises:
        UsageError: the file is none of ours.
        NodeError: another job is at it, or it cannot be written.
    """
    if file is None:
        yield Nights()
        return
    with writable(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    lock = file.with_name(f"{file.name}.lock")
    fd = locks.open_file(lock)
    try:
        if not locks.try_lock(fd):
            raise NodeError(f"{file} is held by {locks.holder(lock)}", fix="try again when it has ended")
        locks.sign(fd, "collecting a night")
        nights = _read(file)
        yield nights
        _write(nights, file)
    finally:
        os.close(fd)


def _read(file: Path) -> Nights:
    try:
        return _ADAPTER.validate_json(file.read_bytes())
    except FileNotFoundError:
        return Nights()
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} is no record of nights: {error}", fix="name another file, or move it away") from error


def _write(nights: Nights, file: Path) -> None:
    data: dict[str, Any] = _ADAPTER.dump_python(nights, mode="json")
    with writable(file):
        replace_text(file, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
