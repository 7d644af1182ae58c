"""A run that is made elsewhere, as it arrives: its folder here, and its record closed if nobody else does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness import record, run
from harness.errors import HarnessError, UnmetError
from harness.events import Event
from harness.executors.base import Ask
from harness.executors.mirror import Piece, Target
from harness.masking import Masker
from harness.record import Run
from harness.recorder import Recorder

_TAIL_BYTES = 4096


class Arriving:
    """One run on its way here."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._target = Target(ask.out)
        self._log: Path | None = None
        self.folder: Path | None = None
        """Of the run, here; None before anything of it came."""

    def write(self, piece: Piece) -> None:
        with record.writable(self._ask.out):
            file = self._target.write(piece)
        self.folder = self._ask.out / Path(piece.path).parts[0]
        if file.suffix == ".log":
            self._log = file

    def told(self, event: Event) -> Event:
        """An event of the node, with the last line of the log that has come here."""
        return replace(event, tail=self._tail) if event.kind == "spawned" else event

    def _tail(self) -> str:
        if self._log is None:
            return ""
        with self._log.open("rb") as log:
            log.seek(-min(_TAIL_BYTES, self._log.stat().st_size), 2)
            lines = log.read().decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")

    @property
    def complete(self) -> Run | None:
        """The record, if it says how the run ended."""
        found = self._record()
        return found if found and found.state != "running" else None

    @property
    def ended(self) -> Run:
        """The record of a run of which the node says that it is over.

        Raises:
            HarnessError: it did not come.
        """
        if (found := self.complete) is None:
            raise HarnessError("the node says that the run is over, but its record did not come", fix="report it")
        return found

    def close(self, error: HarnessError) -> Run:
        """The record of a run whose end nobody tells any more: its error, no signature, and a verdict."""
        recorder = self._recorder()
        skip = isinstance(error, UnmetError) and self._ask.skip_unmet
        recorder.fail(error, verdict="SKIP" if skip else "ERROR")
        return recorder.run

    def interrupt(self, error: BaseException) -> None:
        """As `close`, for a run that was to stop; what never began leaves no record."""
        if self.folder and not self.complete:
            self._recorder().interrupt(error)

    def _record(self) -> Run | None:
        return record.load(self.folder) if self.folder and (self.folder / "run.json").is_file() else None

    def _recorder(self) -> Recorder:
        found = self._record()
        if found and self.folder:
            return Recorder(found, self.folder, Masker(()))  # what must not be written was left out there
        ask = self._ask
        return Recorder.open(
            ask.scenario,
            build=ask.build,
            out=ask.out,
            reproduce=run.command(ask.scenario, ask.build, ask.sets, ask.handling),
            attempt=ask.attempt,
            under=ask.handling.under,
            probe=ask.handling.probe,
        )
