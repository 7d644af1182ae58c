"""What a page shows of a run, as rows of text: from the record alone. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.baseline.judgement import FEWEST, Normal, normal
from harness.baseline.samples import READY, Night
from harness.record import Launched, Run
from harness.report.cases import headline, number, verdict
from harness.report.html.plots import Bar, Row
from harness.report.text import one_line
from harness.timeline import Phase

SHOWN_SECONDS = 0.05
"""What never took longer is not drawn; it stands in the table."""
AFTER_READY = ("checks", "stop")
MOST_PHASES = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseRow:
    """Times in seconds; None: not known."""

    label: str
    start: float
    seconds: float | None
    state: str
    """`✓`, `✗ not completed`, `▲ slow`: longer than is normal, which alone is no failure."""
    median: float | None
    limit: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NightRow:
    when: str
    version: str
    run: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """One start over the nights before, and now."""

    names: tuple[str, ...]
    nights: tuple[NightRow, ...]
    """Oldest first; the last is this run."""
    usual: tuple[Normal | None, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """What is drawn of it: whatever took a moment at least once."""
        columns = [tuple(night.values[at] for night in self.nights) for at in range(len(self.names))]
        return tuple(
            Row(
                label=name,
                values=column,
                median=usual.median if usual else None,
                limit=usual.limit if usual else None,
            )
            for name, column, usual in zip(self.names, columns, self.usual, strict=True)
            if max(value or 0.0 for value in column) >= SHOWN_SECONDS
        )


def titles(run: Run) -> tuple[str, str]:
    """The sentence of the verdict and the one below it: of a failed check first the one with its numbers."""
    title, reason = headline(run), one_line(run.reason)
    if verdict(run) == "PASS" or not reason or reason == title:
        return title, ""
    checked = run.signature is not None and run.signature.kind == "check_failed"
    return (reason, title) if checked else (title, reason)


def usual(nights: Sequence[Night], start: str, name: str) -> Normal | None:
    """What was normal for one time; None where it was measured fewer than five times."""
    past = [night.seconds[start][name] for night in nights if name in night.seconds.get(start, {})]
    return normal([value for value in past if math.isfinite(value)])


def phases(launched: Launched, nights: Sequence[Night]) -> tuple[PhaseRow, ...]:
    return tuple(_phase(phase, launched, nights) for phase in launched.timeline.phases[:MOST_PHASES])


def _phase(phase: Phase, launched: Launched, nights: Sequence[Night]) -> PhaseRow:
    end = phase.end if phase.end is not None else _death(launched, phase)
    took = None if end is None else max(0.0, end - phase.start)
    normally = usual(nights, launched.launch, phase.label) if phase.completed else None
    slow = normally is not None and took is not None and took > normally.limit
    return PhaseRow(
        label=phase.label,
        start=phase.start,
        seconds=took,
        state=("▲ slow" if slow else "✓") if phase.completed else "✗ not completed",
        median=normally.median if normally else None,
        limit=normally.limit if normally else None,
    )


def _death(launched: Launched, phase: Phase) -> float | None:
    """An open phase lasted until the server did; a record that was cut off does not say."""
    return launched.lifetime if launched.lifetime is not None and launched.lifetime >= phase.start else None


def bars(rows: Sequence[PhaseRow]) -> tuple[Bar, ...]:
    """The phases of a start as a picture has them; checks and stop, often longer than all others, only in the table."""
    drawn = [
        row
        for row in rows
        if row.seconds is not None
        and row.label.partition("#")[0] not in AFTER_READY
        and (row.seconds >= SHOWN_SECONDS or row.state != "✓")
    ]
    return tuple(
        Bar(
            label=row.label,
            start=row.start,
            end=row.start + (row.seconds or 0.0),
            completed="not" not in row.state,
            median=row.median,
            limit=row.limit,
        )
        for row in drawn
    )


def trend(run: Run, launched: Launched) -> Trend | None:
    """None where no earlier run is in the record."""
    start = launched.launch
    past = [night for night in run.nights if start in night.seconds]
    if not past:
        return None
    now = _times(launched)
    names = list(dict.fromkeys([READY, *now, *(name for night in past for name in night.seconds[start])]))[:MOST_PHASES]
    rows = [(n.started, n.version or "", n.run, n.seconds[start]) for n in past]
    rows.append((run.started, run.version or "", "this run", now))
    return Trend(
        names=tuple(names),
        nights=tuple(
            NightRow(when=when[:16].replace("T", " "), version=v, run=name, values=tuple(map(seconds.get, names)))
            for when, v, name, seconds in rows
        ),
        usual=tuple(usual(past, start, name) for name in names),
    )


def _times(launched: Launched) -> dict[str, float]:
    """The times of one server by name, the same ones that the history has; of one that died, what it completed."""
    ready = launched.timeline.ready
    found = {} if ready is None else {READY: ready}
    for phase in launched.timeline.phases:
        done = phase.completed and phase.end is not None and phase.name not in AFTER_READY
        if done and phase.end is not None and (ready is None or phase.end <= ready):
            found[phase.label] = phase.end - phase.start
    return found


def few(run: Run) -> str:
    """Why nothing is judged, where there are too few earlier runs."""
    count = len(run.nights)
    return f"{count} earlier runs are known, {FEWEST} are needed to say what is normal." if 0 < count < FEWEST else ""


def command(argv: Sequence[str]) -> str:
    return shlex.join(argv)


def variables(env: Mapping[str, str]) -> str:
    """As a shell takes them."""
    return "\n".join(f"{name}={shlex.quote(value)}" for name, value in sorted(env.items()))


def node(run: Run) -> Iterator[tuple[str, str]]:
    """What is known of the machine, by name."""
    for name, value in run.node.items():
        if name == "gpus" and isinstance(value, (list, tuple)):
            yield from ((f"GPU {at}", _words(gpu)) for at, gpu in enumerate(value))
        elif value not in (None, "", [], {}):
            yield name.replace("_", " "), _words(value)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        said = (f"{key} {_words(each)}" for key, each in value.items() if each not in (None, "", [], {}))
        return ", ".join(said).replace("_", " ")
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_words, value))
    return number(value) if isinstance(value, float) else str(value)


def memory(launched: Launched) -> Iterator[tuple[str, ...]]:
    """Moment, processes, MiB of the server, of shared memory, of the node, of GPUs."""
    for moment, held in launched.memory.items():
        gpus = ", ".join(f"{uuid[:12]} {used}" for uuid, used in held.gpus.items())
        yield moment, str(held.processes), number(held.host), number(held.shared), number(held.used), gpus


def choices(servers: Sequence[Launched]) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """A choice, what each server said of it, and whether they differ."""
    for name in sorted({name for each in servers for name in each.choices}):
        said = tuple(", ".join(each.choices.get(name, ())) for each in servers)
        yield name, said, len(set(said)) > 1


def uneven(launched: Launched) -> Iterator[tuple[str, str]]:
    for name, ranks in launched.uneven.items():
        yield name, "; ".join(f"{rank}: {', '.join(said)}" for rank, said in ranks.items())


def subject(run: Run) -> Iterator[tuple[str, str]]:
    """What had to be on for a pass to mean anything, and whether something showed it."""
    yield from ((word, "✓ seen on" if seen else "✗ not seen") for word, seen in run.subject.items())
