"""Every row of triage's tables has the log that proves it, and a row that nothing proves is not kept."""

from __future__ import annotations

import re

import pytest
from test_log_samples import SAMPLES, lines_of

from harness import carriers, loglines, triage
from harness.triage import identify, kinds, linerules, messengers, wording
from harness.triage.answer import Triage as Read
from harness.triage.choosing import RULES


@pytest.fixture(scope="module")
def readings() -> list[Read]:
    return [triage.read(lines_of(sample)) for sample in SAMPLES]


@pytest.fixture(scope="module")
def spoken(readings: list[Read]) -> set[str]:
    """Names of the rules that spoke for some line of some sample."""
    return {row.rule for read in readings for row in read.explained}


def test_messengers(spoken: set[str]) -> None:
    assert sorted({rule.name for rule in messengers.MESSENGERS} - spoken) == []


def test_lines(spoken: set[str]) -> None:
    rows = {rule.name for rule in linerules.LINES if rule.role != "shutdown"}
    assert sorted(rows - spoken) == []


@pytest.mark.parametrize("rule", linerules.LINES, ids=lambda r: r.name)
def test_a_literal_is_in_what_its_row_matches(rule: linerules.LineRule) -> None:
    """Else the sieve would lose the line."""
    matched = [line for sample in SAMPLES for line in _texts(sample) if rule.pattern.search(line)]
    assert matched
    assert [line for line in matched if rule.literal not in line] == []


def _texts(sample) -> list[str]:
    return [line.text for line in loglines.read(lines_of(sample))]


def test_choices(readings: list[Read]) -> None:
    """Each way to a signature is taken by some sample; how a leader ended, and whose request it was, a run knows."""
    assert {name for name, _ in RULES} - {read.chosen for read in readings} == {"exit", "request"}


def test_kinds(readings: list[Read]) -> None:
    used = set()
    for found in (read.signature for read in readings):
        if found is None:
            continue
        own = next((f for f in found.frames if f.file.split("/")[0] in wording.OWN_PACKAGES), None)
        where = f"{own.file}:{own.function}" if own else ""
        said = identify.headline_of(found.message)
        used |= {
            index
            for index, row in enumerate(kinds.KINDS)
            if row.exception.search(found.exception or "") and row.message.search(said) and row.where.search(where)
        }
    assert [kinds.KINDS[index] for index in range(len(kinds.KINDS)) if index not in used] == []


@pytest.mark.parametrize("row", [*wording.NORMALISE, *wording.SHAPES], ids=lambda r: r[0].pattern[:30])
def test_normalisation(row: tuple[re.Pattern[str], object], readings: list[Read]) -> None:
    texts = [
        message
        for read in readings
        for message in (*(found.message for found in (read.signature,) if found), *(e.text for e in read.explained))
    ]
    assert any(row[0].search(text) for text in texts)


def test_headlines(readings: list[Read]) -> None:
    messages = [read.signature.message for read in readings if read.signature]
    for first, _ in wording.HEADLINES:
        assert any(first.match(message.split("\n")[0]) for message in messages), first.pattern


def test_records() -> None:
    texts = [text for sample in SAMPLES for text in map(_bare, lines_of(sample))]
    for rule in loglines.RECORDS:
        assert any(rule.pattern.match(text) for text in texts), rule.name


def _bare(line: str) -> str:
    """A line without what its carriers and its tag put in front of it."""
    recorded = loglines.RECORDED.fullmatch(line)
    return loglines.tagged(carriers.strip(carriers.ANSI.sub("", recorded[3] if recorded else line))[1])[1]
