"""Everything that people and CI read, rendered from a run's folder: `run.json`, and of `server.log` a bounded part.

run.json ─▶ cases ─┬─▶ junit.xml      needs no server environment, no network, and gives the same bytes again
server.log ─ text ─┼─▶ summary.md
              html ┴─▶ report.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from harness.record import Run, load, replace_text
from harness.report import junit, summary
from harness.report.html import collection_page, run_page
from harness.report.junit import merge_junit
from harness.report.summary import render_many

__all__ = ["REPORTS", "merge_junit", "render", "render_many", "write_html", "write_junit", "write_summary"]

Report = Callable[[Run, Path], str]

REPORTS: Mapping[str, Report] = {
    "junit.xml": junit.render,
    "summary.md": summary.render,
    run_page.NAME: run_page.render,
}
"""File name of every report, and the function that makes its text from a run and its folder."""


def render(folder: Path) -> tuple[str, ...]:
    """Write every report beside `run.json` (atomically) and return their file names.

    Raises:
        UsageError: no readable `run.json` in the folder.
    """
    run = load(folder)
    for name, report in REPORTS.items():
        replace_text(folder / name, report(run, folder))
    return tuple(REPORTS)


def missing(folder: Path) -> bool:
    """Whether a report is not there: the node was killed, or the harness older than the report."""
    return folder.is_dir() and not all((folder / name).is_file() for name in REPORTS)


def write_junit(folders: Iterable[Path], file: Path) -> None:
    """Write one JUnit file for several runs; see `merge_junit`."""
    replace_text(file, junit.to_text(merge_junit(folders)))


def write_summary(folders: Iterable[Path], file: Path) -> None:
    """Write one Markdown table for several runs; see `render_many`."""
    replace_text(file, render_many(folders))


def write_html(folders: Iterable[Path], file: Path, *, links: bool = True) -> None:
    """Write one page for several runs, with links to theirs unless it goes where they are not beside it."""
    replace_text(file, collection_page.render(folders, file.parent if links else None))
