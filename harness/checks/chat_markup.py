"""Text that should not be where it is: structural markers of a model's own format, markup that was escaped. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Where = Literal["whole", "escaped", "absent"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Markers that models of one format write around the parts of an answer; a parser takes them out."""

    name: str
    pattern: re.Pattern[str]
    parsers: tuple[str, ...]
    """Names of the parsers (of reasoning or tool calls) in vLLM 0.32.0 that know them; empty: no parser does."""

    @property
    def words(self) -> str:
        return f"{self.name}: parsers {', '.join(self.parsers)}" if self.parsers else self.name


def _family(name: str, pattern: str, *parsers: str) -> Family:
    return Family(name=name, pattern=re.compile(pattern), parsers=parsers)


FAMILIES = (
    _family(
        "think", r"</?think(?::\w+)?>", "deepseek_r1", "deepseek_v3", "qwen3", "kimi_k2", "glm45", "minimax_m2", "olmo3"
    ),
    _family(
        "tool_call", r"</?tool_calls?(?::\w+)?>", "hermes", "qwen3_coder", "glm45", "granite4", "jamba", "hunyuan_a13b"
    ),
    _family("function", r"</?function\b[=\w ]*>|</?parameter\b[=\w ]*>", "qwen3_coder", "qwen3_xml", "step3p5"),
    _family("glm", r"</?arg_(?:key|value)>", "glm45", "glm47", "poolside_v1"),
    _family("kimi_k3", r"<\|(?:open|close|sep)\|>", "kimi_k3"),
    _family("kimi_k2", r"<\|tool_calls?_(?:section_|argument_)?(?:begin|end)\|>", "kimi_k2"),
    _family(
        "deepseek",
        r"<\uff5c[^\uff5c<>]{1,40}\uff5c>|</?\uff5cDSML\uff5c\w+>",
        "deepseek_v3",
        "deepseek_v31",
        "deepseek_v32",
        "step3",
    ),
    _family("harmony", r"<\|(?:start|end|channel|message|constrain|call|return)\|>", "openai_gptoss", "openai"),
    _family("llama", r"<\|python_(?:tag|start|end)\|>", "llama3_json", "llama4_pythonic"),
    _family("mistral", r"\[/?(?:TOOL_CALLS|THINK|ARGS|CALL_ID)\]", "mistral"),
    _family("seed", r"</?seed:\w+>", "seed_oss"),
    _family("minimax", r"</?(?:minimax:tool_call|mm:\w+|invoke\b[^<>]*)>", "minimax_m2", "minimax_m3"),
    _family("gemma", r"<\|?(?:channel|turn|tool_call|tool_response)\|?>", "gemma4"),
    _family("cohere", r"<\|(?:START|END)_[A-Z_]+\|>", "cohere_command3", "cohere_command4"),
    _family("k2_horizon", r"</?ifm\|\w+>", "k2_horizon"),
    _family("olmo", r"</?function_calls>", "olmo3"),
    _family("longcat", r"</?longcat_\w+>", "longcat"),
    _family("turns", r"<\|(?:im_start|im_end|im_sep|user|assistant|system|observation|eot_id|eom_id|endoftext)\|>"),
    _family("any other", r"<\|[A-Za-z_]\w*\|>"),
)
"""A row a format; a marker of several is said to be of the first."""

_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|#0*(?:34|38|39|60|62)|#[xX]0*(?:22|26|27|3[cCeE]));")
_UNICODE = re.compile(r"\\u(00(?:22|26|27|3[cCeE]))")


def leaks(text: str, *, extra: Sequence[str] = (), user: str = "") -> Mapping[str, str]:
    """Structural markers in a text, each with its family; none that the user's own text has.

    `extra` are further markers, literally.
    """
    own = dict(_markers(user, extra))
    found: dict[str, str] = {}
    for marker, family in _markers(text, extra):
        if marker not in own:
            found.setdefault(marker, family)
    return found


def _markers(text: str, extra: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from ((marker, "of the scenario") for marker in extra if marker in text)
    for family in FAMILIES:
        yield from ((found[0], family.words) for found in family.pattern.finditer(text))


def escapes(text: str) -> tuple[str, ...]:
    """The entities and escapes in a text that stand for one of `< > & " '`."""
    return tuple(dict.fromkeys(found[0] for p in (_ENTITY, _UNICODE) for found in p.finditer(text)))


def find(markup: str, text: str) -> Where:
    """How a piece of markup is in a text. White space does not count: some tokenizers do not give it back as it was."""
    if _squashed(markup) in _squashed(text):
        return "whole"
    plain = _UNICODE.sub(lambda found: chr(int(found[1], 16)), text)
    undone = (html.unescape(plain), html.unescape(html.unescape(plain)), plain.replace('\\"', '"'))
    return "escaped" if any(_squashed(markup) in _squashed(each) for each in undone) else "absent"


def _squashed(text: str) -> str:
    return "".join(text.split())
