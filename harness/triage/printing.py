"""A triage as JSON, as text for people, and with its reasons."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness.signature import Signature
from harness.triage.answer import Triage

NAMES = (
    "id", "kind", "exception", "message", "normalised", "frames", "process", "phase", "ranks", "title",
    "alternatives", "confidence", "grouping",
)  # fmt: skip
LONGEST = 160
"""Characters of a message in an explanation."""


def to_json(triage: Triage) -> dict[str, Any]:
    """The object that `harness triage --json` prints."""
    found = triage.signature
    whole = asdict(found) if found else {}
    return {
        "signature": {name: whole[name] for name in NAMES} if found else None,
        "wrappers": list(triage.wrappers),
        "evidence": [list(span) for span in triage.evidence],
    }


def to_text(triage: Triage, *, name: str | None = None) -> str:
    """For people: the title first, then where it happened."""
    lead = f"{name}: " if name else ""
    found = triage.signature
    if found is None:
        return visible(f"{lead}no failure found")
    lines = ", ".join(_span(first, last) for first, last in triage.evidence)
    return "\n".join(
        (
            visible(lead + found.title),
            f"  {found.id}  {found.kind}{_where(found)}" + (f"; lines {lines}" if lines else ""),
            *(f"  also: {visible(title)}" for title in found.alternatives),
        )
    )


def to_reasons(triage: Triage) -> str:
    """Which lines were seen, which rule spoke, what was demoted."""
    rows = [
        f"  {_span(row.first, row.last):>13}  {row.role:<10} {visible(row.rule)}"
        + (f": {visible(row.text[:LONGEST])}" if row.text else "")
        for row in triage.explained
    ]
    said = f"rule `{triage.chosen}` spoke" if triage.chosen else "no rule spoke"
    sure = f", confidence {triage.signature.confidence:g}" if triage.signature else ""
    return "\n".join((f"  {said}{sure}", *(rows or ["  nothing in the log looks like a failure"])))


def _where(found: Signature) -> str:
    words = (
        f"in {found.phase}" if found.phase else "",
        visible(found.process or ""),
        f"{found.ranks} ranks" if found.ranks else "",
    )
    where = ", ".join(word for word in words if word)
    return f", {where}" if where else ""


def _span(first: int, last: int) -> str:
    return f"{first}-{last}" if first != last else str(first)


def visible(text: str) -> str:
    """Logs are untrusted text: nothing in them reaches a terminal as a control sequence."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
