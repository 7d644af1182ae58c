"""Markdown that no log line can break: anybody's text as inert words, code spans, fences, tables; bounded in size."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.report.text import one_line

MAX_BYTES = 1_000_000
"""Below 1 MiB, the most that Buildkite takes."""

# Underscores inside a word mean nothing to Markdown and most titles have some: `layer_names` stays as it is.
_SPECIAL = re.compile(r"[\\`*\[\]<>|&~#!$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_AUTOLINK = re.compile(r"(?i)(https?|ftp)(://)|\b(www)(\.)")


def escape(text: str) -> str:
    """One line of anybody's text as inert Markdown."""
    line = _SPECIAL.sub(lambda match: "&lt;" if match[0] == "<" else f"\\{match[0]}", one_line(text))
    return _AUTOLINK.sub(lambda m: f"{m[1] or m[3]}\u200b{m[2] or m[4]}", line)  # a zero-width space stops autolinks


def code(text: str) -> str:
    """One line of anybody's text as a code span; also inside a table."""
    line = one_line(text)
    fence = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}".replace("|", "\\|") if line else ""


def fenced(text: str, language: str = "text") -> str:
    """A code block that its content cannot end."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def joined(blocks: Sequence[str], last: Sequence[str]) -> str:
    """All blocks that fit; what comes `last` always does."""
    room = MAX_BYTES - sum(len(block.encode()) + 2 for block in last)
    kept: list[str] = []
    for block in filter(None, blocks):
        room -= len(block.encode()) + 2
        if room < 0:
            kept.append("… too long for an annotation: the rest is in run.json.")
            break
        kept.append(block)
    return "\n\n".join([*kept, *last]) + "\n"
