"""What a chat answer is made of, whole or as a stream whose pieces are put together.

delta {"reasoning": "The user "}                                      ┐
delta {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}       ├─▶ Chat(reasoning, tool_calls, …)
delta {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}  ┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import clock
from harness.client.answers import Chat, ToolCall
from harness.client.exchange import Call

REASONING = ("reasoning", "reasoning_content")
"""What servers call it: vLLM 0.27.1 to 0.32.0 the first; the second is older, and SGLang's."""


@dataclass(slots=True)
class _Function:
    """One tool call as far as it has come."""

    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class _Parts:
    """An answer as far as it has come. A whole one is a stream of one piece."""

    content: str = ""
    reasoning: str = ""
    functions: dict[int, _Function] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    prompt: tuple[int, ...] | None = None
    tokens: tuple[int, ...] | None = None

    def add(self, answer: Mapping[str, Any], choice: Mapping[str, Any], piece: Mapping[str, Any]) -> None:
        """Raises KeyError, TypeError, ValueError or AttributeError where something has another shape."""
        self.content += _text(piece, "content")
        self.reasoning += next((text for name in REASONING if (text := _text(piece, name))), "")
        for at, call in enumerate(piece.get("tool_calls") or ()):
            function = self.functions.setdefault(int(call.get("index", at)), _Function())
            function.name += _text(call["function"], "name")
            function.arguments += _text(call["function"], "arguments")
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.prompt = _ids(answer.get("prompt_token_ids")) or self.prompt
        if (ids := _ids(choice.get("token_ids"))) is not None:
            self.tokens = (self.tokens or ()) + ids

    def chat(self, call: Call, begun: float) -> Chat:
        calls = (self.functions[index] for index in sorted(self.functions))
        return Chat(
            content=self.content,
            reasoning=self.reasoning,
            tool_calls=tuple(ToolCall(name=f.name, arguments=f.arguments) for f in calls),
            finish_reason=self.finish_reason,
            usage=self.usage,
            seconds=clock.now() - begun,
            request=call.number or 0,
            prompt=self.prompt,
            tokens=self.tokens,
        )


def whole(call: Call) -> Chat:
    """An answer in one piece. Raises as `Call.json`, and BadAnswer for parts of another shape."""
    begun, parts = clock.now(), _Parts()
    answer = call.json()
    _add(parts, call, answer, "message")
    parts.usage = answer.get("usage") or {}
    return parts.chat(call, begun)


def streamed(call: Call) -> Chat:
    """An answer in pieces. Raises as `Call.events`, and BadAnswer for parts of another shape, or for none."""
    begun, parts, pieces = clock.now(), _Parts(), 0
    for event in call.events():
        if event.get("choices"):
            pieces += 1
            _add(parts, call, event, "delta")
        parts.usage = event.get("usage") or parts.usage
    if not pieces:
        raise call.bad("streamed no token")
    return parts.chat(call, begun)


def _add(parts: _Parts, call: Call, answer: Mapping[str, Any], name: str) -> None:
    choice = call.first_choice(answer)
    try:
        parts.add(answer, choice, choice[name])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise call.bad(f"has a {name} of another shape ({error!r})") from error


def _text(piece: Mapping[str, Any], name: str) -> str:
    value = piece.get(name)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    return value or ""


def _ids(value: Sequence[Any] | None) -> tuple[int, ...] | None:
    return None if value is None else tuple(map(int, value))
