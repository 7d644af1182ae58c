"""The Markdown of an annotation, read back by a Markdown parser: whatever a server wrote stays text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import runs
from markdown_it import MarkdownIt
from runs import EVERY_KIND

from harness import report
from harness.record import KnownFailure
from harness.report import markdown, summary

MARKDOWN = MarkdownIt("commonmark").enable("table")


def rendered(run, tmp_path: Path, *, log: bytes | None = b"") -> str:
    folder = runs.write(run, tmp_path, log=log)
    report.render(folder)
    return (folder / "summary.md").read_text(encoding="utf-8")


def inline(text: str):
    return [child for token in MARKDOWN.parse(text) for child in token.children or ()]


def cells(text: str) -> list[list[str]]:
    """Every row of every table, as the parser sees it."""
    rows: list[list[str]] = []
    inside = False
    for token in MARKDOWN.parse(text):
        if token.type == "tr_open":
            rows.append([])
        inside = token.type in ("td_open", "th_open") or (inside and token.type not in ("td_close", "th_close"))
        if inside and token.type == "inline":
            rows[-1].append("".join(child.content for child in token.children))
    return rows


def code_blocks(text: str) -> list[str]:
    return [token.content for token in MARKDOWN.parse(text) if token.type == "fence"]


def plain(text: str) -> str:
    return "".join(child.content for child in inline(text))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_no_text_of_a_server_becomes_markup(kind, tmp_path):
    text = rendered(kind(), tmp_path, log=runs.crash_log() + b"````\n</details>\n" + b"`" * 50 + b"\n")
    blocks = [token.content for token in MARKDOWN.parse(text) if token.type == "html_block"]
    assert blocks in ([], ["<details><summary>server.log</summary>\n", "</details>\n"])
    kinds = {child.type for child in inline(text)}
    assert kinds <= {"text", "text_special", "code_inline", "strong_open", "strong_close", "softbreak"}
    assert {len(row) for row in cells(text)} <= {4, 6}  # a pipe would have made more cells
    assert len(text.encode()) < 1 << 20


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_the_last_block_is_the_command_that_reproduces_the_run(kind, tmp_path):
    text = rendered(kind(), tmp_path, log=runs.crash_log())
    assert code_blocks(text)[-1].startswith("harness run ")
    assert text.endswith("`\n")


def test_pass_is_short(tmp_path):
    text = rendered(runs.passed(), tmp_path, log=runs.crash_log())
    assert text.splitlines()[0] == "### PASS · tiny_lm · ready after 20.1 s, 2 checks passed"
    assert len(text.splitlines()) < 22, "a line for each check, one for each limit"
    assert "server.log" not in text
    assert ["✓", "perplexity", "perplexity", "3.681", "", "≤ 4.5"] in cells(text)
    assert "spawn#1 2.5 s · config#1 6.5 s · weights#1 0.2 s · capture#1 4.8 s · capture#2 3.5 s\n" in text
    assert "Stopped in 0.4 s; no process left." in text
    assert code_blocks(text) == ["harness run scenarios/tiny_lm.yaml --build release:0.32.0\n"]


def test_failure_at_startup(tmp_path):
    text = rendered(runs.failed_at_startup(), tmp_path, log=runs.crash_log())
    heading = MARKDOWN.parse(text)[1]
    assert "".join(c.content for c in heading.children) == f"FAIL · tiny_lm[mini] · {runs.LAYER_NAMES}"
    facts = (
        "signature `3f2a9c0d1e4b` · kind `python_exception` · process `Worker_TP0` · ranks `2/2` · phase `capture` · "
    )
    assert facts in text
    assert ["capture#1", "9.2", "", "not completed"] in cells(text)
    assert ["config#1", "2.5", "6.5", "✓"] in cells(text)
    frames, log, _ = code_blocks(text)
    assert frames.startswith("_get_recoverssm_context (vllm/model_executor/layers/kda.py:88)\n")
    assert "␛[31mESC␛[0m ␀ \\xff ]]> ``` </details> | <b>" in log
    assert log.endswith("RuntimeError: Engine core initialization failed. See root cause above.\n")
    assert "build `release:0.32.0` · version `0.32.0` · node class `cpu`" in text


def test_failure_in_a_check_shows_value_and_limit(tmp_path):
    text = rendered(runs.failed_in_check(), tmp_path)
    assert ["✗", "perplexity", "perplexity", "6.24", "", "≤ 4.5"] in cells(text)
    assert ["✓", "warmup", "first request", "2.1", "s", "≤ 60"] in cells(text)
    assert ["—", "prefix_cache", "not run: check perplexity: 6.24", "", "", ""] in cells(text)


def test_error_says_what_to_do(tmp_path):
    text = rendered(runs.unmet(), tmp_path)
    assert text.startswith("### ERROR · tiny_lm · kimi-k3-dspark needs 8 GPUs of 130 GiB, this node has none\n")
    assert "What to do: try `--variant mini` on one GPU, or `tiny_lm`" in plain(text)


def test_processes_left_behind_are_shown(tmp_path):
    dirty = replace(runs.CLEAN, survivors=("4711 VLLM::Worker_TP0",), left=("GPU 0 holds 2300 MiB more",))
    text = rendered(runs.passed(verdict="ERROR", blame="node", reason="was not taken down", teardown=dirty), tmp_path)
    assert "- still alive: `4711 VLLM::Worker_TP0`" in text
    assert "- left: `GPU 0 holds 2300 MiB more`" in text
    assert "no process left" not in text


def test_interrupted_and_killed(tmp_path):
    assert rendered(runs.interrupted(), tmp_path).startswith("### ERROR · tiny_lm · interrupted: SIGTERM\n")
    text = rendered(runs.killed_node(), tmp_path)
    assert text.startswith("### ERROR · tiny_lm · interrupted: the record ends in capture\\#1\n")


def test_several_runs_bad_ones_first(tmp_path):
    made = [runs.passed(), runs.failed_at_startup(), replace(runs.unmet(), id="unmet"), runs.hostile(id="hostile")]
    folders = [runs.write(run, tmp_path) for run in made]
    text = report.render_many(folders)
    assert text.startswith("### 4 runs: 2 FAIL, 1 ERROR, 1 PASS\n")
    rows = cells(text)
    assert [row[0] for row in rows[1:]] == ["FAIL", "FAIL", "ERROR", "PASS"]
    assert rows[1][1:4] == ["tiny_lm[mini]", "release:0.32.0", ""]
    assert rows[1][5] == "3f2a9c0d1e4b"
    assert {len(row) for row in rows} == {6}
    assert rows[4][1:4] == ["tiny_lm", "release:0.32.0", "20.1"]


def test_very_many_runs_fit_an_annotation_and_say_what_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "MAX_ROWS", 2)
    folders = [runs.write(runs.passed(id=f"r{n}"), tmp_path) for n in range(5)]
    assert "… and 3 more runs, none of them worse than the last shown." in report.render_many(folders)


def test_annotation_too_long_keeps_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(markdown, "MAX_BYTES", 3_000)
    text = rendered(runs.failed_at_startup(), tmp_path, log=runs.crash_log())
    assert len(text.encode()) <= 3_100
    assert "too long for an annotation" in text
    assert code_blocks(text)[-1] == "harness run scenarios/tiny_lm.yaml --build release:0.32.0\n"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("object has no attribute 'layer_names'", "object has no attribute 'layer_names'"),
        ("a|b <c> *d* `e` [f](g) _h_", "a\\|b &lt;c\\> \\*d\\* \\`e\\` \\[f\\](g) \\_h\\_"),
        ("two\nlines", "two lines"),
    ],
)
def test_escape(given, written):
    assert markdown.escape(given) == written
    assert plain(written) == " ".join(given.split())


@pytest.mark.parametrize("given", ["a", "`", "``a`", "a``b", "x|y", "<b>&amp;\\n"])
def test_code_spans_give_the_text_back(given):
    assert cells(f"| h |\n| --- |\n| {markdown.code(given)} |") == [["h"], [given]]


def test_known_failures_say_so(tmp_path):
    known = KnownFailure(refs=("vllm#54636",), title=runs.LAYER_NAMES, fixed="0.30.0")
    text = rendered(runs.failed_at_startup(known=known), tmp_path)
    assert text.startswith("### FAIL · ")
    assert "**known: vllm\\#54636, fixed in 0.30.0**" in text
    expected = runs.failed_at_startup(known=known, expected=True, id="expected", under=("a, removes x",))
    text = rendered(expected, tmp_path)
    assert text.startswith("### KNOWN · ")
    assert "**under a, removes x**" in text
    folders = [runs.write(run, tmp_path) for run in (runs.passed(), expected, runs.unmet(id="unmet"))]
    many = report.render_many(folders)
    assert many.startswith("### 3 runs: 1 ERROR, 1 KNOWN, 1 PASS\n")
    assert "known: vllm\\#54636, fixed in 0.30.0; under a, removes x" in many
