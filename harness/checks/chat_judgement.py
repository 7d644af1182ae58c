"""The result of chat answers and of what is wrong with them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.checks import chat_faults
from harness.checks.base import CheckResult, Measurement
from harness.checks.chat_faults import FAULTS, SHOWN, Asked, ChatParams, Fault, compared

NAME = "chat"
ANSWERS = 2
"""Of each question: plain and streamed."""
COUNTED = {
    "leaked": ("leaked_content", "leaked_reasoning", "leaked_arguments"),
    "escaped": ("escaped_prompt", "escaped_answer"),
    "cut": ("cut",),
    "streams_different": ("stream",),
    "broken_json": ("not_json", "other_json"),
    "other_faults": ("lost_prompt", "other_tool", "no_echo", "finish"),
}
"""Measurements that may not be above zero: faults of these kinds."""


def judge(params: ChatParams, asked: Sequence[Asked]) -> CheckResult:
    """The result of all questions and answers."""
    faults = chat_faults.find(params, asked)
    unshown = _unshown(asked)
    first = faults[0] if faults else None
    return CheckResult(
        name=NAME,
        outcome="fail" if faults else "not_tested" if unshown else "pass",
        message=_failed(first.kind, faults, asked) if first else unshown or _passed(params, asked),
        measurements=_measurements(params, asked, faults),
        request=first.request if first else None,
        detail=_detail(asked, faults),
    )


def _unshown(asked: Sequence[Asked]) -> str | None:
    """Why it is not known whether markup stays text; None: it is, from a prompt or from the line that came back."""
    if any(each.prompt and each.question.markup for each in asked):
        return None
    if any(each.question.expects == "echo" and each.question.markup in each.plain.content for each in asked):
        return None
    return "not shown that markup stays text: the server does not say its prompts, and the model repeats nothing"


def _failed(kind: str, faults: Sequence[Fault], asked: Sequence[Asked]) -> str:
    where = {(fault.question, fault.how) for fault in faults if fault.kind == kind}
    of = f"{len(asked)} prompts" if kind.endswith("_prompt") else f"{len(asked) * ANSWERS} answers"
    return f"{FAULTS[kind]}: {len(where)} of {of}"


def _passed(params: ChatParams, asked: Sequence[Asked]) -> str:
    answers = [chat for each in asked for _, chat in each.answers]
    reasoned = sum(bool(chat.reasoning.strip()) for chat in answers)
    called = sum(bool(chat.tool_calls) for chat in answers)
    same = sum(compared(params, each) for each in asked)
    prompts = sum(bool(each.prompt) for each in asked)
    judged = "form alone judged (dummy weights), " if params.dummy_weights else "no marker leaked, "
    return (
        f"{len(answers)} answers: {reasoned} with reasoning, {called} with a tool call, {judged}"
        f"markup is text in {prompts} of {len(asked)} prompts, {same} of {len(asked)} streams compared and equal"
    )


def _measurements(params: ChatParams, asked: Sequence[Asked], faults: Sequence[Fault]) -> tuple[Measurement, ...]:
    answers = [chat for each in asked for _, chat in each.answers]
    reasoned = sum(bool(chat.reasoning.strip()) for chat in answers)
    called = sum(bool(chat.tool_calls) for chat in answers)
    judged = not params.dummy_weights
    return (
        Measurement(name="answers", value=len(answers), unit="answers"),
        _least("with_reasoning", reasoned, len(answers) if params.reasoning and judged else None),
        _least("with_tool_call", called, ANSWERS if params.tools and judged else None),
        Measurement(name="prompts_shown", value=sum(bool(each.prompt) for each in asked), unit="prompts"),
        Measurement(name="streams_compared", value=sum(compared(params, each) for each in asked), unit="streams"),
        *(_none(name, sum(fault.kind in kinds for fault in faults)) for name, kinds in COUNTED.items()),
        Measurement(name="slowest", value=round(max(chat.seconds for chat in answers), 3), unit="s"),
    )


def _least(name: str, count: int, limit: int | None) -> Measurement:
    ok = limit is None or count >= limit
    return Measurement(name=name, value=count, unit="answers", limit=limit, sense="min", ok=ok)


def _none(name: str, count: int) -> Measurement:
    return Measurement(name=name, value=count, unit="faults", limit=0, ok=not count)


def _detail(asked: Sequence[Asked], faults: Sequence[Fault]) -> dict[str, Any]:
    return {
        "faults": [
            {
                "fault": FAULTS[f.kind],
                "question": f.question,
                "answer": f.how,
                "request": f.request,
                "shown": f.text,
            }
            for f in faults
        ],
        "raw": {each.question.expects: each.raw[:SHOWN] if each.raw else None for each in asked},
        "same_tokens": {e.question.expects: e.plain.tokens == e.streamed.tokens for e in asked},
    }
