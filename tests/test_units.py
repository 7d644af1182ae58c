from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from harness.units import (
    LONGEST,
    Duration,
    DurationPerNodeClass,
    UnitError,
    format_duration,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4h", 14400.0),
        ("30m", 1800.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("90m", 5400.0),
        ("2.5s", 2.5),
        ("1m0.25s", 60.25),
        ("1d1h1m1s1ms", 90061.001),
        ("30d", LONGEST),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("30", '"30" has no unit: write 30s or 30m'),
        (30, "30 has no unit: write 30s or 30m"),
        (1.5, "1.5 has no unit: write 1.5s or 1.5m"),
        (True, "a duration is text such as 30s, not true or false"),
        (None, "a duration is text such as 30s, not nothing"),
        ({}, "a duration is text such as 30s, not a mapping"),
        ("", '"" is not a duration such as 30s, 5m or 1h30m'),
        ("-5s", '"-5s" is not a duration such as 30s, 5m or 1h30m'),
        ("5 m", '"5 m" is not a duration such as 30s, 5m or 1h30m'),
        ("5M", '"5M" is not a duration such as 30s, 5m or 1h30m'),
        ("\u0665s", '"\u0665s" is not a duration such as 30s, 5m or 1h30m'),
        ("5min", '"5min": "min" is not a unit of time: write 5m'),
        ("5x", '"5x": "x" is not a unit of time; units are d, h, m, s and ms'),
        ("1.5h30m", '"1.5h30m": only the last part may have a fraction'),
        ("30m1h", '"30m1h": units go from large to small, each once'),
        ("1m1m", '"1m1m": units go from large to small, each once'),
        ("1h90m", '"1h90m": 90m is 1h or more'),
        ("0s", '"0s" is no time at all'),
        ("31d", '"31d" is longer than 30 days'),
    ],
)
def test_impossible_durations(value, message):
    with pytest.raises(UnitError) as caught:
        parse_duration(value)
    assert str(caught.value) == message


@given(st.integers(min_value=1, max_value=int(LONGEST * 1000)))
def test_a_formatted_duration_reads_back(milliseconds):
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@given(st.text(max_size=12) | st.from_regex(r"\d{1,3}[a-z]{1,3}\d{1,3}[a-z]{1,2}", fullmatch=True))
def test_any_text_is_a_duration_or_a_unit_error(text):
    with suppress(UnitError):
        assert 0 < parse_duration(text) <= LONGEST


def test_formatted_durations_are_short():
    assert [format_duration(s) for s in (5400.0, 0.5, 90061.001, 0.0)] == ["1h30m", "500ms", "1d1h1m1s1ms", "0s"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MiB", 64 << 20), ("1.5GiB", 3 << 29), ("2GB", 2_000_000_000), ("512B", 512), ("4 KiB", 4096), ("1kB", 1000)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("64", '"64" has no unit: write 64MiB or 64GiB'),
        (64, "64 has no unit: write 64MiB or 64GiB"),
        (None, "a size is text such as 30MiB, not nothing"),
        ("64M", '"64M": "M" is not a unit of size: write MB or MiB'),
        ("64mib", '"64mib": "mib" is not a unit of size: write MiB'),
        ("64X", '"64X": "X" is not a unit of size; units are B, KiB, MiB, GiB, TiB (1024) and kB, MB, GB, TB (1000)'),
        ("0.3B", '"0.3B" is not a whole number of bytes above zero'),
        ("0MiB", '"0MiB" is not a whole number of bytes above zero'),
        ("MiB", '"MiB" is not a size such as 512B, 64MiB or 1.5GiB'),
    ],
)
def test_impossible_sizes(value, message):
    with pytest.raises(UnitError) as caught:
        parse_size(value)
    assert str(caught.value) == message


def test_fields_of_a_model():
    class Model(BaseModel):
        budget: Duration
        limits: DurationPerNodeClass

    assert Model(budget="1m", limits="2s").model_dump() == {"budget": 60.0, "limits": {"default": 2.0}}
    assert Model(budget="1m", limits={"default": "60s", "h200": "20s"}).limits == {"default": 60.0, "h200": 20.0}
    properties = Model.model_json_schema()["properties"]
    assert properties["budget"]["type"] == "string"
    assert len(properties["limits"]["anyOf"]) == 2
