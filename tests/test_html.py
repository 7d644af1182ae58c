"""The page of a run, read back by a strict parser: well formed, nobody's text becomes markup, every number is text."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import markup
import pages
import pytest
import runs
from runs import EVERY_KIND

from harness import record, report
from harness.record import KnownFailure
from harness.report import text as text_module
from harness.report.html import facts, plots, run_page, stacks
from harness.report.text import visible

SAMPLES = (pages.passed, pages.crashed, pages.hung, pages.regressed)
SEEN = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]*")


def test_nothing_odd_is_printable():
    """What `visible` passes over."""
    odd = [chr(code) for code in range(0x11_0000) if text_module._ODD.match(chr(code))]
    assert odd
    assert not any(each.isprintable() for each in odd)


def page_of(run, tmp_path, *, log: bytes | None = b""):
    folder = runs.write(run, tmp_path, log=log)
    return markup.read(run_page.render(record.load(folder), folder))


@pytest.fixture(params=SAMPLES, ids=lambda make: make.__name__)
def sample(request, tmp_path):
    folder = pages.put(request.param(), tmp_path)
    return record.load(folder), run_page.render(record.load(folder), folder)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_no_text_becomes_markup(kind, tmp_path):
    log = runs.crash_log() + b"</script></details><script>alert(1)</script>\n<!-- \x00\xff\xed\xa0\x80\xe2\x80\xae\n"
    folder = runs.write(kind(), tmp_path, log=log)
    (folder / "stacks").mkdir()
    (folder / "stacks" / "</summary><b>.txt".replace("/", "")).write_bytes(log)
    text = run_page.render(record.load(folder), folder)
    assert markup.problems(markup.read(text)) == []
    assert SEEN.fullmatch(text)
    assert len(text) < 4 << 20, "of a message of five megabytes only so much is shown, and the rest said to be cut"


def test_the_policy_names_the_one_script_and_lets_nothing_be_fetched(sample):
    page = markup.read(sample[1])
    (policy,) = [each.attrs["content"] for each in page.all("meta") if "http-equiv" in each.attrs]
    (script,) = [each for each in page.all("script") if "type" not in each.attrs]
    digest = base64.b64encode(hashlib.sha256(script.raw.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org)", script.raw + page.one("style").raw)


def test_a_page_is_the_same_bytes_again(tmp_path):
    folder = pages.put(pages.regressed(), tmp_path)
    report.render(folder)
    first = (folder / "report.html").read_bytes()
    report.render(folder)
    assert (folder / "report.html").read_bytes() == first


def test_every_number_of_a_picture_is_text_beside_it(sample):
    run, text = sample
    page = markup.read(text)
    drawn = [each for plot in page.all("svg", cls="plot") for each in plot.all("text")]
    cells = {cell.text for table in page.all("table") for cell in table.all()}
    numbers = [number for each in drawn for number in re.findall(r"([\d.]+) s", each.text)]
    assert len(numbers) >= len(facts.bars(facts.phases(run.launched, ())))
    assert [number for number in numbers if number not in cells] == []


def test_a_picture_has_no_colour_of_its_own_and_one_sign_beside_each(sample):
    page = markup.read(sample[1])
    for plot in page.all("svg", cls="plot"):
        colours = {each.attrs.get("style") or "" for each in plot.all()}
        assert not any("#" in re.sub(r"url\(#[^)]*\)", "", colour) for colour in colours)
        assert plot.attrs["role"] == "img"
    for badge in page.all("span", cls="badge"):
        sign, word = badge.text.split(" ", 1)
        assert len(sign) == 1
        assert word


def test_a_pass(tmp_path):
    page = markup.read(run_page.render(*_put(pages.passed(), tmp_path)))
    assert page.one("h1").text == "ready after 103.4 s, 10 checks passed; startup_time not tested"
    assert page.one("span", cls="large").text == "✓ PASS"
    assert "What went wrong" not in [each.text for each in page.all("h2")]
    checks = page.one("table", cls="checks").rows()
    assert ["✓", "first_request", "1.996", "≤ 20", "s"] in checks
    assert ["✓", "hit_tokens", "896", "≥ 1", "tokens"] in checks
    assert any("reusable_tokens 3584 tokens" in row[-1] for row in checks), "what has no limit is there, folded"
    rows = [row for table in page.all("table") for row in table.rows()]
    assert ["capture#1", "54.8", "14.0", "14.0", "15.5", "✓"] in rows
    assert ["", "attention_backend", "FLASH_ATTN_MLA, TRITON_MLA", "FLASH_ATTN_MLA"] in [
        ["", *row[1:]] for row in rows
    ], "of each server"
    assert ["spec_decode", "✓ seen on"] in rows


def _put(made, tmp_path):
    folder = pages.put(made, tmp_path)
    return record.load(folder), folder


def test_a_crash_shows_the_cause_open_and_what_only_reports_it_folded(tmp_path):
    page = markup.read(run_page.render(*_put(pages.crashed(), tmp_path)))
    assert page.one("h1").text.startswith("AttributeError: 'KimiK3KDAMetadataBuilder' object has no attribute")
    folds = {each.one("summary").text: "open" in each.attrs for each in page.all("details")}
    assert folds["Traceback of Worker_TP1, lines 72 to 124 of server.log"]
    assert not folds["Also read of Worker_TP0, lines 180 to 232 of server.log"]
    assert not folds["2 messages that only report it"]
    trace = page.all("pre", cls="trace")[0].text
    assert trace.startswith("Traceback (most recent call last): File ")
    assert trace.endswith("AttributeError: 'KimiK3KDAMetadataBuilder' object has no attribute 'layer_names'")
    assert "pid=" not in trace, "what carried the lines is gone"
    assert "▶: 72 to 124, 125 to 177, 180 to 232, 233 to 285." in page.one("details", cls="log").text
    assert page.one("details", cls="log").attrs["data-at"] == "72"
    assert "6.0 s, not completed" in page.all("svg", cls="plot")[0].text


def test_a_hang_says_where_each_process_was(tmp_path):
    page = markup.read(run_page.render(*_put(pages.hung(), tmp_path)))
    rows = [row for table in page.all("table") for row in table.rows()]
    where = "determine_available_memory (cpu_worker.py:88) "
    where += "WorkerProc.worker_busy_loop (vllm/v1/executor/multiproc_executor.py:1041)"
    assert ["21-VLLM-Worker_TP1.txt", where] in rows
    assert page.one("details", cls="log").attrs["data-at"] == "81", "the log opens at its end"
    assert "quiet 312 s without output and CPU use" in page.text


def test_stacks_beyond_the_most_are_counted(tmp_path):
    (tmp_path / "stacks").mkdir()
    for at in range(stacks.MOST_FILES + 3):
        (tmp_path / "stacks" / f"{at}.txt").write_bytes(b"\xff")
    found, more = stacks.read(tmp_path)
    assert (len(found), more, found[0].text, found[0].where) == (stacks.MOST_FILES, 3, "\\xff", ())


def test_a_regression(tmp_path):
    page = markup.read(run_page.render(*_put(pages.regressed(), tmp_path)))
    assert page.one("h1").text == "check startup_time: ready after 34.1 s, above 20.7 s; slower: capture#1"
    rows = [row for table in page.all("table") for row in table.rows()]
    assert ["capture#1", "9.2", "18.8", "4.8", "5.2", "▲ slow"] in rows
    assert ["2026-12-02 02:15", "0.32.0", "34.1", "2.5", "6.5", "0.2", "18.8", "3.5", "0.0", "this run"] in rows
    assert ["median", "20.1", "2.5", "6.5", "0.2", "4.8", "3.5", "0.0", ""] in rows
    drawn = [plot.text for plot in page.all("svg", cls="plot")]
    assert "18.8 s ▲" in drawn[0]
    assert "18.8 s (usual 4.8 s) ▲" in drawn[1]


def test_known_failures_and_workarounds_are_said_first(tmp_path):
    known = KnownFailure(refs=("vllm#54636",), title="x", fixed="0.30.0", builds="")
    run = runs.failed_at_startup(known=known, expected=True, under=("edit of f in a.py, removes prefix_cache",))
    page = page_of(run, tmp_path, log=runs.crash_log())
    header = page.one("header").text
    assert "◐ KNOWN" in header
    assert "known: vllm#54636, fixed in 0.30.0" in header
    assert "under edit of f in a.py, removes prefix_cache" in header


def test_each_of_several_servers_has_its_part(tmp_path):
    folder = runs.write(runs.several(), tmp_path, log=runs.crash_log())
    (folder / "cold").mkdir()
    (folder / "cold" / "server.log").write_bytes(b"cold words\n")
    page = markup.read(run_page.render(record.load(folder), folder))
    heads = [each.text for each in page.all("h2")]
    assert [each for each in heads if each.startswith("Where")] == [
        "Where the seconds went: warm",
        "Where the seconds went: cold",
        "Where the seconds went: no speculation",
    ]
    assert len(page.all("details", cls="log")) == 2
    assert ["✓", "first request", "2.1", "≤ 60", "s"] in page.one("table", cls="checks").rows()
    assert "✓ pass warmup[cold] first 2.1 s, steady 0.17 s (3.2 s)" in page.one("table", cls="checks").text


def test_without_a_log_and_without_an_end(tmp_path):
    page = page_of(runs.killed_node(), tmp_path, log=None)
    assert page.one("h1").text == "interrupted: the record ends in capture#1"
    assert page.all("details", cls="log") == []
    rows = [row for table in page.all("table") for row in table.rows()]
    assert ["capture#1", "9.2", "", "✗ not completed"] in rows


def test_few_nights_judge_nothing(tmp_path):
    run = runs.passed()
    page = page_of(replace(run, nights=pages.nights(run, 3)), tmp_path)
    assert "3 earlier runs are known, 5 are needed to say what is normal." in page.text
    assert "(usual" not in page.text


def test_numbers_stand_there_where_nothing_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    page = markup.read(run_page.render(*_put(pages.regressed(), tmp_path)))
    assert page.all("svg") == []
    assert plots.WITHOUT in page.text
    rows = [row for table in page.all("table") for row in table.rows()]
    assert ["capture#1", "9.2", "18.8", "4.8", "5.2", "▲ slow"] in rows


def test_names_of_files_are_links_that_lead_nowhere_else(tmp_path):
    odd = ("javascript:alert(1)", "https://example.org/x", "a b?c#d.txt", "\udcff")
    page = page_of(runs.passed(artifacts=odd), tmp_path)
    links = [each.attrs["href"] for each in page.all("a")]
    assert links == [
        "./run.json", "./javascript%3Aalert%281%29", "./https%3A//example.org/x", "./a%20b%3Fc%23d.txt", "./%ED%B3%BF",
    ]  # fmt: skip


def test_text_to_copy_is_what_a_shell_takes(tmp_path):
    run = runs.passed(argv=("vllm", "serve", "a b", '{"x": 1}'), env={"A": "1 2", "B": "x"})
    page = page_of(run, tmp_path)
    texts = {each.attrs["id"]: each.raw for each in page.all("pre") if "id" in each.attrs}
    assert texts["argv-0"] == """vllm serve 'a b' '{"x": 1}'"""
    assert texts["env-0"] == "A='1 2'\nB=x"
    assert texts["again"] == visible(run.reproduce)
    assert {each.attrs["data-copy"] for each in page.all("button") if "data-copy" in each.attrs} == set(texts)
