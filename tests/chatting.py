"""Chat answers as vLLM sends them, whole or streamed, made of what a model would have written."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from answering import Reply, Route

from harness.checks.chat_questions import ARGUMENT, ECHO_QUESTION, TOOL, TOOL_QUESTION

PATH = "/v1/chat/completions"
ARGUMENTS = json.dumps({ARGUMENT: TOOL_QUESTION.markup})
JSON = '{"capital": "Paris", "inhabitants": 2100000}'
GOOD: Mapping[str, Mapping[str, Any]] = {
    "echo": {"content": ECHO_QUESTION.markup},
    "tool": {"content": None, "tool_calls": [{"name": TOOL, "arguments": ARGUMENTS}]},
    "schema": {"content": JSON},
}


def expects(body: Mapping[str, Any]) -> str:
    return "tool" if "tools" in body else "schema" if "response_format" in body else "echo"


def answer(parts: Mapping[str, Any], *, name: str = "reasoning", **more: Any) -> Reply:
    """Fields of `parts`: content, reasoning, tool_calls, finish_reason, tokens; `prompt` in `more` is its text."""
    calls = [{"id": "x", "type": "function", "function": dict(call)} for call in parts.get("tool_calls") or ()]
    message = {"role": "assistant", "content": parts.get("content"), name: parts.get("reasoning"), "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": finish(parts), "token_ids": parts.get("tokens")}
    prompt = list(more["prompt"].encode()) if more.get("prompt") else None
    return Reply({"choices": [choice], "prompt_token_ids": prompt, "usage": {"completion_tokens": 7}})


def finish(parts: Mapping[str, Any]) -> str | None:
    return parts.get("finish_reason", "tool_calls" if parts.get("tool_calls") else "stop")


def events(parts: Mapping[str, Any], *, name: str = "reasoning", **more: Any) -> list[dict[str, Any]]:
    """The same in pieces of three characters, tool calls between each other as parallel ones may be."""
    prompt = list(more["prompt"].encode()) if more.get("prompt") else None
    pieces: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    pieces += [{name: piece} for piece in _threes(parts.get("reasoning"))]
    pieces += [{"content": piece} for piece in _threes(parts.get("content"))]
    calls = parts.get("tool_calls") or ()
    for at, call in enumerate(calls):
        pieces += [{"tool_calls": [{"index": at, "id": "x", "function": {"name": call["name"]}}]}]
    for step in range(max((len(call["arguments"]) for call in calls), default=0)):
        rest = [(at, call["arguments"][step : step + 1]) for at, call in enumerate(calls)]
        pieces += [{"tool_calls": [{"index": at, "function": {"arguments": text}}]} for at, text in rest if text]
    made = [{"choices": [{"index": 0, "delta": piece, "finish_reason": None}]} for piece in pieces]
    made[0]["prompt_token_ids"] = prompt
    if parts.get("tokens") is not None:
        made[1:1] = [{"choices": [{"index": 0, "delta": {}, "token_ids": [t]}]} for t in parts["tokens"]]
    made += [{"choices": [{"index": 0, "delta": {}, "finish_reason": finish(parts)}]}]
    return [*made, {"choices": [], "usage": {"completion_tokens": 7}}]


def stream(made: Sequence[Mapping[str, Any]], *, done: bool = True) -> Reply:
    chunks = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in made]
    return Reply(chunks=[*chunks, *([b"data: [DONE]\n\n"] if done else [])])


def _threes(text: str | None) -> list[str]:
    return [(text or "")[at : at + 3] for at in range(0, len(text or ""), 3)]


def model(
    change: Callable[[str, bool], Mapping[str, Any] | None] = lambda *_: None,
    *,
    prompt: Callable[[str], str | None] = lambda text: f"<|im_start|>user\n{text}<|im_end|>",
) -> Route:
    """Answers every question of the chat check rightly, but for the parts that `change(question, streamed)` gives."""

    def route(body: Mapping[str, Any]) -> Reply:
        question, streamed = expects(body), bool(body.get("stream"))
        right = {"reasoning": "\nI think.\n", **GOOD[question], "tokens": [1, 2, 3]}
        parts = {**right, **(change(question, streamed) or {})}
        made = {"prompt": prompt(body["messages"][0]["content"])}
        return stream(events(parts, **made)) if streamed else answer(parts, **made)

    return route


def detokenize(body: Mapping[str, Any]) -> Reply:
    return Reply({"prompt": bytes(body["tokens"]).decode()})
