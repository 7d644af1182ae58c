"""Faults that were provoked one by one, so that their true causes are known: `# truth:` lines, written by hand.

No `--update` rewrites them. `says` must be in the title; several words between ` | ` are each as good.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
from test_log_samples import LOGS, lines_of

from harness import triage
from harness.signature import Signature

sys.path.insert(0, str(Path(__file__).parent / "provoke"))
from catalogue import FAULTS

PREFIX = "# truth: "
TRUE = [
    sample for sample in sorted(LOGS.glob("*/*.log")) if any(line.startswith(PREFIX) for line in lines_of(sample)[:20])
]
RAISED = {fault.name for fault in FAULTS if fault.patch is not None}
SAME_CAUSE = (
    ("0.32.0-cpu-kv-space-more-than-memory", "0.32.0-cpu-kv-space-300"),
    ("0.32.0-cpu-hub-401", "0.32.0-cpu-hub-401-again"),
    ("0.32.0-cpu-compiler-fails", "0.32.0-cpu-compiler-missing"),
    ("0.32.0-cpu-model-type-missing", "0.32.0-cpu-config-empty"),
    ("0.32.0-cpu-truncated-weights", "0.32.0-cpu-tp2-truncated-weights"),
    ("0.32.0-cpu-no-weights", "0.32.0-cpu-index-names-missing-shard"),
    ("0.29.0-cpu-kv-cache-too-small", "0.32.0-cpu-kv-cache-too-small"),
    ("0.29.0-cpu-unsupported-architecture", "0.32.0-cpu-unsupported-architecture"),
)
"""One cause, other numbers, paths, ports or lists in the text."""

ON_THREE = (
    "length-no-number",
    "tp-divides-no-heads",
    "rope-type-unknown",
    "hub-401",
    "more-layers-than-weights",
    "raise-many-lines",
    "worker-class-missing",
    "reasoning-parser-unknown",
)
UNTOLD = {
    "0.32.0-cpu-bus-worker-starting",  # not a word that tells a SIGBUS from terminate-in-library's abort
    "0.32.0-cpu-tokenizer-path-missing",  # missing-folder's sentence from the same function; only the path differs
}
"""Causes that their log does not tell from another's."""


def truths(sample: Path) -> dict[str, str]:
    rows = (line.removeprefix(PREFIX).split(": ", 1) for line in lines_of(sample) if line.startswith(PREFIX))
    return dict(rows)  # type: ignore[arg-type]


def wrong(sample: Path) -> list[str]:
    """What triage says that is not so."""
    truth, found = truths(sample), triage.read(lines_of(sample)).signature
    if truth.get("signature") == "none":
        return [] if found is None else [f"no failure, but {found.title}"]
    if found is None:
        return ["no failure found"]
    return [
        f"{key}: {value!r} is not in {said!r}"
        for key, value, said in (
            ("exception", truth["exception"], found.exception or "-"),
            ("kind", truth["kind"], found.kind),
            ("says", truth["says"], found.title),
        )
        if not any(word == said or (key == "says" and word in said) for word in value.split(" | "))
    ]


@pytest.mark.parametrize("sample", TRUE, ids=lambda p: p.stem)
def test_the_cause_that_was_provoked(sample: Path) -> None:
    assert wrong(sample) == []


def signature(stem: str) -> Signature:
    found = triage.read(lines_of(LOGS / "vllm" / f"{stem}.log")).signature
    assert found is not None
    return found


@pytest.fixture(scope="module")
def causes() -> dict[str, Signature]:
    """The signature of every provoked failure, of several with one cause only the first."""
    again = {stem for _, *others in SAME_CAUSE for stem in others} | UNTOLD
    stems = [s.stem for s in TRUE if s.stem not in again and truths(s).get("signature") != "none"]
    return {stem: signature(stem) for stem in stems}


@pytest.mark.parametrize("pair", SAME_CAUSE, ids=lambda p: p[0])
def test_one_cause_in_other_words_is_one_bug(pair: tuple[str, str]) -> None:
    one, other = (LOGS / "vllm" / f"{stem}.log" for stem in pair)
    text = [[line for line in lines_of(sample) if "rror" in line] for sample in (one, other)]
    assert text[0] != text[1], "else nothing is shown"
    assert signature(pair[0]).id == signature(pair[1]).id


@pytest.mark.parametrize("name", ON_THREE)
def test_one_bug_on_three_releases_is_one_bug(name: str) -> None:
    assert len({signature(f"{release}-cpu-{name}").id for release in ("0.28.0", "0.30.0", "0.32.0")}) == 1


def test_different_bugs_are_different(causes: dict[str, Signature]) -> None:
    by_id: dict[str, list[str]] = {}
    for stem, found in causes.items():
        by_id.setdefault(found.id, []).append(stem)
    assert [stems for stems in by_id.values() if len(stems) > 1] == []


def test_the_corpus_is_what_it_claims(causes: dict[str, Signature]) -> None:
    assert len(causes) >= 60
    assert len([stem for stem in causes if stem.split("-cpu-")[-1] in RAISED]) <= 20
    alike = [
        (one, other)
        for (one, a), (other, b) in itertools.combinations(causes.items(), 2)
        if a.exception is not None and a.exception == b.exception and a.frames[:1] and b.frames[:1]
    ]
    assert len(alike) >= 10, "pairs that share a class and differ in cause"


def test_every_fault_has_its_sample() -> None:
    samples = {s.stem.split("-cpu-")[-1] for s in LOGS.glob("vllm/*-cpu-*.log")}
    assert [fault.name for fault in FAULTS if fault.name not in samples] == []
