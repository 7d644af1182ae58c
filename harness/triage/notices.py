"""Causes without a traceback of their own: usage errors, processes that are gone without a word. Pure."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from itertools import chain

from harness.loglines import LogLine
from harness.signature import Signature
from harness.triage import identify
from harness.triage.rules import DEATHS, SHUTDOWN, USAGE
from harness.triage.tracebacks import Traceback

RANKED = re.compile(r"\bworld_size=(\d+) rank=\d+|in world size (\d+)")
LAST_ERRORS = 20
FIRST_NOTICES = 100
"""Notices that are kept: a server that restarts its engine for ever must not fill the memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """One line that is a cause, or stands for one."""

    line: int
    process: str | None
    phase: str | None
    message: str
    code: int | None = None
    hearsay: bool = False


@dataclass(slots=True)
class Notices:
    """What one pass over a log notices beside tracebacks."""

    usage: list[Notice] = field(default_factory=list)
    deaths: list[Notice] = field(default_factory=list)
    errors: deque[Notice] = field(default_factory=lambda: deque(maxlen=LAST_ERRORS))
    spoke: set[str] = field(default_factory=set)
    """Processes that have lines of their own, `Worker` for `Worker_TP0` too."""
    workers: set[str] = field(default_factory=set)
    """Pids of workers."""
    world: int = 0
    shutdown: int | None = None
    """Line from which on the server was told to stop."""

    def look(self, line: LogLine, phase: str) -> None:
        text = line.text
        if line.process:
            self._process(line.process, line.pid)
        if "world" in text and (ranked := RANKED.search(text)):
            self.world = max(self.world, int(ranked[1] or ranked[2]))
        if self.shutdown is None and "hut" in text and SHUTDOWN.search(text):
            self.shutdown = line.number
        if ": error: " in text and (usage := USAGE.match(text)) and len(self.usage) < FIRST_NOTICES:
            self.usage.append(_notice(line, phase, usage["message"]))
        if "unexpectedly" in text or "initialization failed" in text or "core proc" in text:
            self._death(line, phase)
        if line.level in ("ERROR", "CRITICAL") and text and not text[0].isspace():
            self.errors.append(_notice(line, phase, text))

    def _process(self, name: str, pid: str | None) -> None:
        if name not in self.spoke:
            self.spoke |= {name, name.split("_", 1)[0]}
        if pid and name.startswith("Worker"):
            self.workers.add(pid)

    def _death(self, line: LogLine, phase: str) -> None:
        found = next(((rule, hit) for rule in DEATHS if (hit := rule.pattern.search(line.text))), None)
        if found is None or len(self.deaths) >= FIRST_NOTICES:
            return
        rule, hit = found
        groups = hit.groupdict()
        code = int(groups["code"]) if groups.get("code") else None
        process = groups.get("process") or rule.default
        self.deaths.append(_notice(line, phase, line.text, process=process, code=code, hearsay=rule.hearsay))


def _notice(
    line: LogLine,
    phase: str,
    message: str,
    *,
    process: str | None = None,
    code: int | None = None,
    hearsay: bool = False,
) -> Notice:
    return Notice(
        line=line.number, process=process or line.process, phase=phase, message=message, code=code, hearsay=hearsay
    )


def dead(seen: Notices, demoted: list[Traceback], phase: str | None) -> tuple[Signature, int] | None:
    """A process that is gone without a word: the first whose signal is known, else the first that is reported."""
    known = (d for d in seen.deaths if d.code is not None and d.code < 0)
    told = (d for d in seen.deaths if not d.hearsay)
    heard = (d for d in seen.deaths if d.hearsay and d.process in seen.spoke)
    death = next(chain(known, told, heard), None) or _lost_engine(seen, demoted)
    if death is None:
        return None
    process = re.sub(r"^Vllm|_\w+$|-\d+$", "", death.process or "a process")
    how = identify.signal_name(-death.code) if death.code is not None and death.code < 0 else None
    message = f"{process} was killed by {how}" if how else f"{process} died without a word"
    signature = identify.make(
        kind="killed_signal",
        exception=how,
        message=message,
        process=death.process,
        phase=phase or death.phase,
        confidence=1.0 if how else 0.5 if death.hearsay else 0.7,
    )
    return signature, death.line


def _lost_engine(seen: Notices, demoted: list[Traceback]) -> Notice | None:
    """An engine reported dead before anybody asked the server to stop."""
    for block in demoted:
        if block.name == "EngineDeadError" and (seen.shutdown is None or block.first < seen.shutdown):
            return Notice(line=block.first, process="EngineCore", phase=block.phase, message=block.text)
    return None
