"""Text of servers made safe to show: control characters visible, lengths bounded, and what was cut said so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO

LINE_BYTES = 4_000
"""Longest log line that is shown whole."""
PIECE_BYTES = 64 << 20
"""A line that is longer is read in pieces."""
LINES_BEFORE, LINES_AFTER = 20, 10
"""Lines shown around the evidence."""

# XML 1.0 has no place for C0 controls, lone surrogates, U+FFFE and U+FFFF: one of them and Jenkins reads nothing of the
# file. C1 controls and DEL are legal but invisible; the bidirectional overrides make a text read as something else.
_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")
_ATTACHMENT = "[[ATTACHMENT|"  # in a JUnit file GitLab fetches the path that follows: no log may name one
_LINE_END_CR = re.compile(r"\r+(?=\n|\Z)")
_DELETE, _CONTROL_PICTURES = 0x7F, 0x2400


def visible(text: str) -> str:
    r"""Replace what cannot be seen or stored: ESC becomes ␛, an undecodable byte `\x80`. Tabs and newlines stay."""
    plain = text if text.isprintable() else _ODD.sub(_picture, _LINE_END_CR.sub("", text))  # nothing odd is printable
    return plain.replace(_ATTACHMENT, "[ [ATTACHMENT|")


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < ord(" "):
        return chr(_CONTROL_PICTURES + code)
    if code == _DELETE:
        return "␡"
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape: a byte that was not UTF-8  # noqa: PLR2004 - as PEP 383 has it
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004 - the escapes of Python's repr


def cut_middle(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8: head and tail stay, the middle goes, and the number of bytes cut stands there."""
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= limit:
        return text
    half = max(0, limit - 40) // 2  # 40: the notice
    head, tail = raw[:half].decode("utf-8", "ignore"), raw[len(raw) - half :].decode("utf-8", "ignore")
    return f"{head}\n[… {len(raw) - 2 * half} bytes cut …]\n{tail}"


def one_line(text: str, limit: int = 2_000) -> str:
    """A visible, bounded single line: for attributes, headings and table cells."""
    short = cut_middle(text, 2 * limit)  # first, because a message may have megabytes
    return " ".join(cut_middle(visible(short), limit).split())


def log_excerpt(file: Path, evidence: tuple[tuple[int, int], ...], *, limit: int, tail: bool = True) -> str:
    """What of a server's log tells the story: lines around the first evidence, then the last ones; empty without a log.

    `evidence` has first and last line, counted from 1; `limit` is in bytes. Costs no more than reading up to the
    evidence, and nothing but a seek where there is none.
    """
    if not file.is_file():
        return ""
    with file.open("rb") as log:
        shown, after = _window(log, evidence[0], limit // 2) if evidence else ("", 0)
        last = _tail(log, after, limit - len(shown.encode()) - 80) if tail else ""  # 80: the captions
    parts = (
        f"{file.name}, around the cause:\n{shown}" if shown else "",
        f"{file.name}, last lines:\n{last}" if last else "",
    )
    return cut_middle("\n\n".join(part for part in parts if part), limit)


def _window(log: BinaryIO, span: tuple[int, int], limit: int) -> tuple[str, int]:
    """The lines around a span, and the offset after them; ("", 0) where the log does not reach that far.

    A second a gigabyte in front of the span.
    """
    first, last = span[0] - LINES_BEFORE, span[1] + LINES_AFTER
    kept: list[str] = []
    after = 0
    number = 1
    while number <= last and (raw := log.readline(PIECE_BYTES)):
        if number >= first:
            kept.append(_line(raw))
            after = log.tell()
        number += raw.endswith(b"\n")
    return cut_middle("\n".join(kept), limit), after


def _tail(log: BinaryIO, start: int, limit: int) -> str:
    """The last whole lines within `limit` bytes, none of them before the offset `start`."""
    size = log.seek(0, 2)
    begin = max(start, size - limit)
    log.seek(begin)
    lines = log.read().split(b"\n")
    if begin > start and len(lines) > 1:
        del lines[0]  # most likely only the end of a line
    return cut_middle("\n".join(_line(raw) for raw in lines).rstrip("\n"), max(0, limit))


def _line(raw: bytes) -> str:
    text = visible(raw.rstrip(b"\r\n").decode("utf-8", "surrogateescape"))
    return " ".join(cut_middle(text, LINE_BYTES).split("\n"))
