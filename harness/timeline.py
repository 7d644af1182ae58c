"""What happened when: events of one launch, and the phases that they make. Pure.

The chain below is the usual order, not a law: vLLM captures graphs once while it profiles memory and once after the KV
cache, so phases have *occurrences* (`capture#1`, `capture#2`), and whatever compares progress compares completed
occurrences, never names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness import loglines

if TYPE_CHECKING:
    from harness.loglines import LogLine
    from harness.runtimes.base import MarkRule

PhaseName = Literal[
    "spawn", "config", "workers", "distributed", "weights", "profile", "kv_cache", "capture", "ready", "checks", "stop"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A log line that one row of a runtime's phase table recognised."""

    t: float
    """Seconds since the spawn, at the arrival of the line."""
    phase: PhaseName
    edge: Literal["begin", "end"]
    rule: str
    """Name of the table's row."""
    process: str | None
    """`Worker_TP0`, without its pid; None where the line has no tag."""
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """One occurrence of a phase. Times in seconds since the spawn."""

    name: PhaseName
    occurrence: int
    """1 for the first."""
    start: float
    end: float | None
    """None: it never ended."""
    completed: bool
    """True only where a line or an answer showed its end, never inferred."""

    @property
    def label(self) -> str:
        return f"{self.name}#{self.occurrence}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    phases: tuple[Phase, ...] = ()
    ready: float | None = None
    """Seconds from the spawn to the first health answer that was provably ours."""

    @property
    def last(self) -> Phase | None:
        """The phase that was running last: where a crash happened."""
        return next((phase for phase in reversed(self.phases) if phase.name != "stop"), None)


SLACK = 2.0
"""Seconds: the server rounds its own to whole ones, and logs stamps of one second."""


@dataclass(slots=True)
class _Occurrence:
    name: PhaseName
    number: int
    start: float
    end: float | None = None
    completed: bool = False

    def complete(self, t: float) -> None:
        self.completed = True
        self.end = t if self.end is None else self.end


class Builder:
    """Makes a timeline from lines as they arrive. Not thread-safe.

    A phase begins with the first rank that says so and completes when the last rank has said what ends it, or when a
    process that speaks for all ranks says something later:

        world_size=2 rank=0   distributed begins, workers is still open
        world_size=2 rank=1   workers is completed
    """

    def __init__(self, rules: tuple[MarkRule, ...], *, alone: bool = False) -> None:
        """`alone`: there is only the log, nobody asks the server, so its own word that it is ready must do.

        (A second server on a port says it too, and never answers.)
        """
        self._rules = tuple((r, r.literal.decode()) for r in rules if alone or (r.phase, r.edge) != ("ready", "end"))
        self._phases = [_Occurrence(name="spawn", number=1, start=0.0)]
        self._said: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._world = 1
        self._ready: float | None = None

    def add(self, t: float, text: str) -> Mark | None:
        """Look at one line as printed (a carriage return ends a line too).

        Returns the last mark in it, None where it shows nothing.
        """
        mark = None
        for line in loglines.read((text,)):
            mark = self.look(line, t=t) or mark
        return mark

    def look(self, line: LogLine, *, t: float | None = None) -> Mark | None:
        """As `add`, for a line that is parsed already; its own time where `t` is not given."""
        for rule, literal in self._rules:
            if literal in line.text and (found := rule.pattern.search(line.text)):
                at = t if t is not None else line.t or 0.0
                groups, speaker = found.groupdict(), line.pid or line.process or ""
                self._world = max(self._world, int((groups.get("world") or "1")[:6]))
                if rule.edge == "begin":
                    self._begin(rule, at, speaker)
                else:
                    self._end(rule, at, speaker, float(groups["took"][:9]) if groups.get("took") else None)
                return Mark(
                    t=at, phase=rule.phase, edge=rule.edge, rule=rule.name, process=line.process, line=line.text
                )
        return None

    @property
    def current(self) -> str:
        """Label of the phase that began last, a shutdown aside: where a crash happens."""
        last = next(p for p in reversed(self._phases) if p.name != "stop")
        return f"{last.name}#{last.number}"

    def _begin(self, rule: MarkRule, t: float, speaker: str) -> None:
        current = self._open(rule.phase, t)
        if not self._all_said(rule, current, speaker):
            return
        for earlier in self._phases[: self._phases.index(current)]:
            if rule.phase != "stop":
                earlier.complete(t)
            elif earlier.end is None:
                earlier.end = t  # a shutdown ends what was going on, it shows nothing completed

    def _end(self, rule: MarkRule, t: float, speaker: str, took: float | None) -> None:
        current = self._latest(rule.phase)
        if current is None or current.completed or not self._all_said(rule, current, speaker):
            return
        if took is not None and abs(t - took - current.start) > SLACK:
            self._shift(current, t - took)
        current.complete(t)
        if following := self._following(rule.phase):
            self._open(following, t)

    def _all_said(self, rule: MarkRule, occurrence: _Occurrence, speaker: str) -> bool:
        said = self._said[rule.name, occurrence.number]
        said.add(speaker)
        return rule.ranks == "one" or len(said) >= self._world

    def _shift(self, phase: _Occurrence, start: float) -> None:
        """A bar has no stamp of its own and may reach a log late or look early; the server's own seconds are better."""
        before = self._phases[self._phases.index(phase) - 1]
        start = max(start, before.start)
        if before.end == phase.start:
            before.end = start
        phase.start = start

    def _open(self, name: PhaseName, t: float) -> _Occurrence:
        """The running occurrence of a phase; a new one for the first, and for a capture that begins again.

        Other phases happen once: a late line about one (from a second engine, or repeated at the end) opens nothing.
        """
        latest = self._latest(name)
        again = name == "capture" and latest is not None and latest.completed
        if latest is None or again:
            latest = _Occurrence(name=name, number=latest.number + 1 if latest else 1, start=t)
            self._phases.append(latest)
        return latest

    def _latest(self, name: PhaseName) -> _Occurrence | None:
        return next((p for p in reversed(self._phases) if p.name == name), None)

    def _following(self, name: PhaseName) -> PhaseName | None:
        """What runs once an end line was seen, so that a crash between two lines still has its phase."""
        if name == "capture":
            return "ready" if self._latest("kv_cache") else "kv_cache"
        return {"weights": "profile", "ready": "checks"}.get(name)  # type: ignore[return-value]

    def ready(self, t: float) -> None:
        """The first health answer that was provably ours: everything before it is completed by it."""
        self._ready = t
        self._open("ready", t).end = None
        for phase in self._phases:
            if phase.name != "checks":
                phase.complete(t)
        self._open("checks", t).start = t

    def checks_done(self, t: float, *, completed: bool) -> None:
        """The last check ended; `completed` where all of them got their answers."""
        checks = self._open("checks", t)
        checks.end, checks.completed = t, completed

    def stopping(self, t: float) -> None:
        self._open("stop", t)

    def stopped(self, t: float) -> None:
        """The last process of the server is gone."""
        stop = self._open("stop", t)
        stop.end, stop.completed = t, True

    def timeline(self) -> Timeline:
        """What is known so far."""
        return Timeline(
            phases=tuple(
                Phase(name=p.name, occurrence=p.number, start=p.start, end=p.end, completed=p.completed)
                for p in self._phases
            ),
            ready=self._ready,
        )


def read(rules: tuple[MarkRule, ...], lines: Iterable[str]) -> Timeline:
    """The timeline of a whole log; seconds as recorded, or since the log's first stamp."""
    builder = Builder(rules, alone=True)
    for line in loglines.read(lines):
        builder.look(line)
    return builder.timeline()


def seconds(timeline: Timeline, *, until: float | None = None) -> Mapping[str, float]:
    """Seconds of every occurrence by its label; one that never ended counts up to `until`, or is left out."""
    ends = {p.label: (p.end if p.end is not None else until, p.start) for p in timeline.phases}
    return {label: round(end - start, 3) for label, (end, start) in ends.items() if end is not None}
