"""The sentence that says why: from a server's log to a signature. Pure; what it knows stands in `triage_rules.py`.

log ─▶ lines of processes ─▶ tracebacks ─▶ without messengers ─▶ the first ─▶ kind, normalised message, id, title
       (loglines)           (tracebacks)└▶ usage errors, deaths without a traceback ─┘    (identify)
                                           (notices; where no traceback is left)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness import loglines
from harness.runtimes import RUNTIMES
from harness.signature import Signature
from harness.timeline import Builder
from harness.triage import notices
from harness.triage.identify import bare, killed, of_traceback, signal_of, usage
from harness.triage.notices import Notices
from harness.triage.rules import HARMLESS_HEADER, HARMLESS_LEVELS, UNWRAP, WORTH, WRAPPERS, WrapperRule
from harness.triage.tracebacks import Collector, Traceback


@dataclass(frozen=True, kw_only=True, slots=True)
class Triage:
    """What a log says. `signature` None: it shows no failure."""

    signature: Signature | None = None
    wrappers: tuple[str, ...] = ()
    """Messages that were demoted: they report the failure, they are not it."""
    evidence: tuple[tuple[int, int], ...] = ()
    """First and last line of what the signature was read from; 1 is the first line of the log."""


def read(
    lines: Iterable[str],
    *,
    exit: str | None = None,  # noqa: A002 - the record's word
    phase: str | None = None,
) -> Triage:
    """Triage any server log.

    `exit` is how the leader ended (`exit 1`, `SIGKILL`) and `phase` where it was, where known; else the phase is read
    from the log. Time is linear in the log; memory is what its tracebacks take.
    """
    tracebacks, seen = _scan(lines)
    roots, demoted = _sort(tracebacks)
    wrappers = tuple(dict.fromkeys(_sentence(block) for block in demoted))
    if roots:
        return _from_root(roots, seen, wrappers, phase)
    signature, line = _from_notices(seen, demoted, exit, phase) or (None, 0)
    return Triage(signature=signature, wrappers=wrappers, evidence=((line, line),) if line else ())


def _scan(lines: Iterable[str]) -> tuple[list[Traceback], Notices]:
    collector, seen = Collector(), Notices()
    runtime = RUNTIMES["vllm"]
    builder = Builder(runtime.marks, alone=True)
    words = (*WORTH, *(literal.decode() for literal in runtime.literals))

    def keep(raw: str, number: int) -> bool:
        for word in words:  # a loop, not any(): this runs for every line of a log of 1 GB
            if word in raw:
                return True
        return collector.busy(number)

    for line in loglines.read(lines, keep=keep):
        builder.look(line)
        phase = builder.current
        collector.add(line, phase)
        seen.look(line, phase)
    return collector.found, seen


def _sort(blocks: list[Traceback]) -> tuple[list[Traceback], list[Traceback]]:
    """Root candidates in the order of the log, and what was demoted."""
    roots: list[Traceback] = []
    demoted: list[Traceback] = []
    for block in blocks:
        if _harmless(block):
            continue
        root = _root_of(block)
        (demoted if _wrapper(root) else roots).append(root)
        demoted += [link for link in block.chain() if link is not root]
    return roots, demoted


def _harmless(block: Traceback) -> bool:
    return block.level in HARMLESS_LEVELS or HARMLESS_HEADER.match(block.header) is not None


def _root_of(block: Traceback) -> Traceback:
    """Along a chain: a direct cause beats what was raised from it; what was raised *while* handling beats the handled.

    >   GatedRepoError ─ direct cause ─▶ OSError            the first
    >   KeyError ─ during handling ─▶ ValueError: unknown … the second, which knows what it means
    """
    root = block
    for link in block.chain():
        if link.before is not None and (link.link == "cause" or _wrapper(root)) and not _wrapper(link.before):
            root = link.before
    return root


def _wrapper(block: Traceback) -> WrapperRule | None:
    return next((r for r in WRAPPERS if r.exception.search(block.name) and r.message.search(block.text)), None)


def _sentence(block: Traceback) -> str:
    return f"{block.name}: {block.text}" if block.text else block.name


def _from_root(roots: list[Traceback], seen: Notices, wrappers: tuple[str, ...], phase: str | None) -> Triage:
    signatures = [of_traceback(block, phase) for block in roots]
    first = signatures[0]
    same = [block for block, signature in zip(roots, signatures, strict=True) if signature.id == first.id]
    others = tuple(dict.fromkeys(s.title for s in signatures if s.id != first.id))
    ranks = {block.pid for block in same if block.process and block.process.startswith("Worker")}
    world = max(seen.world, len(seen.workers))
    signature = replace(
        first,
        alternatives=others[:10],
        ranks=f"{len(ranks)}/{world}" if ranks and world > 1 else None,
        confidence=0.9 if others else 1.0,
    )
    return Triage(signature=signature, wrappers=wrappers, evidence=tuple((b.first, b.last) for b in same[:16]))


def _from_notices(
    seen: Notices,
    demoted: list[Traceback],
    exit_: str | None,
    phase: str | None,
) -> tuple[Signature, int] | None:
    if seen.usage:
        first = seen.usage[0]
        return usage(first.message, phase or first.phase), first.line
    if inner := next((found["inner"] for b in demoted if (found := UNWRAP.search(b.text))), None):
        block = next(b for b in demoted if UNWRAP.search(b.text))
        return bare(inner, process=None, phase=phase or block.phase, confidence=0.5), block.first
    fatal = [b for b in demoted if (rule := _wrapper(b)) and rule.fatal]
    if dead := notices.dead(seen, demoted, phase):
        return dead
    if fatal:
        return replace(of_traceback(fatal[0], phase), confidence=0.2), fatal[0].first
    if exit_ is not None and exit_ != "exit 0" and not signal_of(exit_) and seen.errors:
        error = seen.errors[-1]
        return bare(error.message, process=error.process, phase=phase or error.phase, confidence=0.3), error.line
    return (killed(exit_, phase or "spawn"), 0) if exit_ and signal_of(exit_) else None


# --- as JSON and as text


def to_json(triage: Triage) -> dict[str, Any]:
    """The object that `harness triage --json` prints."""
    found = triage.signature
    names = (
        "id", "kind", "exception", "message", "normalised", "frames", "process", "phase", "ranks", "title",
        "alternatives", "confidence", "grouping",
    )  # fmt: skip
    whole = asdict(found) if found else {}
    return {
        "signature": {name: whole[name] for name in names} if found else None,
        "wrappers": list(triage.wrappers),
        "evidence": [list(span) for span in triage.evidence],
    }


def to_text(triage: Triage, *, name: str | None = None) -> str:
    """For people: the title first, then where it happened."""
    lead = f"{name}: " if name else ""
    found = triage.signature
    if found is None:
        return f"{lead}no failure found"
    where = ", ".join(
        words
        for words in (
            f"in {found.phase}" if found.phase else "",
            found.process or "",
            f"{found.ranks} ranks" if found.ranks else "",
        )
        if words
    )
    lines = ", ".join(f"{first}-{last}" if first != last else str(first) for first, last in triage.evidence)
    return "\n".join(
        (
            _visible(lead + found.title),
            f"  {found.id}  {found.kind}{f', {where}' if where else ''}" + (f"; lines {lines}" if lines else ""),
            *(f"  also: {_visible(title)}" for title in found.alternatives),
        )
    )


def _visible(text: str) -> str:
    """Logs are untrusted text: nothing in them reaches a terminal as a control sequence."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
