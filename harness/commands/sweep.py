"""`harness sweep`: of many builds, how far each came and what stopped it."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands import probing
from harness.commands.words import code, where_words, worst

if TYPE_CHECKING:
    from harness.bisect.bench import Bench
    from harness.build import Build
    from harness.events import OnEvent
    from harness.record import Run


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("sweep", help="one scenario on many builds, as a table", allow_abbrev=False)
    probing.scenario_words(parser)
    where_words(parser)
    parser.add_argument("--builds", required=True, metavar="A..B", help="a range, a list file, or builds with commas")
    parser.add_argument("--repo", type=Path, help="git repository, where A and B are commits")
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.set_defaults(command=_sweep, patches=[], fix=False)


def _sweep(words: argparse.Namespace) -> int:
    from harness import clock, executors, view
    from harness.bisect import choosing

    builds = choosing.swept(words.builds, repo=words.repo)
    with executors.choose(words.ray, node_class=words.node_class) as executor:
        made = probing.bench(words, since=clock.utc() if words.fresh else "", executor=executor)
        with view.choose(sys.stdout, several=executor.remote) as show, executor.pool(1, show) as pool:
            for at, build in enumerate(builds):
                pool.submit(at, partial(_observe, made, build), label=str(build))
            done: dict[int, Run] = dict(pool.wait() for _ in builds)
    runs = [(build, done[at]) for at, build in enumerate(builds)]
    print("\n".join(view.sweep(runs)))
    return worst(code(run) for _, run in runs)


def _observe(made: Bench, build: Build, show: OnEvent) -> Run:
    return made.observe(build, on_event=show)
