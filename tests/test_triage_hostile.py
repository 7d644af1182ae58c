"""Logs are untrusted: whatever they hold, triage answers, and nothing in it reaches a terminal or report as markup."""

from __future__ import annotations

import io
import json
import string
import xml.etree.ElementTree as ET

import pytest
import runs
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from test_log_samples import SAMPLES

from harness import loglines, report, triage
from harness.triage import sieve, tracebacks

PIECES = (
    '  File "/a/vllm/b.py", line ' + "9" * 5000 + ", in f", "Failed core proc(s): {'EngineCore': -" + "9" * 5000,
    "INFO world_size=" + "9" * 5000 + " rank=0 backend=gloo", "Signal " + "9" * 5000 + " (SIGX) received by PID",
    "Traceback (most recent call last):", '  File "/a/vllm/b.py", line 3, in f', '  File "<x>", line 1', "    raise",
    "ValueError: x", "KeyError", "torch.OutOfMemoryError: CUDA out of memory.", "Exception: ",
    "Worker failed with error '",
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
    "  + Exception Group Traceback (most recent call last):", "  +-+------------ 1 ------------", "    | KeyError: 1",
    "╭───── Traceback (most recent call last) ──╮", "│ /a/b.py:3 in f │", "╰──╯",
    "Fatal Python error: Segmentation fault", "Current thread 0x0 (most recent call first):", '  File "x", line 1 in f',
    "!!!!!!! Segfault encountered !!!!!!!", "terminate called after throwing an instance of 'X'", "  what():  y",
    "(Worker_TP0 pid=1) ", "(RayWorkerWrapper pid=1, ip=192.0.2.1) ", "[rank0]: ", "ERROR 11-30 21:56:37 [a.py:1] ",
    "[2026-11-30 21:56:37 TP0] ", "2026-11-30T21:56:37Z ", "x  | ", "3: ", '{"log": "', '"}', "\r",
    "\n", "\n", "\n", "\0",
    "\x1b[31m", "\x1b]0;title\x07", "\x9b1m", "\u202e", "\ud800", "100%|####|", " [repeated 3x across cluster]",
    "vllm: error: x", "Failed core proc(s): {'EngineCore': -9}", "Worker proc VllmWorker-0 died unexpectedly",
    "non-default args: {'model': 1}", "Application startup complete", "<script>&\"']]>", "a" * 300, "🚀",
)  # fmt: skip


def check(log: bytes) -> None:
    """What holds for every log."""
    read = triage.read(io.BytesIO(log))
    row = json.loads(json.dumps(triage.to_json(read)))
    lines = log.count(b"\n") + 1
    assert all(1 <= first <= last <= lines for first, last in row["evidence"])
    for text in (triage.to_text(read, name="log"), triage.to_reasons(read)):
        assert all(c.isprintable() or c == "\n" for c in text), "no control sequence reaches a terminal"
    if read.signature is not None:
        assert len(read.signature.id) == 12
        assert set(read.signature.id) <= set(string.hexdigits.lower())
        assert 0 < read.signature.confidence <= 1
        assert "\n" not in read.signature.title
        assert len(read.signature.title) <= 600
        assert len(read.signature.message) <= 4000


@given(st.binary(max_size=3000))
@settings(max_examples=150, deadline=None)
def test_any_bytes(log: bytes) -> None:
    check(log)


@given(st.lists(st.sampled_from(PIECES), max_size=60), st.sampled_from(["", "\n"]))
@settings(max_examples=400, deadline=None)
def test_pieces_of_logs_in_any_order(pieces: list[str], between: str) -> None:
    check(between.join(pieces).encode("utf-8", "surrogatepass"))


@given(st.sampled_from(SAMPLES), st.integers(0, 10_000), st.integers(0, 10_000), st.binary(max_size=40))
@settings(max_examples=150, deadline=None)
def test_samples_cut_anywhere_and_damaged(sample, start: int, stop: int, noise: bytes) -> None:
    log = sample.read_bytes()
    start, stop = sorted((start * len(log) // 10_000, stop * len(log) // 10_000))
    middle = (start + stop) // 2
    check(log[start:middle] + noise + log[middle:stop])


@pytest.mark.parametrize(
    "log",
    [b"", b"\n", b"\0" * 5000, b"\r" * 5000, b"\xff\xfe", tracebacks.HEAD.encode(), b"(" * 50_000, b"[" * 50_000],
    ids=["empty", "newline", "nul", "cr", "bom", "head", "parentheses", "brackets"],
)  # fmt: skip
def test_nothing_to_see(log: bytes) -> None:
    check(log)
    assert triage.read(io.BytesIO(log)).signature is None


def test_memory_is_bounded_by_what_is_kept() -> None:
    """Counted, not timed: a million different tracebacks leave a few hundred."""
    collector = tracebacks.Collector()
    lines = [
        "Traceback (most recent call last):",
        '  File "/a/vllm/b.py", line 3, in f',
        "ValueError: " + "x" * 30_000,
        *["  y" * 10_000] * 100,
    ]
    for line in loglines.read(lines * 1000):
        collector.add(line, None)
    kept = collector.found
    assert len(kept) == tracebacks.MOST
    assert collector.dropped == 1000 - tracebacks.MOST
    assert max(len(block.text) for block in kept) <= 20_000 + tracebacks.MOST_CHARACTERS + 20_000


def test_one_endless_line_is_read_in_pieces() -> None:
    found = list(sieve.Sieve(io.BytesIO(b"x" * (3 * sieve.BLOCK) + b" ERROR\nERROR two\n"), (b"ERROR",)))
    assert [number for number, _ in found][-1] == 2
    assert max(len(text) for _, text in found) <= 2 * sieve.BLOCK


@given(
    st.lists(st.sampled_from(["plain", "has ERROR in it", "", "Traceback (most", "x" * 100]), max_size=300),
    st.integers(0, 50),
)
@settings(max_examples=100, deadline=None)
def test_the_sieve_keeps_every_hit_and_its_number(lines: list[str], busy: int) -> None:
    one = sieve.Sieve(io.BytesIO("\n".join(lines).encode()), (b"ERROR", b"Traceback"))
    one.busy = busy
    got = dict(one)
    wanted = {n: line for n, line in enumerate(lines, 1) if n <= busy or "ERROR" in line or "Traceback" in line}
    trailing = {n: line for n, line in wanted.items() if n < len(lines) or line}
    assert trailing.items() <= got.items()
    assert all(lines[n - 1] == text for n, text in got.items())


@pytest.mark.parametrize("stem", ["0.32.0-cpu-raise-markup", "0.32.0-cpu-raise-group"])
def test_what_a_real_server_said_is_text_in_every_report(stem: str, tmp_path) -> None:
    """From the log of a server that raised markup and control characters to the files that others read."""
    sample = next(s for s in SAMPLES if s.stem == stem)
    read = triage.read(io.BytesIO(sample.read_bytes()))
    run = runs.failed_at_startup(signature=read.signature, wrappers=read.wrappers, evidence=read.evidence, reason="x")
    folder = runs.write(run, tmp_path, log=sample.read_bytes())
    report.render(folder)
    cases = ET.fromstring((folder / "junit.xml").read_bytes()).iter("testcase")
    messages = [bad.get("message") for case in cases for bad in case.iter("failure")]
    assert messages
    assert all(message and message.isprintable() for message in messages)
    html = MarkdownIt("commonmark").render((folder / "summary.md").read_text(encoding="utf-8"))
    assert "<script" not in html
    assert "\x1b" not in html
