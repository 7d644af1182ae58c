"""What one pass over a log notices beside tracebacks: lines that are a cause, or stand for one. Pure."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace

from harness.loglines import LogLine
from harness.signature import Kind
from harness.triage.kinds import DUMPED_SIGNALS
from harness.triage.linerules import LINES, LONE, WHAT, LineRule

RANKED = re.compile(r"\bworld_size=(\d+) rank=\d+|in world size (\d+)")
WORKER = re.compile(r"\w*Worker|rank\d|(?:[A-Z]{2}\d+ )*TP\d")
"""Tags of processes that are ranks."""
LAST_ERRORS = 20
QUIET = frozenset({"DEBUG", "INFO"})
"""Levels at which a server may print what its users wrote."""
INFORMATIVE = frozenset({"hang", "stopped", "shutdown"})
"""Roles of lines that are logged at such a level."""
MORE_LINES = 3
FIRST_NOTICES = 100
"""Notices that are kept: a server that restarts its engine for ever must not fill the memory."""
MOST_WORKERS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """One line that is a cause, or stands for one."""

    rule: str
    role: str
    line: int
    process: str | None
    pid: str | None = None
    phase: str | None
    message: str
    kind: Kind = "other"
    exception: str | None = None
    code: int | None = None
    """How the process ended where the line says so; negative: by that signal."""


@dataclass(slots=True)
class Notices:
    by_role: dict[str, list[Notice]] = field(default_factory=dict)
    errors: deque[Notice] = field(default_factory=lambda: deque(maxlen=LAST_ERRORS))
    """Last lines that were logged as errors."""
    lone: deque[Notice] = field(default_factory=lambda: deque(maxlen=LAST_ERRORS))
    """Last exceptions that stand on a line of their own, without a traceback."""
    spoke: set[str] = field(default_factory=set)
    """Processes that have lines of their own, `Worker` for `Worker_TP0` too."""
    workers: set[tuple[str | None, str | None]] = field(default_factory=set)
    """Tag and pid of ranks."""
    world: int = 0
    open_lines: int = 0
    """Lines up to this number may go on with what the last notice began: pydantic's after argparse's, `what()`."""
    shutdown: int | None = None
    """Line from which on the server was told to stop."""
    stops: list[tuple[int, int]] = field(default_factory=list)
    """From being told to stop to the next start, of earlier attempts."""

    def all(self, role: str) -> list[Notice]:
        return self.by_role.get(role, [])

    def look(self, line: LogLine, phase: str, *, inside: bool) -> None:
        """`inside`: a traceback of the same writer is open, so an exception's line is not a lone one."""
        text = line.text
        if line.process:
            self._process(line.process, line.pid)
        if "world" in text and (ranked := RANKED.search(text)):
            self.world = max(self.world, int((ranked[1] or ranked[2])[:6]))
        if line.number <= self.open_lines and line.level is None and text.strip():
            self._more(text)
        for rule in LINES:
            if rule.literal in text and (rule.role in INFORMATIVE or line.level not in QUIET):
                if (found := rule.pattern.search(text)) is None:
                    continue
                self._notice(rule, found, line, phase)
                break
        if not text or text[0].isspace():
            return
        if line.level in ("ERROR", "CRITICAL"):
            self.errors.append(_notice("error line", "error", line, phase, text))
        if not inside and (lone := LONE.match(text)):
            message = lone["message"]
            name = lone["exception"].rsplit(".", 1)[-1]
            self.lone.append(_notice("lone exception", "lone", line, phase, message, exception=name))

    def started_again(self, line: int) -> None:
        """Another start begins: what fails from here on is no noise of the last stop."""
        if self.shutdown is not None:
            self.stops = [*self.stops[-FIRST_NOTICES:], (self.shutdown, line)]
            self.shutdown = None

    def forget(self, before: int) -> None:
        """What stands before that line belongs to an attempt that was followed by a healthy start."""
        for role, kept in self.by_role.items():
            self.by_role[role] = [notice for notice in kept if notice.line >= before]
        for last in (self.errors, self.lone):
            kept = [notice for notice in last if notice.line >= before]
            last.clear()
            last.extend(kept)
        if self.shutdown is not None and self.shutdown < before:
            self.shutdown = None

    def healed(self) -> None:
        """The start went on, or a request was answered: whoever did not answer for a while is back."""
        self.by_role.pop("hang", None)

    def _process(self, name: str, pid: str | None) -> None:
        if name not in self.spoke and len(self.spoke) < MOST_WORKERS:
            self.spoke |= {name, re.split(r"[_ ]", name, maxsplit=1)[0]}
        if len(self.workers) < MOST_WORKERS and WORKER.match(name):
            self.workers.add((None if pid else name, pid))

    def _notice(self, rule: LineRule, found: re.Match[str], line: LogLine, phase: str) -> None:
        if rule.role == "shutdown":
            # uvicorn says it after a crash of the engine too, and then it is not what began it.
            if not (rule.name == "uvicorn shutdown" and self.errors):
                self.shutdown = self.shutdown or line.number
            return
        if rule.role == "usage" and self.shutdown is None and phase.startswith(("ready", "checks")):
            return  # a server that is up has read its command line: this is somebody's text
        kept = self.by_role.setdefault(rule.role, [])
        if len(kept) >= FIRST_NOTICES:
            return
        words = {key: value for key, value in found.groupdict().items() if value is not None}
        message = rule.message.format(**words) if rule.message else words.get("message", line.text)
        signal = int(words["signal"][:3]) if "signal" in words else rule.signal
        code = -signal if signal is not None else int(words["code"][:5]) if "code" in words else None
        self.open_lines = max(self.open_lines, line.number + MORE_LINES)
        kept.append(
            _notice(
                rule.name, rule.role, line, phase, message.strip(), process=words.get("process") or rule.process,
                kind=rule.kind, exception=words.get("exception") or rule.exception or DUMPED_SIGNALS.get(message),
                code=code,
            )
        )  # fmt: skip

    def _more(self, text: str) -> None:
        """What explains the last notice: pydantic's words after argparse's, `what()` after `terminate called`."""
        usage, causes = self.all("usage"), self.all("cause")
        if usage and "validation error" in usage[-1].message:
            usage[-1] = replace(usage[-1], message=f"{usage[-1].message}\n{text}")
        elif causes and causes[-1].message == "terminate called" and (what := WHAT.match(text)):
            causes[-1] = replace(causes[-1], message=what["message"])


def _notice(
    rule: str,
    role: str,
    line: LogLine,
    phase: str,
    message: str,
    *,
    process: str | None = None,
    kind: Kind = "other",
    exception: str | None = None,
    code: int | None = None,
) -> Notice:
    return Notice(
        rule=rule, role=role, line=line.number, process=process or line.process, pid=line.pid, phase=phase,
        message=message, kind=kind, exception=exception, code=code,
    )  # fmt: skip
