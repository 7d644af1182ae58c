r"""What stands around a server's line when something carried it: docker, Kubernetes, journald, CI, srun, Ray. Pure.

    2026-11-30T21:56:37.1Z stderr F (Worker_TP0 pid=26) ERROR 11-30 21:56:37 [core.py:9] Traceback (most recent …
    └ kubernetes                  ┘ └ the server's own line

Rows are tried at the beginning of a line, again and again until none fits, so a line may have come through several. A
group `lane` in a row tells writers apart that share one log: two tasks of srun, two services of compose.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

ANSI = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|[_P^X][^\x07\x1b]*(?:\x07|\x1b\\)"  # Buildkite's time marks: ESC _ bk;t=1732999123 BEL
    r"|[@-Z\\^_]"
    r")"
)

MOST = 6
"""Carriers around one line: a container in a pod in a CI job has three."""
LONGEST_JSON = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Carrier:
    name: str
    pattern: re.Pattern[str]


ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"

CARRIERS: tuple[Carrier, ...] = (
    Carrier(name="buildkite without its escape", pattern=re.compile(r"(?:_bk;t=\d+\x07?)+")),
    Carrier(name="github", pattern=re.compile(r"##\[\w+\]")),
    # GitLab puts two digits and the stream after the stamp: `00O `, `01E+`.
    Carrier(name="gitlab", pattern=re.compile(ISO + r" \d\d[OE][ +]")),
    Carrier(name="kubernetes", pattern=re.compile(ISO + r" std(?:out|err) [FP] ?")),
    Carrier(name="journald, long stamp", pattern=re.compile(ISO + r" [\w.-]+ (?P<lane>[\w./@-]+\[\d+\]): ?")),
    Carrier(name="docker", pattern=re.compile(r"(?:" + ISO + r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+)(?: |$)")),
    Carrier(name="jenkins", pattern=re.compile(r"\[" + ISO + r"\] ?")),
    Carrier(
        name="journald",
        pattern=re.compile(
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? [\w.-]+ (?P<lane>[\w./@-]+(?:\[\d+\])?): ?"
        ),
    ),
    Carrier(name="kubectl --prefix", pattern=re.compile(r"\[pod/(?P<lane>[^\]\s]+)\] ?")),
    Carrier(name="docker compose", pattern=re.compile(r"(?P<lane>\w[\w.-]{0,80}) +\| ?")),
    Carrier(name="mpirun", pattern=re.compile(r"\[(?P<lane>\d+,\d+)\]<std(?:out|err)>: ?")),
    Carrier(name="torchrun", pattern=re.compile(r"\[(?P<lane>default\d+)\]: ?")),
    Carrier(name="srun --label", pattern=re.compile(r" {0,4}(?P<lane>\d{1,5}): ?(?=\D|$)")),
    Carrier(name="raylet", pattern=re.compile(r"\((?:raylet|autoscaler)[^)]{0,60}\) ?")),
    # host:pid:tid [gpu], in front of everything that NCCL says
    Carrier(name="nccl", pattern=re.compile(r"[\w.-]+:\d+:\d+ \[\d+\] (?=NCCL |\S+\.cc:)")),
)

ANY = re.compile("|".join(f"(?:{c.pattern.pattern.replace('<lane>', f'<lane{n}>')})" for n, c in enumerate(CARRIERS)))
"""All rows in one, in their order: a log of 1 GB may hold ten million lines."""
REPEATED = re.compile(r"\[repeated \d+x across cluster\].*$")
"""Ray says a line once for all its workers."""


def strip(text: str) -> tuple[str | None, str]:
    """The lane of a line (None where its carriers name none) and the line itself."""
    lane = None
    for _ in range(MOST):
        if text.startswith("(") and not text.startswith(("(raylet", "(autoscaler")):
            break  # most lines: a server's own tag, and no carrier begins like it
        found = ANY.match(text)
        if found is None or not found.end():
            break
        lane = found[found.lastgroup] if found.lastgroup else lane
        text = text[found.end() :]
    return lane, REPEATED.sub("", text).rstrip() if "across cluster" in text else text


def unpack(text: str) -> str | None:
    """The text inside a line that is one JSON object (docker's files, TGI with --json-output); None for other lines."""
    if not (text.startswith("{") and text.rstrip().endswith("}")) or len(text) > LONGEST_JSON:
        return None
    try:
        row: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    said = (_said(row, "log"), _said(row, "message"), _said(row.get("fields"), "message"))
    words = next((word for word in said if word is not None), None)
    if words is None:
        return None
    level = row.get("level")
    return f"{level} text_generation_launcher: {words}" if isinstance(level, str) and "fields" in row else words


def _said(row: Any, key: str) -> str | None:
    value = row.get(key) if isinstance(row, dict) else None
    return value if isinstance(value, str) else None
