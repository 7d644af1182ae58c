"""`harness sweep`: of many builds, how far each came and what stopped it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands import probing
from harness.commands.words import code, worst

if TYPE_CHECKING:
    from harness.build import Build
    from harness.record import Run


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("sweep", help="one scenario on many builds, as a table", allow_abbrev=False)
    probing.scenario_words(parser)
    parser.add_argument("--builds", required=True, metavar="A..B", help="a range, a list file, or builds with commas")
    parser.add_argument("--repo", type=Path, help="git repository, where A and B are commits")
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.set_defaults(command=_sweep, patches=[], fix=False)


def _sweep(words: argparse.Namespace) -> int:
    from harness import clock, view
    from harness.bisect import choosing

    builds = choosing.swept(words.builds, repo=words.repo)
    made = probing.bench(words, since=clock.utc() if words.fresh else "")
    runs: list[tuple[Build, Run]] = []
    with view.choose(sys.stdout) as show:
        for build in builds:
            runs.append((build, made.observe(build, on_event=show)))  # noqa: PERF401 - the view shows each as it goes
    print("\n".join(view.sweep(runs)))
    return worst(code(run) for _, run in runs)
