"""The history of start-up times: one SQLite file, fed from run records and re-buildable from them.

    run.json ─ samples ─▶ history.sqlite ─ past ─▶ values of the same question on the same class of node

A run counts if it passed as asked for, without a workaround, or if somebody accepted it. Accepting a run begins a new
normal: of its question, nothing before it counts any more. That is written into its run.json too, so that a history
that is built again says the same. Of several accepted runs the one that started last counts, whenever it was accepted.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.baseline.judgement import WINDOW
from harness.baseline.samples import READY, Night, counts, question, samples
from harness.environment import cache_root
from harness.errors import NodeError
from harness.record import Run

SCHEMA = 1
WAIT_SECONDS = 30.0
"""For another harness that writes to the file just now."""
_TABLES = """
CREATE TABLE runs (
    run TEXT PRIMARY KEY, title TEXT NOT NULL, question TEXT NOT NULL, node_class TEXT NOT NULL,
    version TEXT, started TEXT NOT NULL, accepted INTEGER NOT NULL);
CREATE TABLE samples (
    run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, start TEXT NOT NULL, name TEXT NOT NULL,
    seconds REAL NOT NULL, PRIMARY KEY (run, start, name));
CREATE INDEX by_question ON runs (question, node_class, started);
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """All times to ready of one question on one class of node, oldest first."""

    title: str
    question: str
    node_class: str
    start: str
    seconds: tuple[float, ...]


VARIABLE = "HARNESS_HISTORY"


def location() -> Path:
    """The file: HARNESS_HISTORY, else in the cache."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given else cache_root() / "history.sqlite"


class History:
    """The file; every call opens it, so that several harnesses may use it at once."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file or location()

    def check(self) -> None:
        """Whether it can be used, without reading it.

        Raises:
            NodeError: the file cannot be read, or is none of ours.
        """
        with self._open():
            pass

    def snapshot(self) -> bytes:
        """The file as it is now, for a run on a node that has another one.

        Raises:
            NodeError: as `check`.
        """
        self.check()
        with closing(sqlite3.connect(self.file, timeout=WAIT_SECONDS)) as db:
            return db.serialize()

    def feed(self, run: Run) -> bool:
        """Store a run that counts; whether it did. A run that is there already is replaced.

        Raises:
            NodeError: the file cannot be written, or is none of ours.
        """
        counted = counts(run)
        with self._open() as db:
            db.execute("DELETE FROM runs WHERE run = ?", (run.id,))
            if counted:
                row = (run.id, run.title, question(run), run.node_class, run.version, run.started, run.accepted)
                db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                rows = [(run.id, each.start, each.name, each.seconds) for each in samples(run)]
                db.executemany("INSERT INTO samples VALUES (?, ?, ?, ?)", rows)
        return counted

    def past(self, run: Run) -> dict[tuple[str, str], list[float]]:
        """Seconds by (start, name) of the same question on the same class of node, before this run, oldest first.

        Raises:
            NodeError: the file cannot be read, or is none of ours.
        """
        found: dict[tuple[str, str], list[float]] = {}
        with self._open() as db:
            for start, name, seconds in db.execute(_PAST, (question(run), run.node_class, run.started, run.id)):
                found.setdefault((start, name), []).append(seconds)
        return found

    def nights(self, run: Run, *, most: int = WINDOW) -> tuple[Night, ...]:
        """The last runs that `past` has the times of, each whole, oldest first: what reports draw.

        Raises:
            NodeError: the file cannot be read, or is none of ours.
        """
        found: dict[tuple[str, str, str | None], dict[str, dict[str, float]]] = {}
        with self._open() as db:
            rows = db.execute(_NIGHTS, (question(run), run.node_class, run.started, run.id))
            for *night, start, name, seconds in rows:
                found.setdefault(tuple(night), {}).setdefault(start, {})[name] = seconds
        every = [Night(run=n, started=at, version=v, seconds=seconds) for (n, at, v), seconds in found.items()]
        return tuple(every[-most:])

    def accepted(self, run: Run) -> tuple[str, str] | None:
        """The accepted run that began what is normal for this question on this class of node: its id and start.

        Raises:
            NodeError: the file cannot be read, or is none of ours.
        """
        with self._open() as db:
            found: tuple[str, str] | None = db.execute(_ACCEPTED, (question(run), run.node_class)).fetchone()
        return found

    def lines(self) -> tuple[Line, ...]:
        """Everything that is normal somewhere, by title.

        Raises:
            NodeError: the file cannot be read, or is none of ours.
        """
        found: dict[tuple[str, str, str, str], list[float]] = {}
        with self._open() as db:
            for *key, seconds in db.execute(_LINES, (READY,)):
                found.setdefault(tuple(key), []).append(seconds)
        return tuple(
            Line(title=title, question=asked, node_class=node_class, start=start, seconds=tuple(seconds))
            for (title, asked, node_class, start), seconds in found.items()
        )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.file, timeout=WAIT_SECONDS)) as db:
                db.execute("PRAGMA foreign_keys = ON")
                with db:
                    db.execute("BEGIN IMMEDIATE")  # two that make the tables at once would both find none
                    self._check_schema(db)
                    yield db
        except (sqlite3.Error, OSError) as error:
            raise NodeError(
                f"the history {self.file} cannot be used: {error}",
                fix="move it away and run `harness baseline rebuild reports`, or set HARNESS_HISTORY to another file",
            ) from error

    def _check_schema(self, db: sqlite3.Connection) -> None:
        (schema,) = db.execute("PRAGMA user_version").fetchone()
        if schema == SCHEMA:
            return
        if schema or db.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
            raise NodeError(
                f"the history {self.file} has schema {schema}, this harness reads {SCHEMA}",
                fix="use the harness it was made with, or set HARNESS_HISTORY to another file",
            )
        for statement in _TABLES.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA}")


_SINCE_ACCEPTED = """started >= coalesce((SELECT max(started) FROM runs AS a
    WHERE a.accepted AND a.question = r.question AND a.node_class = r.node_class), '')"""
_ACCEPTED = """SELECT run, started FROM runs WHERE accepted AND question = ? AND node_class = ?
ORDER BY started DESC, run DESC LIMIT 1"""
_BEFORE = f"""FROM samples AS s JOIN runs AS r ON s.run = r.run
WHERE question = ? AND node_class = ? AND started < ? AND r.run <> ? AND {_SINCE_ACCEPTED}
ORDER BY started, r.run"""
_PAST = f"SELECT start, name, seconds {_BEFORE}"
_NIGHTS = f"SELECT r.run, started, version, start, name, seconds {_BEFORE}"
_LINES = f"""
SELECT title, question, node_class, start, seconds FROM samples AS s JOIN runs AS r ON s.run = r.run
WHERE name = ? AND {_SINCE_ACCEPTED}
ORDER BY title, question, node_class, start, started, r.run"""  # noqa: S608 - as above
