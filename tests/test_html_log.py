"""A log inside a page: every line of it where it fits, and a sentence that says what is not there where it does not."""

from __future__ import annotations

import base64
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report.html import excerpts, log
from harness.report.text import visible


def lines(packed: log.Packed) -> list[str | tuple[int, int]]:
    """As the page's script reads them; a gap is (first, last)."""
    found: list[str | tuple[int, int]] = []
    number = 1
    for chunk in packed.chunks:
        assert chunk.first == number
        number += chunk.lines
        if not chunk.data:
            found.append((chunk.first, number - 1))
            continue
        text = zlib.decompress(base64.b64decode(chunk.data)).decode("utf-8").split("\n")
        assert len(text) == chunk.lines
        found += text
    assert packed.lines == number - 1
    return found


@pytest.fixture
def small(monkeypatch):
    """Blocks of a kilobyte, and a log is large from 16 of them."""
    monkeypatch.setattr(log, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(log, "WHOLE_BYTES", 16 << 10)
    monkeypatch.setattr(log, "END_BYTES", 4 << 10)
    monkeypatch.setattr(log, "AROUND_LINES", 5)


def write(tmp_path: Path, text: bytes) -> Path:
    file = tmp_path / "server.log"
    file.write_bytes(text)
    return file


@given(st.lists(st.binary(max_size=60).filter(lambda line: b"\n" not in line), min_size=1, max_size=80), st.booleans())
def test_every_line_is_there_and_visible(tmp_path_factory, written, ended):
    raw = b"\n".join(written) + b"\n" * ended
    if not raw:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "BLOCK_BYTES", 64)
        packed = log.pack(write(tmp_path_factory.mktemp("log"), raw))
    assert packed is not None
    expected = visible(raw.removesuffix(b"\n").decode("utf-8", "surrogateescape")).split("\n")
    # A carriage return before a line feed that ends a block is as invisible as any other.
    assert lines(packed) == expected
    assert (packed.cut, packed.size) == ("", len(raw))


def test_no_log_and_an_empty_one(tmp_path):
    assert log.pack(tmp_path / "server.log") is None
    assert log.pack(write(tmp_path, b"")) is None


def test_of_a_large_log_head_evidence_and_tail_are_kept_and_the_rest_is_named(tmp_path, small):
    raw = b"".join(b"line %05d %s\n" % (n, b"x" * 40) for n in range(1, 5001))
    packed = log.pack(write(tmp_path, raw), [(2500, 2503)])
    assert packed is not None
    found = lines(packed)
    texts = [each for each in found if isinstance(each, str)]
    gaps = [each for each in found if not isinstance(each, str)]
    numbers = [int(text.split()[1]) for text in texts]
    assert numbers[0] == 1
    assert numbers[-1] == 5000
    assert set(range(2495, 2509)) <= set(numbers)
    assert len(gaps) == 2
    assert sum(last - first + 1 for first, last in gaps) + len(texts) == packed.lines == 5000
    said = ", ".join(f"{first:,} to {last:,}" for first, last in gaps)
    assert packed.cut == f"Not in this page, for the log has 0 MB: lines {said}."


def test_evidence_everywhere_keeps_only_so_many_blocks(tmp_path, small):
    raw = b"".join(b"line %05d %s\n" % (n, b"x" * 40) for n in range(1, 5001))
    packed = log.pack(write(tmp_path, raw), [(n, n) for n in range(1, 5001, 10)])
    assert packed is not None
    whole = [chunk for chunk in packed.chunks if chunk.data]
    assert len(whole) <= 2 * (4 + 1) + log.MOST_AROUND


def test_what_does_not_compress_is_cut_further(tmp_path, small):
    noise = random.Random(4)
    raw = b"".join(base64.b64encode(noise.randbytes(60)) + b"\n" for _ in range(400))
    room = 9_000
    packed = log.pack(write(tmp_path, raw), room=room)
    assert packed is not None
    assert 0 < sum(len(chunk.data) for chunk in packed.chunks) <= room
    assert packed.gaps
    assert packed.lines == 400


def test_no_room_at_all_is_said_too(tmp_path, small):
    packed = log.pack(write(tmp_path, b"a\nb\nc\n"), room=1)
    assert packed is not None
    assert lines(packed) == [(1, 3)]
    assert packed.cut == "Not in this page, for the log has 0 MB: lines 1 to 3."


def test_a_line_longer_than_a_block_says_how_much_of_it_is_missing(tmp_path, small):
    packed = log.pack(write(tmp_path, b"before\n" + b"y" * 9_000 + b"\nafter\n"))
    assert packed is not None
    before, long, after = lines(packed)
    assert (before, after) == ("before", "after")
    assert isinstance(long, str)
    kept = long.index(" [")
    assert long == "y" * kept + f" [… {9_001 - kept:,} bytes of this line are not in this page …]"
    assert packed.cut == "Lines longer than 1 MiB are cut, and say so: 1."


def test_an_excerpt_is_without_what_carried_its_lines(tmp_path):
    head = b"(Worker_TP0 pid=7) ERROR 11-30 21:56:37 [a.py:1] "
    raw = b"one\n" + b"".join(head + line + b"\n" for line in (b"Traceback:", b"  \x1b[31mfile", b"E: x")) + b"five\n"
    (found,) = excerpts.read(write(tmp_path, raw), [(2, 4)])
    assert (found.first, found.last, found.process) == (2, 4, "Worker_TP0")
    assert found.text.split("\n")[0] == "Traceback:"
    assert found.text.split("\n")[-1] == "E: x"
    assert "\x1b" not in found.text


def test_of_a_long_excerpt_both_ends_are_kept(tmp_path):
    raw = b"".join(b"line %d\n" % n for n in range(1, 3001))
    (found,) = excerpts.read(write(tmp_path, raw), [(1, 3000)])
    assert found.text.startswith("line 1\nline 2\n")
    assert found.text.endswith("\nline 3000")
    assert "\n[… lines 202 to 2799 …]\n" in found.text


def test_spans_beyond_the_log_and_logs_that_are_gone(tmp_path):
    assert excerpts.read(tmp_path / "server.log", [(1, 2)]) == ()
    assert excerpts.read(write(tmp_path, b"a\n"), [(5, 9)]) == ()
    assert excerpts.read(write(tmp_path, b"a\n"), []) == ()
