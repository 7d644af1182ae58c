"""What the chat check asks: three questions, one for each thing that a server's parsers have to take apart. Pure.

None asks for JSON in words: a sensible model then answers the last one in prose unless the server holds it to the
schema. All of a question's markup is one piece, so that it is found again, as it is or escaped, wherever it went.

The tiny chat model is over-fitted to these very words: after a change of any of them, train it again
(`scenarios/models/tiny_chat/train.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

Expects = Literal["echo", "tool", "schema"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    expects: Expects
    text: str
    markup: str = ""
    """The part of the text that must stay as it is."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request."""

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...]:
        return ({"role": "user", "content": self.text},)


TOOL = "search_archive"
ARGUMENT = "query"
_FUNCTION = {
    "name": TOOL,
    "description": "Find documents.",
    "parameters": {
        "type": "object",
        "properties": {ARGUMENT: {"type": "string"}},
        "required": [ARGUMENT],
        "additionalProperties": False,
    },
}

SCHEMA_TYPES: Mapping[str, type] = MappingProxyType({"capital": str, "inhabitants": int})
_SCHEMA = {
    "type": "object",
    "properties": {"capital": {"type": "string"}, "inhabitants": {"type": "integer"}},
    "required": list(SCHEMA_TYPES),
    "additionalProperties": False,
}

_LINE = '<b>Smith & Sons</b> "1 < 2"'
_NAME = '"Smith & Sons" <1912>'

ECHO_QUESTION = Question(expects="echo", text=f"Repeat this line, and write nothing else: {_LINE}", markup=_LINE)
TOOL_QUESTION = Question(
    expects="tool",
    text=f"Search the archive for {_NAME}.",
    markup=_NAME,
    extra={"tools": [{"type": "function", "function": _FUNCTION}], "tool_choice": "auto"},
)
SCHEMA_QUESTION = Question(
    expects="schema",
    text="What is the capital of France, and how many people live in it?",
    extra={"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": _SCHEMA}}},
)
