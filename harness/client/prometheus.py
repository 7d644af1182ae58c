"""Prometheus' text format, as far as servers print it: `name{label="value"} 1.5`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?", re.ASCII)
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    labels: Mapping[str, str]
    value: float


Metrics = Mapping[str, tuple[Sample, ...]]
"""Samples by name, as printed: counters with their `_total`, histograms as `_bucket`, `_sum` and `_count`."""


def parse(text: str) -> Metrics:
    """Every sample of an exposition; comments and lines of another shape are passed over."""
    found: dict[str, list[Sample]] = {}
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line.strip())
        if match and (value := _number(match[3])) is not None:
            found.setdefault(match[1], []).append(Sample(labels=_labels(match[2] or ""), value=value))
    return {name: tuple(samples) for name, samples in found.items()}


def total(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Sum of a metric over all its samples that have these labels; None where there is none."""
    values = [s.value for s in metrics.get(name, ()) if _has(s, labels.items())]
    return sum(values) if values else None


def label(metrics: Metrics, name: str, word: str) -> str | None:
    """Value of a label, of the first sample of a metric that has it."""
    return next((s.labels[word] for s in metrics.get(name, ()) if word in s.labels), None)


def _has(sample: Sample, labels: Iterable[tuple[str, str]]) -> bool:
    return all(sample.labels.get(name) == value for name, value in labels)


def _labels(text: str) -> dict[str, str]:
    return {name: re.sub(r'\\[\\"n]', lambda m: _ESCAPES[m[0]], value) for name, value in _LABEL.findall(text)}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
