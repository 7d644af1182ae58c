"""The sentence that says why: from a server's log to a signature. What it knows stands in tables.

bytes ─▶ lines worth reading ─▶ lines of processes ─┬▶ tracebacks ─▶ roles, chains ┐
         (sieve)                (loglines)          │  (tracebacks)  (roots)       ├▶ first cause ─▶ kind, id, title
                                                    └▶ notices: usage, deaths, … ──┘  (choosing)    (identify)
                                                       (notices)
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import BinaryIO

from harness import loglines
from harness.runtimes import RUNTIMES
from harness.runtimes.base import MarkRule
from harness.timeline import Builder
from harness.triage import choosing, roots
from harness.triage.answer import Triage
from harness.triage.linerules import LINES, LITERALS
from harness.triage.notices import Notices
from harness.triage.sieve import Sieve
from harness.triage.tracebacks import Collector

HANG_LINES = 2000
"""Lines after a notice of a hang in which an answered request shows that it is over."""
BEGINS, UP = ("config", "begin"), ("ready", "end")
"""Marks of an attempt to start that begins, and of one that succeeds."""
ANSWERED = '" 200 OK'


def read(
    log: BinaryIO | Iterable[str],
    *,
    exit: str | None = None,  # noqa: A002 - the record's word
    phase: str | None = None,
) -> Triage:
    """Triage any server log: a binary file, or its lines.

    `exit` is how the leader ended (`exit 1`, `SIGKILL`) and `phase` where it was, where known; else the phase is read
    from the log. Time is linear in the log; memory is bounded by what is kept of its first few hundred tracebacks.
    """
    stream: BinaryIO = log if hasattr(log, "read") else io.BytesIO("\n".join(log).encode("utf-8", "surrogateescape"))  # type: ignore[assignment]
    collector, seen = _scan(stream)
    rows = roots.sort(collector.found, shutdown=seen.shutdown, stops=seen.stops)
    return choosing.choose(rows, seen, cut=collector.cut, dropped=collector.dropped, exit_=exit, phase=phase)


def _scan(stream: BinaryIO) -> tuple[Collector, Notices]:
    collector, seen = Collector(), Notices()
    runtime = RUNTIMES["vllm"]
    restarts = tuple(rule.literal for rule in runtime.marks if (rule.phase, rule.edge) in (BEGINS, UP))
    everything = _literals(runtime.marks)
    sieve = Sieve(stream, everything)
    builder, started, attempts = Builder(runtime.marks, alone=True), 0, 0
    up = False
    for line in loglines.parse(sieve):
        mark = builder.look(line)
        edge = (mark.phase, mark.edge) if mark is not None else None
        if edge == BEGINS:
            attempts += 1
            started, up = line.number, False
            if attempts > 1:  # something starts the server again and again
                builder = Builder(runtime.marks, alone=True)
                builder.look(line)
                seen.started_again(line.number)
        elif edge == UP:
            if attempts > 1:
                collector.forget(started)
                seen.forget(started)
                sieve.literals = everything
            seen.by_role.pop("usage", None)  # of an attempt before it
            up = True
        # A log whose head is lost does not show how the server came up, only that it did.
        phase = "checks#1" if up and builder.current == "spawn#1" else builder.current
        inside = collector.add(line, phase)
        seen.look(line, phase, inside=inside)
        if hung := seen.all("hang"):
            collector.busy_until = max(collector.busy_until, hung[-1].line + HANG_LINES)
            if mark is not None or ANSWERED in line.text:
                seen.healed()
        if collector.full:
            # The first cause is among them; only a healthy start that follows can still change what is said.
            sieve.literals, sieve.busy = restarts, 0
        else:
            sieve.busy = max(collector.busy_until, seen.open_lines)
    return collector, seen


def _literals(marks: tuple[MarkRule, ...]) -> tuple[bytes, ...]:
    """What a line must hold to be looked at; one that holds another is covered by it."""
    every = {*(mark.literal for mark in marks), *(rule.literal.encode() for rule in LINES if not rule.at_end)}
    every |= {word.encode() for word in LITERALS}
    return tuple(sorted(one for one in every if not any(other != one and other in one for other in every)))
