"""Keeps the record of one run on disk while it goes: every change is written before the next stage begins."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from harness import __version__, clock, launch, masking, node, report
from harness.build import Build
from harness.errors import HarnessError
from harness.events import Event, OnEvent
from harness.known import Change
from harness.masking import Masker
from harness.record import OF_A_LAUNCH, Run, Verdict, save, writable
from harness.scenario import Scenario, meaning

_PLAIN = {
    each.name: each.default if each.default_factory is MISSING else each.default_factory() for each in fields(Run)
}
"""What the record says of a server before it is started."""


class Recorder:
    def __init__(self, run: Run, folder: Path, masker: Masker) -> None:
        self.run, self.folder, self.masker = run, folder, masker
        self._lock = threading.RLock()  # phases are recorded from the log pump's thread
        self.update()

    @classmethod
    def open(
        cls,
        scenario: Scenario,
        *,
        build: Build,
        out: Path,
        reproduce: str,
        attempt: str | None,
        under: tuple[Change, ...] = (),
        probe: bool = False,
    ) -> Recorder:
        """Make the run's folder under `out` and its first record, `state: running`."""
        here = node.describe()
        stamp = clock.utc()[:19].replace("-", "").replace(":", "").replace("T", "-")
        folder = out / f"{stamp}-{scenario.label}-{uuid.uuid4().hex[:6]}"
        with writable(folder):
            folder.mkdir(parents=True)
        run = Run(
            id=folder.name,
            scenario=scenario.name,
            variant=scenario.variant,
            resolved=masking.redact(scenario.resolved()),
            refs=scenario.refs,
            fingerprint=_under(scenario.fingerprint, under),
            meaning=asked(scenario, under),
            build=str(build),
            node_class=here.node_class,
            node=here.record(),
            reproduce=reproduce,
            attempt=attempt,
            under=tuple(step.words for step in under),
            probe=probe,
            started=clock.utc(),
            harness=__version__,
        )
        return cls(run, folder, Masker(launch.secrets(scenario, os.environ, ())))

    def update(self, **changes: Any) -> None:
        with self._lock, writable(self.folder):
            self.run = replace(self.run, **changes)
            save(self.run, self.folder, self.masker)

    def begin(self, launch: str, *, log: str, other_build: str | None = None, differing: tuple[str, ...] = ()) -> None:
        """Another server: from now on the record speaks of it, and the one before stands under `others`."""
        fresh = {name: _PLAIN[name] for name in OF_A_LAUNCH}
        others = (*self.run.others, self.run.launched) if self.run.argv else self.run.others
        began = {"launch": launch, "log": log, "other_build": other_build, "differing": differing}
        self.update(others=others, **{**fresh, **began})

    def speak_of(self, launch: str) -> None:
        """Let the record speak of one of its servers."""
        chosen = next(each for each in self.run.launches if each.launch == launch)
        others = tuple(each for each in self.run.launches if each.launch != launch)
        self.update(others=others, **{name: getattr(chosen, name) for name in OF_A_LAUNCH})

    def finish(self, **changes: Any) -> None:
        """Write the record and every report of it."""
        self.update(ended=clock.utc(), artifacts=tuple(sorted(_files(self.folder) | set(report.REPORTS))), **changes)
        with writable(self.folder):
            report.render(self.folder)

    def fail(self, error: HarnessError, *, verdict: Verdict) -> None:
        self.finish(state="finished", verdict=verdict, reason=error.what, fix=error.fix, blame=error.blame)

    def interrupt(self, error: BaseException) -> None:
        reason = f"interrupted: {error}" if str(error) else "interrupted"
        self.finish(state="interrupted", verdict="ERROR", reason=reason, fix="run it again", blame="harness")

    @contextmanager
    def step(self, name: str, on_event: OnEvent) -> Iterator[None]:
        """Time what comes before the spawn; these are never start-up seconds."""
        begun = clock.now()
        on_event(Event(kind="step", text=name))
        yield
        self.update(steps={**self.run.steps, name: round(clock.now() - begun, 3)})


def asked(scenario: Scenario, under: tuple[Change, ...] = ()) -> str:
    """`Run.meaning` of a run that is still to be made."""
    return _under(meaning(scenario), under)


def _under(question: str, under: tuple[Change, ...]) -> str:
    """Under a workaround it is another question."""
    if not under:
        return question
    return hashlib.sha256(json.dumps([question, *(step.key for step in under)]).encode()).hexdigest()[:12]


def _files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")}
