"""The page of many runs: what is wrong, each thing once; what became slow; every run, with a link to its own page."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from harness.record import load
from harness.report.cases import RANK_OF_VERDICT
from harness.report.html import collection, plots, run_page
from harness.report.html.page import fill

MOST_RUNS, MOST_COURSES, MOST_GROUPS, MOST_LINKS = 5_000, 60, 200, 12


def render(folders: Iterable[Path], home: Path | None) -> str:
    """The page; links are relative to `home`, the folder where it will stand.

    None: it will be read where the runs are not beside it (an artifact store), and has no links.

    Raises:
        UsageError: a folder without a readable record.
    """
    entries = [collection.entry(load(folder), _link(folder, home) if home else "") for folder in folders]
    rows, groups, courses = collection.ordered(entries), collection.groups(entries), collection.courses(entries)
    words = [each.word for each in rows]
    drawn = [course.row for course in courses[:MOST_COURSES]]
    return fill(
        "collection.html",
        word=words[0] if words else "SKIP",
        counts=[(word, words.count(word)) for word in RANK_OF_VERDICT if word in words],
        total=len(rows),
        period=(min(each.started for each in rows), max(each.started for each in rows)) if rows else None,
        rows=rows[:MOST_RUNS],
        groups=groups[:MOST_GROUPS],
        more_groups=max(0, len(groups) - MOST_GROUPS),
        courses=courses,
        slow=sum(course.slow for course in courses),
        picture=plots.trend(drawn, name="ready") if drawn else "",
        pictures=plots.available(),
        without=plots.WITHOUT,
        drawn=len(drawn),
        most_links=MOST_LINKS,
    )


def _link(folder: Path, home: Path) -> str:
    """The best there is to read of a run, as a path from the page."""
    place = folder if folder.is_dir() else folder.parent
    name = next((each for each in (run_page.NAME, "summary.md") if (place / each).is_file()), "run.json")
    return os.path.relpath(place / name, home)
