"""Are the parts of a chat answer apart? Content, reasoning and tool calls, whole and as a stream.

A server's parsers take apart what the model wrote in a format of its own. One that does not fit the model, or the
release, lets structural markers (`</think>`, `<tool_call>`) through into the text. So each question (chat_questions.py)
is asked plain and streamed at temperature 0, and the parts are judged alone and against each other; the prompt that the
server made of the messages is read back, where the server says it, for markup that a template escaped.

With `dummy-weights: true` the same is asked, and judged by form alone: answered, nothing escaped, streams as plain.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from harness.checks import chat_judgement
from harness.checks.base import CheckContext, CheckResult, Params
from harness.checks.chat_faults import Asked, ChatParams
from harness.checks.chat_judgement import NAME
from harness.checks.chat_questions import ECHO_QUESTION, SCHEMA_QUESTION, TOOL_QUESTION, Question
from harness.client.answers import BadAnswer

if TYPE_CHECKING:
    from harness.client.server_client import ServerClient


class Chat:
    name = NAME
    params: type[Params] = ChatParams

    def prepare(self, params: ChatParams, *, model: str, corpora: Path) -> None:
        """Nothing: it needs no file."""

    def run(self, context: CheckContext) -> CheckResult:
        params: ChatParams = context.params
        asked = _ask(context.client, _questions(params), params.max_tokens)
        return chat_judgement.judge(params, asked)


def _questions(params: ChatParams) -> tuple[Question, ...]:
    wanted = ((ECHO_QUESTION, True), (TOOL_QUESTION, params.tools), (SCHEMA_QUESTION, params.json_schema))
    return tuple(question for question, on in wanted if on)


def _ask(client: ServerClient, questions: tuple[Question, ...], max_tokens: int) -> list[Asked]:
    """All questions at once, each plain and streamed."""
    calls = [
        partial(ask, question.messages, max_tokens=max_tokens, return_token_ids=True, **question.extra)
        for question in questions
        for ask in (client.chat, client.stream_chat)
    ]
    answers = client.together(calls)
    return [
        Asked(
            question=question,
            plain=plain,
            streamed=streamed,
            prompt=_text(client, plain.prompt),
            raw=_text(client, plain.tokens),
        )
        for question, plain, streamed in zip(questions, answers[::2], answers[1::2], strict=True)
    ]


def _text(client: ServerClient, tokens: tuple[int, ...] | None) -> str | None:
    """What tokens say; None: the server gave no tokens, or has no way to ask."""
    try:
        return client.detokenize(tokens) if tokens else None
    except BadAnswer as answer:
        if answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
            return None
        raise
