"""Every sample in tests/logs is triaged and timed, and must say what its header expects (see tests/logs/README.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import timeline, triage
from harness.runtimes import RUNTIMES

LOGS = Path(__file__).parent / "logs"
SAMPLES = sorted(LOGS.glob("*/*.log"))
PREFIX = "# expect: "
FIELDS = ("id", "kind", "exception", "title", "process", "phase", "ranks")


def lines_of(sample: Path) -> list[str]:
    """Split at line feeds alone: a carriage return is part of a line."""
    return sample.read_bytes().decode("utf-8", "replace").split("\n")


def said(sample: Path) -> list[str]:
    """The header that today's rules would write."""
    lines = lines_of(sample)
    read = triage.read(lines)
    marks = RUNTIMES.get(sample.parent.name, RUNTIMES["vllm"]).marks
    return [
        f"{PREFIX}{key}: {value}"
        for key, value in (*_signature(read), ("phases", _phases(timeline.read(marks, lines))))
    ]


def _signature(read: triage.Triage) -> list[tuple[str, str]]:
    found = read.signature
    if found is None:
        return [("signature", "none")]
    function = found.frames[0].function if found.frames else "-"
    return [*((name, str(getattr(found, name) or "-")) for name in FIELDS), ("function", function)]


def _phases(read: timeline.Timeline) -> str:
    return " ".join(
        f"{p.label}=open" if p.end is None else f"{p.label}{'=' if p.completed else '~'}{p.end - p.start:.2f}"
        for p in read.phases
    )


def test_there_are_samples() -> None:
    assert len(SAMPLES) >= 30


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_sample(sample: Path, request: pytest.FixtureRequest) -> None:
    lines = lines_of(sample)
    expected = [line for line in lines if line.startswith(PREFIX)]
    now = said(sample)
    if request.config.getoption("--update") and expected != now:
        body = [line for line in lines if not line.startswith(PREFIX)]
        sample.write_bytes("\n".join(now + body).encode())
        return
    assert now == expected


def test_healthy_samples_have_no_signature() -> None:
    healthy = [s for s in SAMPLES if s.stem.endswith(("healthy", "prefixcache-starting", "noise-of-a-stop"))]
    assert len(healthy) == 24
    assert [s.stem for s in healthy if triage.read(lines_of(s)).signature] == []


def test_one_bug_has_one_id_on_every_release() -> None:
    names = (
        "missing-folder",
        "truncated-weights",
        "unsupported-architecture",
        "port-in-use",
        "unknown-flag",
        "kv-cache-too-small",
    )
    ids = {name: {release: _id(f"{release}-cpu-{name}") for release in ("0.29.0", "0.32.0")} for name in names}
    assert [name for name, by_release in ids.items() if len(set(by_release.values())) > 1] == []
    assert len({by_release["0.32.0"] for by_release in ids.values()}) == len(names)


def test_one_bug_has_one_id_on_one_and_two_ranks() -> None:
    assert _id("0.29.0-cuda-tp1-replayssm-noprefixcache") == _id("0.29.0-cuda-tp2-replayssm-noprefixcache")
    assert _id("0.32.0-cpu-truncated-weights") == _id("0.32.0-cpu-tp2-truncated-weights")


def _id(stem: str) -> str:
    signature = triage.read(lines_of(LOGS / "vllm" / f"{stem}.log")).signature
    assert signature is not None
    return signature.id
