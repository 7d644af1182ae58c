"""The page of many runs and the page of a bisection, read back by a strict parser."""

from __future__ import annotations

from dataclasses import replace

import markup
import pages
import pytest
import runs
from runs import EVERY_KIND, HOSTILE

from harness import report
from harness.baseline.history import History
from harness.bisect import outcome, rendering
from harness.cli import main
from harness.record import load
from harness.report.html import bisection_page, collection, collection_page, plots


def collected(folders, file) -> markup.Element:
    report.write_html(folders, file)
    page = markup.read(file.read_text(encoding="utf-8"))
    assert markup.problems(page) == []
    return page


def test_the_worst_first_each_failure_once_and_every_run_with_a_link(tmp_path):
    folders = pages.night(tmp_path / "reports", 24)
    report.render(folders[0])
    page = collected(folders, tmp_path / "all.html")
    assert page.one("h1").text == "4 FAIL, 1 KNOWN, 67 PASS; 1 slower to ready than usual"
    assert [each.all("p")[0].text for each in page.all("article")] == [
        f"✗ FAIL 3 runs {runs.LAYER_NAMES}",
        "✗ FAIL 1 run check startup_time: ready after 34.1 s, above 20.7 s; slower: capture#1",
        f"◐ KNOWN 1 run {runs.LAYER_NAMES}",
    ]
    rows = page.one("table", id="runs").rows()
    assert [row[0] for row in rows[1:]] == ["✗ FAIL"] * 4 + ["◐ KNOWN"] + ["✓ PASS"] * 67
    assert rows[1][1:6] == ["other", "0.27.0", "cpu", "2026-11-24 02:15", "34.1"]
    assert rows[2][5] == "never"
    links = {each.attrs["href"] for each in page.one("table", id="runs").all("a")}
    assert len(links) == 72
    assert f"./reports/{folders[0].name}/report.html" in links
    assert f"./reports/{folders[1].name}/run.json" in links, "a run without reports leads to its record"


def test_trends_have_the_slow_first_and_all_their_numbers_as_text(tmp_path):
    page = collected(pages.night(tmp_path, 24), tmp_path / "all.html")
    (table,) = [each for each in page.all("table") if "at most" in each.text]
    slow, *others = table.rows()[1:]
    assert slow[:5] == ["▲ slow", "other · cpu", "34.1", "20.1", "20.7"]
    assert slow[5] == ", ".join(["20.1"] * 20 + ["34.1 (FAIL)"])
    assert [row[:3] for row in others] == [["", "tiny_lm · cpu", "20.1"], ["", "tiny_lm[mini] · cpu", "never"]]
    assert others[1][5].endswith("20.1, never (FAIL), never (KNOWN), never (FAIL), never (FAIL)")
    assert "34.1 s (usual 20.1 s) ▲" in page.one("svg").text


def test_starts_of_their_own_have_trends_of_their_own(tmp_path):
    made = [runs.several(id=f"r{at}", started=f"2026-11-0{at}T00:00:00+00:00") for at in (1, 2)]
    entries = [collection.entry(run, "") for run in made]
    assert [course.label for course in collection.courses(entries)] == ["tiny_lm cold · cpu", "tiny_lm warm · cpu"]
    assert collection.courses(entries[:1]) == [], "one time is no trend"


def test_probes_and_runs_under_workarounds_are_no_nights(tmp_path):
    made = [runs.passed(id=f"r{at}", probe=at == 1, under=("edit of f in a.py",) * (at == 2)) for at in range(4)]
    entries = [collection.entry(run, "") for run in made]
    (course,) = collection.courses(entries)
    assert len(course.values) == 2


def test_hostile_records_and_folders(tmp_path):
    folders = [runs.write(kind(id=f"{at} #?<b>"), tmp_path) for at, kind in enumerate(EVERY_KIND)]
    page = collected(folders, tmp_path / "all.html")
    assert len(page.one("table", id="runs").rows()) == len(EVERY_KIND) + 1
    assert "./0%20%23%3F%3Cb%3E/run.json" in {each.attrs["href"] for each in page.all("a")}


def test_what_is_not_shown_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(collection_page, "MOST_RUNS", 10)
    monkeypatch.setattr(collection_page, "MOST_COURSES", 1)
    monkeypatch.setattr(collection_page, "MOST_GROUPS", 1)
    monkeypatch.setattr(collection_page, "MOST_LINKS", 1)
    page = collected(pages.night(tmp_path, 24), tmp_path / "all.html")
    assert "Shown are 10 of 72; none of the others is worse than the last one shown." in page.text
    assert "Drawn are 1 of 3, the slow ones first; all are in the table." in page.text
    assert "and 2 more in the list of all runs" in page.text
    assert "2 more kinds of failure are in the list of all runs." in page.text


def test_the_command_renders_only_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folders = [str(each.relative_to(tmp_path)) for each in pages.night(tmp_path / "reports", 1)]
    report.render(tmp_path / folders[0])
    (tmp_path / folders[0] / "summary.md").write_text("mine")
    (tmp_path / "sub").mkdir()
    assert main(["report", *folders, "--html", "sub/all.html", "--junit", "all.xml"]) == 0
    said = capsys.readouterr().out.split()
    assert said[-2:] == ["all.xml", "sub/all.html"]
    assert len(said) == 2 + 3 * 2
    assert (tmp_path / folders[0] / "summary.md").read_text() == "mine"
    page = markup.read((tmp_path / "sub" / "all.html").read_text())
    assert f"./../{folders[1]}/report.html" in {each.attrs["href"] for each in page.all("a")}
    assert main(["report", folders[0]]) == 0
    assert (tmp_path / folders[0] / "summary.md").read_text() != "mine"


def test_a_comparison_takes_no_page(tmp_path, capsys):
    assert main(["report", "--compare", "a", "b", "--html", "x.html"]) == 2
    assert "--compare takes two runs and nothing else" in capsys.readouterr().err


# --- what the history tells a page


def test_nights_are_the_runs_whose_times_are_normal(tmp_path):
    history = History(tmp_path / "history.sqlite")
    made = [runs.passed(id=f"r{at:02}", started=f"2026-11-{at + 1:02}T00:00:00+00:00") for at in range(25)]
    for run in made[:-1]:
        history.feed(run)
    nights = history.nights(made[-1], most=20)
    assert [night.run for night in nights] == [run.id for run in made[4:24]]
    past = history.past(made[-1])
    assert [night.seconds[""]["ready"] for night in nights] == past["", "ready"][-20:]
    assert nights[0].version == "0.32.0"
    again = runs.write(replace(made[-1], nights=nights), tmp_path)
    assert load(again).nights == nights


# --- a bisection


@pytest.fixture
def told() -> outcome.Bisection:
    return pages.bisected()


def rendered(told, tmp_path) -> markup.Element:
    folder = pages.put_bisection(told, tmp_path)
    rendering.write(told, folder)
    page = markup.read((folder / "report.html").read_text(encoding="utf-8"))
    assert markup.problems(page) == []
    return page


def test_the_range_is_a_strip_with_sign_word_and_reason(told, tmp_path):
    page = rendered(told, tmp_path)
    strip = page.one("ol", cls="strip")
    assert [each.text for each in strip.all("li")] == [
        "0.20.0 ✓ GOOD", "0.21.0 … 0.25.0 · 5 untested", "0.26.0 ✓ GOOD", "0.27.0 ✓ GOOD last good",
        "0.28.0 — SKIP first bad, maybe", "0.29.0 ◐ MASKED first bad, maybe", "0.30.0 ✗ BAD first bad, maybe",
        "0.31.0 · untested", "0.32.0 · untested", "0.33.0 ✗ BAD",
    ]  # fmt: skip
    rows = [row for table in page.all("table") for row in table.rows()]
    for each in strip.all("li"):
        assert any(row[-1] == " ".join((each.attrs["title"] or "").split()) for row in rows), "hover says nothing more"
    assert ["✗ BAD", "0.33.0", f"met the chased failure: {runs.LAYER_NAMES}"] in rows


def test_ladder_probes_and_probabilities(told, tmp_path):
    page = rendered(told, tmp_path)
    assert page.one("h1").text.startswith("one of 0.28.0, 0.29.0, 0.30.0 is the first build with AttributeError")
    assert [each.text for each in page.one("ol", cls="ladder").all("li")] == [
        pages.COVER,
        f"behind that, in 0.30.0 {runs.LAYER_NAMES}",
        f"behind that, in 0.31.0 {pages.DEEPEST}",
    ]
    rows = [row for table in page.all("table") for row in table.rows()]
    assert ["0.29.0", "61.0%"] in rows
    assert "61.0%" in page.one("svg").text
    assert [row[1:3] for row in rows if row[0] in "12345678"] == [
        [f"{sign} {probe.mark}", probe.build] for probe in told.probes for sign in [page_sign(probe.mark)]
    ]
    assert "not here" in page.text


def page_sign(mark: str) -> str:
    return {"GOOD": "✓", "BAD": "✗", "MASKED": "◐", "SKIP": "—"}[mark]


def test_runs_that_are_there_are_linked_and_both_sides_shown(told, tmp_path):
    for probe in told.probes:
        run = replace(runs.failed_at_startup(), id=probe.runs[0], reproduce=f"harness run x --build {probe.build}")
        runs.write(run, tmp_path, log=runs.crash_log())
    page = rendered(told, tmp_path)
    assert f"./../{told.probes[0].runs[0]}/run.json" in {each.attrs["href"] for each in page.all("a")}
    assert "not here" not in page.text
    folds = {each.one("summary").text: "open" in each.attrs for each in page.all("details")}
    assert folds["✓ GOOD 0.27.0"] is False
    assert folds["✗ BAD 0.30.0"] is True
    assert "harness run x --build 0.30.0" in page.text


def test_several_ladders_and_circles_end(told):
    rung = outcome.Rung
    several = replace(
        told,
        ladder=(
            rung(cover="a", hidden="b", builds=("1",)),
            rung(cover="a", hidden="c", builds=("2",)),
            rung(cover="b", hidden="a", builds=("3",)),
        ),
    )
    chains = [[title for title, _ in chain] for chain in bisection_page.ladders(several)]
    assert chains == [["a", "b"], ["a", "c"]]
    assert list(bisection_page.ladders(replace(told, ladder=()))) == []


@pytest.mark.parametrize("state", ["running", "interrupted"])
def test_one_that_is_not_finished(told, tmp_path, state):
    fresh = replace(
        told, state=state, ending=None, probes=(), range=(), culprits=(), before=None, untested=(), ladder=(),
        posterior={}, signature=None, sentence="", log="", packages=(),
    )  # fmt: skip
    page = rendered(fresh, tmp_path)
    assert page.one("h1").text == f"{state}: {told.command} goes on"
    assert "None yet." in page.text


def test_a_hostile_bisection(told, tmp_path):
    probes = tuple(replace(probe, why=HOSTILE, met=(HOSTILE,), under=HOSTILE, runs=(HOSTILE,)) for probe in told.probes)
    bad = replace(
        told, sentence=HOSTILE, fix_hint=HOSTILE, notes=(HOSTILE,), probes=probes, command=HOSTILE, log=HOSTILE,
        packages=(HOSTILE,), posterior={HOSTILE: 0.5},
        ladder=(outcome.Rung(cover=HOSTILE, hidden="b", builds=(HOSTILE,)),),
    )  # fmt: skip
    folder = tmp_path / bad.id
    folder.mkdir()
    rendering.write(bad, folder)
    page = markup.read((folder / "report.html").read_text(encoding="utf-8"))
    assert markup.problems(page) == []


def test_without_matplotlib_the_numbers_are_there(told, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    page = rendered(told, tmp_path)
    assert page.all("svg") == []
    assert ["0.29.0", "61.0%"] in [row for table in page.all("table") for row in table.rows()]
