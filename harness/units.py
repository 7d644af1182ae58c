"""Durations, sizes and names of variables as people write them in scenario files: `4h`, `1h30m`, `500ms`, `64MiB`.

A bare number is refused: nobody can see whether `30` means seconds or minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

# In thousandths of a second, so that sums are exact. Descending, as durations are written: `1h30m`, never `30m1h`.
_MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_OTHER_SPELLINGS = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
    "hr": "h", "hrs": "h", "hour": "h", "hours": "h", "day": "d", "days": "d", "msec": "ms", "milliseconds": "ms",
}  # fmt: skip
_BYTES = {
    "B": 1,
    **{f"{p}B": 1000**n for n, p in enumerate("kMGT", 1)},
    **{f"{p}iB": 1024**n for n, p in enumerate("KMGT", 1)},
}
_PART = re.compile(r"(\d+(?:\.\d+)?)([a-z]+)", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", re.ASCII)
LONGEST = 30 * 86_400.0
"""Seconds. A longer budget is a slip of the pen, not a plan."""

DURATION_PATTERN = r"^(\d+(\.\d+)?(ms|d|h|m|s))+$"
"""For editors; `parse_duration` is stricter."""


ENV_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
EnvName = Annotated[str, Field(pattern=ENV_PATTERN)]
"""Name of a variable of a process's environment."""


class UnitError(ValueError):
    """One sentence: what is wrong with a duration or a size, and how to write it."""


def parse_duration(text: object) -> float:
    """Seconds in `4h`, `30m`, `1h30m`, `2.5s`, `500ms`: above zero and at most 30 days.

    Raises:
        UnitError: not a duration, a bare number, or an impossible one (`0s`, `1h90m`, `30m1h`, `400d`).
    """
    if not isinstance(text, str):
        raise UnitError(_not_text(text, "a duration", units=("s", "m")))
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        raise UnitError(f'"{text}" has no unit: write {text}s or {text}m')
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UnitError(f'"{text}" is not a duration such as 30s, 5m or 1h30m')
    seconds = sum(_milliseconds(text, parts, index) for index in range(len(parts))) / 1000
    if seconds <= 0:
        raise UnitError(f'"{text}" is no time at all')
    if seconds > LONGEST:
        raise UnitError(f'"{text}" is longer than 30 days')
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest form that `parse_duration` reads back, to the millisecond: 5400.0 is `1h30m`."""
    rest, parts = round(seconds * 1000), []
    for unit, size in _MILLISECONDS.items():
        count, rest = divmod(rest, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def parse_size(text: object) -> int:
    """Bytes in `64MiB`, `1.5GiB`, `2GB`, `512B`.

    Raises:
        UnitError: not a size, a bare number, an unknown unit, or not a whole number of bytes.
    """
    if not isinstance(text, str):
        raise UnitError(_not_text(text, "a size", units=("MiB", "GiB")))
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        raise UnitError(f'"{text}" has no unit: write {text}MiB or {text}GiB')
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UnitError(f'"{text}" is not a size such as 512B, 64MiB or 1.5GiB')
    number, unit = match.groups()
    if unit not in _BYTES:
        raise UnitError(f'"{text}": "{unit}" is not a unit of size{_size_hint(unit)}')
    amount = float(number) * _BYTES[unit]
    if amount != int(amount) or not amount:
        raise UnitError(f'"{text}" is not a whole number of bytes above zero')
    return int(amount)


def _milliseconds(text: str, parts: list[tuple[str, str]], index: int) -> float:
    number, unit = parts[index]
    if unit not in _MILLISECONDS:
        known = _OTHER_SPELLINGS.get(unit)
        hint = f": write {number}{known}" if known else "; units are d, h, m, s and ms"
        raise UnitError(f'"{text}": "{unit}" is not a unit of time{hint}')
    if "." in number and index < len(parts) - 1:
        raise UnitError(f'"{text}": only the last part may have a fraction')
    amount = float(number) * _MILLISECONDS[unit]
    if index:
        larger = parts[index - 1][1]
        if _MILLISECONDS[larger] <= _MILLISECONDS[unit]:
            raise UnitError(f'"{text}": units go from large to small, each once')
        if amount >= _MILLISECONDS[larger]:
            raise UnitError(f'"{text}": {number}{unit} is 1{larger} or more')
    return amount


def _not_text(value: object, what: str, *, units: tuple[str, str]) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        names = {bool: "true or false", dict: "a mapping", list: "a list"}
        return f"{what} is text such as 30{units[0]}, not {names.get(type(value), 'nothing')}"
    return f"{value} has no unit: write {value}{units[0]} or {value}{units[1]}"


def _size_hint(unit: str) -> str:
    near = [known for known in _BYTES if known.lower() in {unit.lower(), unit.lower() + "b", unit.lower() + "ib"}]
    return (
        f": write {' or '.join(near)}" if near else "; units are B, KiB, MiB, GiB, TiB (1024) and kB, MB, GB, TB (1000)"
    )


def _duration(value: Any) -> float:
    try:
        return parse_duration(value)
    except UnitError as error:
        raise PydanticCustomError("harness", "{text}", {"text": str(error)}) from None


Duration = Annotated[
    float,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "examples": ["30s", "5m", "1h30m", "500ms"]}),
]
"""A field of a pydantic model that is written as `1h30m` and read as seconds."""


def _per_node_class(value: Any) -> Any:
    return value if isinstance(value, dict) else {"default": value}


DurationPerNodeClass = Annotated[
    dict[str, Duration],
    BeforeValidator(_per_node_class),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": DURATION_PATTERN},
                {"type": "object", "additionalProperties": {"type": "string", "pattern": DURATION_PATTERN}},
            ],
            "examples": ["60s", {"default": "60s", "h200": "20s"}],
        }
    ),
]
"""`60s`, or `{default: 60s, h200: 20s}`; read as seconds by node class, the plain form under `default`.

`node_class.of_class` finds the limit: that of `h200` is for `h200-nvl` too, where that has none of its own.
"""


def class_slips(classes: Iterable[str]) -> Iterator[tuple[str | None, str]]:
    """What looks like a slip in the keys of a `DurationPerNodeClass`: the key (None: all of it) and a sentence."""
    given = tuple(classes)
    for name in given:
        if name != name.lower():
            yield name, f"no class of node is called `{name}`, they are in lower case: write `{name.lower()}`"
    if not given:
        yield None, "limits nothing: give `default`"
    elif "default" not in given:
        yield None, "limits nothing on other classes of node: give `default` too"
