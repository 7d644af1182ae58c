"""The first cause: from what a log shows to one signature, and why it was that one. Pure.

In this order, the first that there is:

    causes       tracebacks that are no messengers, native crashes, in the order of the log
    usage        the command line was refused
    unwrapped    a worker's message that the engine quotes, where the worker's own words are lost
    kernel       the machine says whom it ended
    killed       a process that a signal ended, by the number that another one reports
    stopped      an engine that somebody else than the server told to stop
    collateral   a rank that failed because its peer was gone
    hang         somebody waited, and nothing came after it
    line         an exception on a line of its own, of a server that reports a failed process
    died         a process that is gone without a word
    messenger    one that only a failure prints
    request      one that failed in the API server, where a run asks
    lone         an exception without its traceback, or the last error, of a server that did not end well
    cut          the log ends inside a traceback
    exit         how the leader ended
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.signature import Signature
from harness.triage import identify, roots
from harness.triage.answer import Triage, explained, sentence
from harness.triage.layouts import Traceback
from harness.triage.messengers import UNWRAP
from harness.triage.notices import WORKER, Notice, Notices
from harness.triage.roots import Sorted

MOST_SPANS = 16
MOST_ALTERNATIVES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """Everything that the rules below may look at."""

    rows: Sequence[Sorted]
    seen: Notices
    cut: Traceback | None
    exit_: str | None
    phase: str | None

    def blocks(self, *roles: str) -> list[Traceback]:
        return [row.block for row in self.rows if row.role in roles]


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    first: int
    last: int
    process: str | None
    pid: str | None
    signature: Signature


Found = tuple[Signature, tuple[tuple[int, int], ...]]


def choose(
    rows: Sequence[Sorted],
    seen: Notices,
    *,
    cut: Traceback | None = None,
    dropped: int = 0,
    exit_: str | None = None,
    phase: str | None = None,
) -> Triage:
    case = Case(rows=rows, seen=seen, cut=cut, exit_=exit_, phase=phase)
    rule, found = next(((name, found) for name, rule in RULES if (found := rule(case)) is not None), ("", None))
    signature, evidence = found or (None, ())
    return Triage(
        signature=signature,
        evidence=evidence,
        wrappers=tuple(dict.fromkeys(sentence(row.block) for row in rows if row.role not in ("root", "harmless"))),
        chosen=rule,
        explained=explained(rows, seen, dropped),
    )


# --- the rules, in order


def _causes(case: Case) -> Found | None:
    tracebacks = [_of_block(block, case) for block in case.blocks("root")]
    notices = [_of_notice(notice, case) for notice in case.seen.all("cause")]
    ordered = sorted((*tracebacks, *notices), key=lambda c: c.first)
    return _first_of(ordered, case.seen) if ordered else None


def _usage(case: Case) -> Found | None:
    if not (told := case.seen.all("usage")):
        return None
    return identify.usage(told[0].message, case.phase or told[0].phase), _span(told[0])


def _unwrapped(case: Case) -> Found | None:
    places: list[Notice | Traceback] = [*case.blocks("messenger", "link"), *case.seen.errors, *case.seen.lone]
    for place in places:
        text = place.text if isinstance(place, Traceback) else place.message
        if quoted := UNWRAP.search(text):
            signature = identify.bare(quoted["inner"], process=None, phase=case.phase or place.phase, confidence=0.5)
            return signature, _span(place)
    return None


def _kernel(case: Case) -> Found | None:
    told = case.seen.all("kernel")
    return _first_of([_of_notice(told[0], case)], case.seen) if told else None


def _killed(case: Case) -> Found | None:
    known = next((d for d in case.seen.all("death") if d.code is not None and identify.signal_in(d.code)), None)
    return _dead(known, case, confidence=1.0) if known else None


def _stopped(case: Case) -> Found | None:
    """A signal from outside to the engine alone: the server then finds it gone."""
    told = next(iter(_before_shutdown(case, "stopped")), None)
    if told is None or not any(death.line > told.line for death in case.seen.all("death")):
        return None
    return _gone(f"EngineCore was ended by {told.exception} from outside", told, case, told.exception, confidence=0.9)


def _collateral(case: Case) -> Found | None:
    blocks = case.blocks("collateral")
    found = _first_of([_of_block(block, case) for block in blocks], case.seen) if blocks else None
    return (replace(found[0], confidence=0.5), found[1]) if found else None


def _hang(case: Case) -> Found | None:
    blocks = case.blocks("hang")
    if blocks:
        block = blocks[0]
        signature = identify.hang(case.phase or block.phase or "spawn", "peer", process=block.process)
        return signature, _span(block)
    waits = case.seen.all("hang")
    if not waits or (case.seen.shutdown is not None and case.exit_ is None):
        return None  # whoever stopped it may have healed it before
    return identify.hang(case.phase or waits[0].phase or "spawn", "peer", process=waits[0].process), _span(waits[0])


def _line(case: Case) -> Found | None:
    """Of a server whose process is reported to have failed: the exception that stands on a line of its own."""
    reported = case.seen.all("hearsay") or case.seen.all("death") or any(row.fatal for row in case.rows)
    lone = next((n for n in case.seen.lone if not roots.is_messenger(n.exception or "", n.message)), None)
    if not reported or lone is None or _was_ready(lone.phase):
        return None
    return _bare(lone, case, confidence=0.5), _span(lone)


def _died(case: Case) -> Found | None:
    deaths = case.seen.all("death")
    if told := next((d for d in deaths if not d.code), None):
        return _dead(told, case, confidence=0.7)
    heard = next((d for d in _before_shutdown(case, "hearsay") if d.process in case.seen.spoke), None)
    if heard is not None:
        return _dead(heard, case, confidence=0.5)
    # An exit code of its own is Python's: whatever it raised is lost.
    lost = next(iter(deaths), None)
    if lost is None and (engine := _lost_engine(case)) is not None:
        return _dead(engine, case, confidence=0.7)
    return _dead(lost, case, confidence=0.3) if lost else None


def _messenger(case: Case) -> Found | None:
    block = next((row.block for row in case.rows if row.fatal), None)
    if block is None:
        return None
    return replace(identify.of_traceback(block, case.phase), confidence=0.2), _span(block)


def _request(case: Case) -> Found | None:
    """A request that failed: of interest to a run, whose own request it was; other servers live with it."""
    if case.exit_ is None and case.phase is None:
        return None
    blocks = case.blocks("request")
    return _first_of([_of_block(block, case) for block in blocks], case.seen) if blocks else None


def _lone(case: Case) -> Found | None:
    """Of a server that is known to have ended badly, or whose log ends with it before it was ready."""
    ended_badly = case.exit_ is not None and case.exit_ != "exit 0" and not identify.signal_of(case.exit_)
    lone = case.seen.lone[-1] if case.seen.lone else None
    early = case.exit_ is None and case.seen.shutdown is None and lone is not None and not _was_ready(lone.phase)
    if lone is not None and (ended_badly or early):
        return _bare(lone, case, confidence=0.4), _span(lone)
    if ended_badly and case.seen.errors:
        return _bare(case.seen.errors[-1], case, confidence=0.3), _span(case.seen.errors[-1])
    return None


def _cut(case: Case) -> Found | None:
    if (block := case.cut) is None or case.blocks("harmless"):
        return None
    return identify.of_cut(block, case.phase), _span(block)


def _exit(case: Case) -> Found | None:
    if case.exit_ is None or not identify.signal_of(case.exit_):
        return None
    return identify.killed(case.exit_, case.phase or "spawn"), ()


RULES: tuple[tuple[str, Callable[[Case], Found | None]], ...] = (
    ("causes", _causes),
    ("usage", _usage),
    ("unwrapped", _unwrapped),
    ("kernel", _kernel),
    ("killed", _killed),
    ("stopped", _stopped),
    ("collateral", _collateral),
    ("hang", _hang),
    ("line", _line),
    ("died", _died),
    ("messenger", _messenger),
    ("request", _request),
    ("lone", _lone),
    ("cut", _cut),
    ("exit", _exit),
)


# --- candidates


def _of_block(block: Traceback, case: Case) -> Candidate:
    signature = identify.of_traceback(block, case.phase)
    return Candidate(
        first=block.first, last=block.last, process=block.process, pid=block.pid, signature=signature
    )  # fmt: skip


def _of_notice(notice: Notice, case: Case) -> Candidate:
    signature = _bare(notice, case, confidence=0.9)
    return Candidate(
        first=notice.line, last=notice.line, process=notice.process, pid=notice.pid, signature=signature
    )  # fmt: skip


def _first_of(ordered: Sequence[Candidate], seen: Notices) -> Found:
    """The first, with its ranks; what differs from it is named with the ranks that showed it."""
    first = ordered[0].signature
    same = [candidate for candidate in ordered if candidate.signature.id == first.id]
    others: dict[str, list[Candidate]] = {}
    for candidate in ordered:
        if candidate.signature.id != first.id:
            others.setdefault(candidate.signature.title, []).append(candidate)
    named = ((title, _ranks(who, seen)) for title, who in others.items())
    alternatives = tuple(f"{title} [{ranks} ranks]" if ranks else title for title, ranks in named)
    signature = replace(
        first,
        alternatives=alternatives[:MOST_ALTERNATIVES],
        ranks=_ranks(same, seen),
        confidence=round(first.confidence * (0.9 if others else 1.0), 2),
    )
    return signature, tuple((c.first, c.last) for c in same[:MOST_SPANS])


def _ranks(candidates: Sequence[Candidate], seen: Notices) -> str | None:
    who = {(None if c.pid else c.process, c.pid) for c in candidates if c.process and WORKER.match(c.process)}
    world = max(seen.world or len(seen.workers), len(who))
    return f"{len(who)}/{world}" if who and world > 1 else None


# --- processes that are gone without a word


def _dead(death: Notice, case: Case, *, confidence: float) -> Found:
    process = re.sub(r"^Vllm|Process$|_\w+$|-\d+$", "", death.process or "a process")
    how = identify.signal_name(number) if (number := identify.signal_in(death.code or 0)) else None
    message = f"{process} was killed by {how}" if how else f"{process} died without a word"
    if not how and death.code:
        message = f"{process} ended with exit code {death.code} and without a word"
    if death.rule == "worker left":
        message = death.message
    return _gone(message, death, case, how, confidence=confidence)


def _gone(message: str, death: Notice, case: Case, how: str | None, *, confidence: float) -> Found:
    signature = identify.make(
        kind="killed_signal" if how or not death.code else "other",
        exception=how,
        message=message,
        process=death.process,
        phase=case.phase or death.phase,
        confidence=confidence,
    )
    return signature, _span(death)


def _before_shutdown(case: Case, role: str) -> list[Notice]:
    shutdown = case.seen.shutdown
    return [notice for notice in case.seen.all(role) if shutdown is None or notice.line < shutdown]


def _lost_engine(case: Case) -> Notice | None:
    """An engine reported dead before anybody asked the server to stop."""
    shutdown = case.seen.shutdown
    for block in case.blocks("messenger", "link"):
        if block.name == "EngineDeadError" and (shutdown is None or block.first < shutdown):
            return Notice(
                rule="engine is dead", role="death", line=block.first, process="EngineCore", phase=block.phase,
                message=block.text,
            )  # fmt: skip
    return None


def _bare(notice: Notice, case: Case, *, confidence: float) -> Signature:
    return identify.bare(
        notice.message, process=notice.process, phase=case.phase or notice.phase, confidence=confidence,
        exception=notice.exception, kind=notice.kind,
    )  # fmt: skip


def _was_ready(phase: str | None) -> bool:
    return phase is not None and phase.startswith("checks")


def _span(place: Notice | Traceback) -> tuple[tuple[int, int], ...]:
    return ((place.first, place.last),) if isinstance(place, Traceback) else ((place.line, place.line),)
