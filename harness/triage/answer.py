"""What triage answers, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.signature import Signature
from harness.triage.layouts import Traceback
from harness.triage.notices import Notices
from harness.triage.roots import Sorted

MOST_EXPLAINED = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """What a stretch of the log was taken for."""

    first: int
    last: int
    role: str
    rule: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Triage:
    """What a log says. `signature` None: it shows no failure."""

    signature: Signature | None = None
    wrappers: tuple[str, ...] = ()
    """Messages that were demoted: they report the failure, they are not it."""
    evidence: tuple[tuple[int, int], ...] = ()
    """First and last line of what the signature was read from; 1 is the first line of the log."""
    chosen: str = ""
    """The rule that gave the signature."""
    explained: tuple[Explained, ...] = ()


def sentence(block: Traceback) -> str:
    return f"{block.name}: {block.text}" if block.text else block.name


def explained(rows: Sequence[Sorted], seen: Notices, dropped: int) -> tuple[Explained, ...]:
    told = [
        Explained(first=r.block.first, last=r.block.last, role=r.role, rule=r.rule, text=sentence(r.block))
        for r in rows
    ]
    told += [
        Explained(first=n.line, last=n.line, role=n.role, rule=n.rule, text=n.message)
        for notices in seen.by_role.values()
        for n in notices
    ]
    if seen.shutdown is not None:
        told.append(Explained(first=seen.shutdown, last=seen.shutdown, role="shutdown", rule="told to stop", text=""))
    told.sort(key=lambda e: (e.first, e.role != "root"))
    more = [Explained(first=0, last=0, role="dropped", rule=f"{dropped} more tracebacks", text="")] if dropped else []
    return (*told[:MOST_EXPLAINED], *more)
