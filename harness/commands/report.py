"""`harness report`: render the reports of finished runs again, or say what differs between two of them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from harness.errors import UsageError


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "report", help="render the reports of finished runs again from their run.json, merge them, or compare two runs",
        description="With --junit, --summary or --html a run's own reports are rendered only where one is missing.",
    )  # fmt: skip
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="a folder with a run.json, or that file")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write one JUnit file for all of them")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write one Markdown summary for all of them")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write one page for all of them, with links to theirs"
    )
    parser.add_argument(
        "--compare", nargs=2, type=Path, metavar=("A", "B"), help="what differs between two runs, or a run and a .log"
    )
    parser.add_argument("--json", action="store_true", help="with --compare: one JSON object")
    parser.set_defaults(command=_report)


def _report(words: argparse.Namespace) -> int:
    if words.compare:
        return _compare(words)
    if not words.runs:
        raise UsageError("no run is named", fix="name folders under reports/, or --compare A B")
    if words.json:
        raise UsageError("--json is for --compare", fix="leave it out: run.json is the record as JSON")
    return _render(words)


def _render(words: argparse.Namespace) -> int:
    from harness import report

    merges = ((words.junit, report.write_junit), (words.summary, report.write_summary), (words.html, report.write_html))
    asked = [(file, write) for file, write in merges if file]
    folders = [_folder(run) for run in words.runs]
    for folder in folders:
        if not asked or report.missing(folder):
            print("\n".join(str(folder / name) for name in report.render(folder)))
    for file, write in asked:
        write(folders, file)
        print(file)
    return 0


def _folder(run: Path) -> Path:
    """The folder of a run that is named by its record, too."""
    if run.is_dir() or not run.exists():  # the latter is said when the record is looked for
        return run
    if run.name != "run.json":
        raise UsageError(f"{run} is no folder of a run", fix="name a folder with a run.json, or that file")
    return run.parent


def _compare(words: argparse.Namespace) -> int:
    from harness.report import comparing, comparison, sides

    if words.runs or words.junit or words.summary or words.html:
        raise UsageError("--compare takes two runs and nothing else", fix="render reports in a call of their own")
    one, other = map(sides.read, words.compare)
    found = comparison.compare(one, other)
    print(json.dumps(comparing.to_json(found), ensure_ascii=False) if words.json else comparing.to_text(found))
    return 0
