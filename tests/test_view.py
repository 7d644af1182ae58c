"""What a person sees: plain lines in a pipe, a live view in a terminal."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import runs
from standin_build import make_build, make_scenario

from harness import view
from harness.events import Event

ROOT = Path(__file__).parents[1]


def test_plain_lines_carry_the_time_and_the_second():
    out = io.StringIO()
    with view.choose(out) as show:
        show(Event(kind="step", text="environment"))
        show(Event(kind="phase", text="weights", t=12.5))
        show(Event(kind="check", text="warmup: fine", ok=True))
        show(Event(kind="verdict", text="FAIL x", ok=False))
    plain = [re.sub(r"^\d\d:\d\d:\d\d", "HH:MM:SS", line) for line in out.getvalue().splitlines()]
    assert plain == [
        "HH:MM:SS step: environment",
        "HH:MM:SS    12.50s phase: weights",
        "HH:MM:SS check ok: warmup: fine",
        "HH:MM:SS verdict FAILED: FAIL x",
    ]


def test_a_terminal_gets_a_live_view(tmp_path):
    """Through a real pseudo-terminal: rows with seconds, a spinner, the last log line, and the closing words."""
    steps = [["say", "loading the first shard"], ["sleep", 1.0], ["err", "ValueError: shard 2 is short"], ["exit", 1]]
    file, build = make_scenario(tmp_path, steps), make_build(tmp_path)
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "harness", "run", str(file), "--build", str(build), "--out", str(tmp_path / "out")]
    with subprocess.Popen(words, cwd=ROOT, stdout=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"}) as run:
        os.close(theirs)
        seen = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", b"".join(iter(lambda: read(ours), b"")).decode())
        assert run.wait(30) == 1
    assert "loading the first shard" in seen
    assert any(frame in seen for frame in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
    assert re.search(r"· spawn +1\.\d s", seen)
    assert re.search(r"✗ .*FAIL stand-in: ", seen)
    assert "report       " in seen


def read(fd):
    try:
        return os.read(fd, 65536)
    except OSError:  # how a pseudo-terminal says that the other side is closed
        return b""


def test_closing_words(tmp_path):
    words = view.closing(runs.failed_at_startup(), tmp_path).splitlines()
    assert words[0].startswith("FAIL tiny_lm[mini]: ")
    assert words[1] == f"  signature    {runs.ATTRIBUTE_ERROR.id} {runs.LAYER_NAMES}"
    assert words[-1] == "  again        harness run scenarios/tiny_lm.yaml --build release:0.32.0"
    assert list(view.tally([runs.passed(), runs.passed(verdict="FAIL")])) == ["tiny_lm: 1/2 did not pass"]
