"""Runs on disk, so that none is made twice: what was found there is judged again by the present rules.

A run answers for another where it asked the same (`Run.meaning`), of the same build (`Run.content` and the versions of
everything beside it), on the same class of node. Every probe is such a run, so this is also how a bisection that was
killed goes on where it was. ERROR and SKIP say nothing of a build and are never used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness import record, triage, verdict
from harness.conduct import Finding
from harness.errors import UsageError
from harness.record import Run, Teardown
from harness.signature import Signature
from harness.triage.wording import GROUPING


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a run would ask, and of what."""

    meaning: str
    content: str
    packages: Mapping[str, str]
    node_class: str

    def answered_by(self, run: Run) -> bool:
        asked = (run.meaning, run.content, run.packages, run.node_class)
        return asked == (self.meaning, self.content, self.packages, self.node_class) and self.meaning != ""


class Memory:
    """The finished runs below one folder, read once each."""

    def __init__(self, out: Path, *, since: str = "") -> None:
        """`since`: runs that were started before it do not count (UTC, as in the records)."""
        self._out, self._since = out, since
        self._runs: dict[str, Run | None] = {}
        """By folder; None for one that answers nothing. Those that are still going are not here."""
        self.unreadable: dict[str, str] = {}
        """Records that could not be read, and why."""

    def runs(self) -> list[Run]:
        """All finished runs that came to a mark, the oldest first, with the present verdict and signature."""
        for file in self._out.glob("*/run.json"):
            if file.parent.name not in self._runs:
                self._look(file)
        found = (run for run in self._runs.values() if run and run.started >= self._since)
        return sorted(found, key=lambda run: (run.started, run.id))

    def knows(self, meaning: str) -> bool:
        """Whether there is any run that asked this, of whichever build."""
        return any(run.meaning == meaning for run in self.runs())

    def answers(self, question: Question) -> list[Run]:
        """Those that answer a question, the oldest first."""
        return [run for run in self.runs() if question.answered_by(run)]

    def _look(self, file: Path) -> None:
        try:
            run = record.load(file)
        except UsageError as error:
            self.unreadable[file.parent.name] = error.what
            return
        if run.state != "running":
            self._runs[file.parent.name] = rejudged(run, file.parent) if run.state == "finished" else None


def rejudged(run: Run, folder: Path) -> Run | None:
    """A stored run with the verdict and the signature that the present rules give it.

    None: it says nothing of its build (ERROR, SKIP), or what it was judged by is gone.
    """
    if run.verdict not in ("PASS", "FAIL"):
        return None
    found = run.signature and _again(run, run.signature, folder)
    if run.signature and found is None:
        return None
    finding = Finding(reason=run.reason, signature=found)
    judged = verdict.judge(finding, run.teardown or Teardown(seconds=0.0, steps=()), expect=None, xids=run.xids)
    if judged.verdict == "ERROR":
        return None
    return replace(run, verdict=judged.verdict, blame=judged.blame, signature=found)


def _again(run: Run, stored: Signature, folder: Path) -> Signature | None:
    if stored.kind == "check_failed":
        failed = next((check for check in run.checks if check.outcome == "fail"), None)
        return triage.check_failed(failed.name, stored.message) if failed else None
    if stored.kind == "hang" or not run.evidence:  # read from the clock or the exit, not from the log
        return stored if stored.grouping == GROUPING else None
    try:
        with (folder / run.log).open("rb") as log:
            last = run.timeline.last
            return triage.read(log, exit=run.exit, phase=last.label if last else "spawn#1").signature
    except OSError:
        return None
