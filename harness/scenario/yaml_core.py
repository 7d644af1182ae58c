"""YAML 1.2's core schema: what an unquoted word means. `yes`, `off` and `12:30` are text, `1e-5` is a number."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_LONGEST_NUMBER: Final = 40
"""Digits. Longer numbers are hashes or ids that forgot their quotes."""

Scalar = str | int | float | bool | None


def _number(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise ValueError(f'{text} is too large for a number; if it is text, quote it: "{text}"')
    return value


def _integer(base: int) -> Callable[[str], int]:
    def read_integer(text: str) -> int:
        if len(text) > _LONGEST_NUMBER:
            raise ValueError(f"{text[:12]}… has {len(text)} digits; if it is text, quote it")
        return int(text if base == 10 else text[2:], base)  # noqa: PLR2004 - ten is ten

    return read_integer


def _not_finite(text: str) -> float:
    raise ValueError(f'{text} is no number that a scenario can use; if it is text, quote it: "{text}"')


# YAML 1.2, section 10.3.2, in its order. What matches no row is text.
_CORE: tuple[tuple[re.Pattern[str], Callable[[str], Scalar]], ...] = (
    (re.compile(r"null|Null|NULL|~|"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    (re.compile(r"[-+]?[0-9]+"), _integer(10)),
    (re.compile(r"0o[0-7]+"), _integer(8)),
    (re.compile(r"0x[0-9a-fA-F]+"), _integer(16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), _number),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), _not_finite),
)
_MAY_BE_TYPED = frozenset("0123456789+-.~nNtTfF")


def core_scalar(text: str) -> Scalar:
    """What a plain (unquoted) scalar means in YAML 1.2's core schema.

    Raises:
        ValueError: a number without a finite value, or longer than 40 digits.
    """
    if text and text[0] not in _MAY_BE_TYPED:
        return text
    return next((make(text) for pattern, make in _CORE if pattern.fullmatch(text)), text)
