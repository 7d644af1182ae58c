"""What can be wrong with chat answers, and where it is. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from harness.checks import chat_markup, chat_streams
from harness.checks.base import MOST_TOKENS, Params
from harness.checks.chat_questions import ARGUMENT, SCHEMA_TYPES, TOOL, Question
from harness.client.answers import Chat

SHOWN = 400
"""Characters of a text that the detail repeats."""

FAULTS = {
    "escaped_prompt": "markup of the user's text is escaped in the prompt",
    "lost_prompt": "the user's text is not in the prompt",
    "leaked_content": "structural markers leaked into the content",
    "leaked_reasoning": "structural markers leaked into the reasoning",
    "leaked_arguments": "structural markers leaked into the arguments of a tool call",
    "escaped_answer": "markup comes back escaped",
    "cut": "cut off by max-tokens",
    "no_reasoning": "no reasoning apart from the content",
    "no_tool_call": "no tool call",
    "other_tool": "a tool call that does not fit the tool",
    "no_echo": "the line to repeat is not in the content",
    "not_json": "the answer to a JSON schema is not JSON",
    "other_json": "the answer to a JSON schema does not follow it",
    "finish": "a finish reason that does not fit the answer",
    "stream": "the stream has other parts than the plain answer of the same tokens",
}
"""The first one found is the sentence: causes stand before what follows from them."""


class ChatParams(Params):
    reasoning: bool = True
    """Every answer must have reasoning apart from its content."""
    tools: bool = True
    """A question that needs a tool is asked, and must be answered with a call of it."""
    json_schema: bool = True
    """A question is asked with a JSON schema, without a word about JSON; the answer must parse and follow it."""
    dummy_weights: bool = False
    """The weights are random: the same is asked, but what needs a sensible model is not judged."""
    markers: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    """Further structural markers, literally, that may not be in any part of an answer."""
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 1024
    """Tokens of one answer with its reasoning."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A question with its answers. Texts are None where the server does not say them."""

    question: Question
    plain: Chat
    streamed: Chat
    prompt: str | None
    """What the server made of the messages."""
    raw: str | None
    """What the model wrote, before any parser."""

    @property
    def answers(self) -> tuple[tuple[str, Chat], ...]:
        return (("plain", self.plain), ("streamed", self.streamed))


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    kind: str
    question: str
    how: str
    request: int
    text: str
    """What shows it; it may move from night to night."""


def find(params: ChatParams, asked: Sequence[Asked]) -> list[Fault]:
    """Every fault of all questions and answers, in the order of FAULTS."""
    found = [*_in_prompts(asked), *_in_answers(params, asked), *_between(params, asked)]
    return sorted(found, key=lambda fault: list(FAULTS).index(fault.kind))


def compared(params: ChatParams, each: Asked) -> bool:
    """Whether both answers must have the same parts: same tokens, and no random mixture of markers among them."""
    same = each.plain.tokens == each.streamed.tokens
    return same and not (params.dummy_weights and chat_markup.leaks(each.raw or each.plain.content))


def _in_prompts(asked: Sequence[Asked]) -> Iterator[Fault]:
    for each in asked:
        where = chat_markup.find(each.question.markup or each.question.text, each.prompt) if each.prompt else "whole"
        if where != "whole":
            kind = "escaped_prompt" if where == "escaped" else "lost_prompt"
            yield _fault(kind, each, "plain", each.plain, each.prompt or "")


def _in_answers(params: ChatParams, asked: Sequence[Asked]) -> Iterator[Fault]:
    for each in asked:
        for how, chat in each.answers:
            found = [*_escaped(each.question, chat), *_ended(chat, dummy=params.dummy_weights)]
            if not params.dummy_weights:  # random tokens are markers too
                found += [*_leaked(params, each.question, chat), *_expected(params, each.question, chat)]
            yield from (_fault(kind, each, how, chat, text) for kind, text in found)


def _between(params: ChatParams, asked: Sequence[Asked]) -> Iterator[Fault]:
    apart = chat_streams.lost if params.dummy_weights else chat_streams.difference
    for each in asked:
        if compared(params, each) and (part := apart(each.plain, each.streamed)):
            yield _fault("stream", each, "streamed", each.streamed, part)


def _fault(kind: str, each: Asked, how: str, chat: Chat, text: str) -> Fault:
    return Fault(kind=kind, question=each.question.expects, how=how, request=chat.request, text=text[:SHOWN])


Faults = Iterator[tuple[str, str]]


def _leaked(params: ChatParams, question: Question, chat: Chat) -> Faults:
    parts = (
        ("leaked_content", chat.content),
        ("leaked_reasoning", chat.reasoning),
        ("leaked_arguments", " ".join(call.arguments for call in chat.tool_calls)),
    )
    for kind, text in parts:
        if found := chat_markup.leaks(text, extra=params.markers, user=question.text):
            families = dict.fromkeys(found.values())
            yield kind, "; ".join(f"{' '.join(m for m in found if found[m] == f)} ({f})" for f in families)


def _escaped(question: Question, chat: Chat) -> Faults:
    values = (str(_arguments(call.arguments)) for call in chat.tool_calls)  # JSON itself may escape
    for text in (chat.content, *values):
        if found := chat_markup.escapes(text):
            yield "escaped_answer", " ".join(found)
    # A model may well think about entities: only the very text of the user counts.
    if question.markup and chat_markup.find(question.markup, chat.reasoning) == "escaped":
        yield "escaped_answer", chat.reasoning


def _ended(chat: Chat, *, dummy: bool) -> Faults:
    """Random weights end an answer by chance only."""
    if chat.finish_reason == "length":
        yield from () if dummy else [("cut", chat.content or chat.reasoning)]
    elif chat.finish_reason != ("tool_calls" if chat.tool_calls else "stop"):
        yield "finish", f"{chat.finish_reason} with {len(chat.tool_calls)} tool calls"


def _expected(params: ChatParams, question: Question, chat: Chat) -> Faults:
    if params.reasoning and not chat.reasoning.strip():
        yield "no_reasoning", chat.content
    judges: dict[str, Callable[[Question, Chat], Faults]] = {"echo": _echo, "tool": _tool, "schema": _schema}
    yield from judges[question.expects](question, chat)


def _echo(question: Question, chat: Chat) -> Faults:
    if question.markup not in chat.content:
        yield "no_echo", chat.content


def _tool(_: Question, chat: Chat) -> Faults:
    if not chat.tool_calls:
        yield "no_tool_call", chat.content
    for call in chat.tool_calls:
        given = _arguments(call.arguments)
        fits = isinstance(given, dict) and set(given) == {ARGUMENT} and isinstance(given[ARGUMENT], str)
        if call.name != TOOL or not fits:
            yield "other_tool", f"{call.name} {call.arguments}"


def _schema(_: Question, chat: Chat) -> Faults:
    given = _arguments(chat.content)
    if not isinstance(given, dict):
        yield "not_json", chat.content
    elif {name: type(value) for name, value in given.items()} != dict(SCHEMA_TYPES):
        yield "other_json", chat.content


def _arguments(text: str) -> Any:
    """The value of a JSON text, or the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text
