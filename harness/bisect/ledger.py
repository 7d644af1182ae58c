"""The record of a bisection while it goes: written after each change, and told to whoever watches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.bisect import ladder, outcome
from harness.bisect.examine import Trial
from harness.bisect.outcome import Bisection, Probe
from harness.build import Build
from harness.events import Event, OnEvent


class Ledger:
    def __init__(self, told: Bisection, *, folder: Path, on_event: OnEvent) -> None:
        self.told, self._folder, self._on_event = told, folder, on_event

    def update(self, **changes: Any) -> None:
        self.told = replace(self.told, **changes)
        outcome.save(self.told, self._folder)

    def note(self, *notes: str) -> None:
        """What whoever reads the result must know, each thing once."""
        new = tuple(note for note in notes if note not in self.told.notes)
        self.update(notes=(*self.told.notes, *new))

    def tell(self, build: Build, trial: Trial, role: str) -> None:
        """One more row of the table of probes."""
        self.tell_probe(ladder.probe(build, trial, role), f" {trial.words}" if trial.under else "")

    def tell_probe(self, made: Probe, lead: str = "") -> None:
        self.update(probes=(*self.told.probes, made))
        self._on_event(Event(kind="mark", text=f"{made.mark} {made.build}{lead}: {made.why}"))

    def say(self, text: str) -> None:
        self._on_event(Event(kind="notice", text=text))
