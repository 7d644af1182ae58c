"""`harness baseline show|accept|revoke|rebuild`: what is normal here, and who said so."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.baseline.history import Line
    from harness.record import Run


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("baseline", help="what is a normal time to ready, and a new normal")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    show = actions.add_parser("show", help="the times to ready that are normal, by scenario and class of node")
    show.add_argument("titles", nargs="*", metavar="SCENARIO", help="NAME or NAME[VARIANT]; default: all")
    show.add_argument("--json", action="store_true", help="one object, for programs")
    show.set_defaults(command=_show)
    accept = actions.add_parser("accept", help="from this run on another time is normal; what was before is left out")
    accept.add_argument("run", type=Path, metavar="RUN", help="folder of a report, or its run.json")
    accept.set_defaults(command=_accept)
    revoke = actions.add_parser("revoke", help="take an acceptance back: what counted before it counts again")
    revoke.add_argument("run", type=Path, metavar="RUN", help="folder of a report, or its run.json")
    revoke.set_defaults(command=_revoke)
    rebuild = actions.add_parser("rebuild", help="feed the history from the records of finished runs")
    rebuild.add_argument("folders", nargs="*", type=Path, default=[Path("reports")], metavar="REPORTS")
    rebuild.set_defaults(command=_rebuild)


def _show(words: argparse.Namespace) -> int:
    from harness.baseline.history import History

    history = History()
    lines = history.lines()
    unknown = set(words.titles) - {line.title for line in lines}
    if unknown:
        known = ", ".join(sorted({line.title for line in lines})) or "no scenario yet"
        raise UsageError(f"nothing is known of {', '.join(sorted(unknown))}", fix=f"the history has {known}")
    rows = [_row(line) for line in lines if not words.titles or line.title in words.titles]
    if words.json:
        print(json.dumps({"history": str(history.file), "baselines": rows}, indent=2))
        return 0
    print("\n".join(_table(rows)) if rows else f"{history.file} is empty: runs that pass are added to it")
    return 0


def _row(line: Line) -> dict[str, Any]:
    from harness.baseline.judgement import WINDOW, normal

    found = normal(line.seconds)
    return {
        "scenario": line.title,
        "question": line.question,
        "node_class": line.node_class,
        "start": line.start,
        "runs": len(line.seconds),
        "median": round(statistics.median(line.seconds[-WINDOW:]), 3),
        "spread": round(found.spread, 3) if found else None,
        "limit": round(found.limit, 3) if found else None,
        "last": line.seconds[-1],
    }


def _table(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Seconds; a limit is there from the fifth run on."""
    yield _columns("scenario", "node", "start", "question", "runs", "median s", "spread", "limit", "last")
    for row in rows:
        spread, limit = ("—" if row[name] is None else f"{row[name]:.2f}" for name in ("spread", "limit"))
        median, last = f"{row['median']:.2f}", f"{row['last']:.2f}"
        words = (row["scenario"], row["node_class"], row["start"] or "—", row["question"])
        yield _columns(*words, str(row["runs"]), median, spread, limit, last)


def _columns(scenario: str, node: str, start: str, question: str, *numbers: str) -> str:
    return f"{scenario:<32} {node:<8} {start:<5} {question:<12} {' '.join(f'{number:>8}' for number in numbers)}"


def _accept(words: argparse.Namespace) -> int:
    from harness.baseline.history import History
    from harness.record import load

    file = words.run / "run.json" if words.run.is_dir() else words.run
    run = load(file)
    if fault := _not_acceptable(run):
        raise UsageError(f"{file} cannot be accepted: {fault}", fix="name a run that passed, or that was only too slow")
    newest = History().accepted(run)
    if newest and newest[0] != run.id and newest[1] >= run.started:
        raise UsageError(
            f"{file} cannot be accepted: what is normal begins with a newer run, {newest[0]}, that was accepted",
            fix="take that back first: harness baseline revoke RUN, with the folder of that run",
        )
    _mark(run, file, accepted=True)
    print(f"{run.title} on {run.node_class}: what is normal begins with this run, {_seconds(run)}")
    print(f"runs before {run.started} no longer count; harness baseline revoke {words.run} takes that back")
    return 0


def _revoke(words: argparse.Namespace) -> int:
    from harness.baseline.history import History
    from harness.record import load

    file = words.run / "run.json" if words.run.is_dir() else words.run
    run = load(file)
    if not run.accepted:
        raise UsageError(f"{file} was never accepted", fix="name the run that was; its run.json says so")
    _mark(run, file, accepted=False)
    before = History().accepted(run)
    since = f"runs since {before[1]} count, as {before[0]} was accepted" if before else "all runs that passed count"
    print(f"{run.title} on {run.node_class}: taken back; {since}")
    return 0


def _mark(run: Run, file: Path, *, accepted: bool) -> None:
    """Into the record first: from it the history can be built again."""
    from harness.baseline.history import History
    from harness.masking import Masker
    from harness.record import save

    run = replace(run, accepted=accepted)
    save(run, file.parent, Masker())  # its secrets were masked when it was made
    History().feed(run)


def _seconds(run: Run) -> str:
    """`cold start 60.0 s, warm start 30.0 s to ready`."""
    starts = (f"{each.launch} start {each.timeline.ready or 0:.1f} s".removeprefix(" start ") for each in run.own)
    return f"{', '.join(starts)} to ready"


def _not_acceptable(run: Run) -> str:
    """Why this run says nothing of what is normal; empty if it does."""
    from harness.baseline.samples import plausible
    from harness.checks.startup_time import NAME

    failed = {check.name for check in run.checks if check.outcome == "fail"}
    slow = run.verdict == "FAIL" and failed == {NAME}
    ready = run.timeline.ready
    faults = (
        (run.state != "finished", f"it is {run.state}"),
        (bool(run.under), "it was made under a workaround"),
        (run.probe, "it is a probe of a bisection or a sweep"),
        (ready is None, "its server was never ready"),
        (not plausible(run), f"no server takes {ready or 0:g} s to be ready, or a phase of it no time that there is"),
        (run.verdict != "PASS" and not slow, f"its verdict is {run.verdict}: {run.reason}"),
    )
    return next((words for wrong, words in faults if wrong), "")


def _rebuild(words: argparse.Namespace) -> int:
    from harness.baseline.history import History
    from harness.record import load
    from harness.report.text import one_line

    history, fed, passed_over = History(), 0, 0
    for folder in words.folders:
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}", fix="name the folder that `--out` was given")
        for file in sorted(folder.rglob("run.json")):
            try:
                counted = history.feed(load(file))
            except UsageError as error:
                print(f"passed over: {one_line(error.what, 200)}")
                counted = False
            fed, passed_over = fed + counted, passed_over + (not counted)
    print(f"{fed} runs fed into {history.file}, {passed_over} that say nothing of what is normal")
    return 0
