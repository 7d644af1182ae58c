"""Whether a stream, put together, has the parts of the plain answer. Pure."""

from __future__ import annotations

import json
import re

from harness.client.answers import Chat, ToolCall

_HELD = re.compile(r"[<\[{&`]\S{0,60}")
"""What may be the beginning of a marker: a parser holds it back in a stream until more comes, or nothing does."""


def difference(plain: Chat, streamed: Chat) -> str:
    """Name of the first part that differs, with both; empty: all are equal.

    White space around a part does not count: a parser may trim a whole answer and cannot trim a stream. An answer that
    was cut off may lack, as a stream, an end that could have become a marker, and its last tool call.
    """
    cut = plain.finish_reason == "length"
    if not _same(plain.content, streamed.content, cut=cut):
        return f"content: {plain.content!r} / {streamed.content!r}"
    if not _same(plain.reasoning, streamed.reasoning, cut=cut):
        return f"reasoning: {plain.reasoning!r} / {streamed.reasoning!r}"
    ours, theirs = [_call(c) for c in plain.tool_calls], [_call(c) for c in streamed.tool_calls]
    if ours != theirs and not cut:
        return f"tool calls: {ours!r} / {theirs!r}"
    if plain.finish_reason != streamed.finish_reason:
        return f"finish reason: {plain.finish_reason} / {streamed.finish_reason}"
    return ""


def lost(plain: Chat, streamed: Chat) -> str:
    """The same of an answer in no format at all, as random weights give it: a part of the text that only one has.

    A parser may call text reasoning as long as the end of it may still come, and content when it did not (kimi_k3 of
    0.30.0): then the parts differ, but nothing may be missing.
    """
    ours, theirs = (chat.reasoning + chat.content for chat in (plain, streamed))
    if not _same(ours, theirs, cut=plain.finish_reason == "length"):
        return f"text: {ours!r} / {theirs!r}"
    return ""


def _same(plain: str, streamed: str, *, cut: bool) -> bool:
    ours, theirs = plain.strip(), streamed.strip()
    if ours == theirs:
        return True
    return cut and ours.startswith(theirs) and _HELD.fullmatch(ours[len(theirs) :].strip()) is not None


def _call(call: ToolCall) -> tuple[str, object]:
    """A plain answer may be written anew from what was parsed: the values count, not the spaces between them."""
    try:
        return call.name, json.loads(call.arguments)
    except ValueError:
        return call.name, call.arguments
