"""`harness run`, the job, and `harness fetch`, the weights that it needs."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from harness.commands.words import code, known_exit, named, positive, run_words, scenarios, where_words, worst
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.build import Build
    from harness.events import OnEvent
    from harness.executors import Executor
    from harness.known import Step
    from harness.record import Run
    from harness.scenario import Scenario


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser("run", help="start a scenario's server, check it, report", description="The job.")
    scenarios(run)
    run_words(run)
    where_words(run)
    run.add_argument(
        "--build",
        default="current",
        help="release:0.30.0, source:PATH@REV, commit:SHA, lock:FILE, venv:PATH, tree:DIR; default: the server on PATH",
    )
    run.add_argument("--repeat", type=positive, default=1, metavar="N", help="run N times; any failure is a failure")
    run.add_argument(
        "--peel", action="store_true", help="at a known failure launch again with its workaround, to see what is behind"
    )
    run.add_argument(
        "--known",
        choices=["expected"],
        help="a known failure is no news (exit 0, skipped in JUnit); its absence is one",
    )
    run.add_argument(
        "--known-exit",
        type=known_exit,
        default=0,
        metavar="CODE",
        help="with --known expected: how to end where known failures are all there is (default: 0)",
    )
    run.add_argument("--skip-unmet", action="store_true", help="SKIP, not ERROR, where this node cannot meet the needs")
    run.set_defaults(command=_run)
    fetch = commands.add_parser("fetch", help="download, or check, the weights of a scenario")
    scenarios(fetch)
    fetch.add_argument("--build", default="current")
    fetch.set_defaults(command=_fetch)


def _load(words: argparse.Namespace) -> list[Scenario]:
    """Every scenario that the command line names, with its variant and overrides applied."""
    variant, sets = getattr(words, "variant", None), getattr(words, "sets", ())
    return [named(word, variant, sets) for word in words.scenarios]


def _run(words: argparse.Namespace) -> int:
    from harness import build, executors, known, view

    if words.peel and words.repeat > 1:
        raise UsageError("--peel and --repeat do not go together", fix="peel once, then repeat what is behind")
    chosen = build.parse(words.build)
    loaded = _load(words)  # all of them, before the first one starts: a typo in the last must not cost an hour
    for scenario in loaded:
        known.beside(scenario.path)
    asked = [(scenario, number) for scenario in loaded for number in range(1, words.repeat + 1)]
    with (
        executors.choose(words.ray, node_class=words.node_class) as executor,
        view.choose(sys.stdout, several=executor.remote and len(asked) > 1) as show,
        executor.pool(1, show) as pool,
    ):
        for at, (scenario, number) in enumerate(asked):
            attempt = f"{number}/{words.repeat}" if words.repeat > 1 else None
            label = f"{scenario.title} {attempt or ''}".strip() if len(asked) > 1 else ""
            pool.submit(at, partial(_rungs, executor, scenario, chosen, words, attempt=attempt), label=label)
        done: dict[int, list[Run]] = dict(pool.wait() for _ in asked)
    ladders = [done[at] for at in range(len(asked))]
    runs = [run for rungs in ladders for run in rungs]
    for run in runs:
        print(view.closing(run, words.out / run.id))
    if words.repeat > 1:
        print("\n".join(view.tally(runs)))
    if words.peel:
        print("\n".join(line for rungs in ladders for line in (f"{rungs[0].title}:", *view.ladder(rungs))))
    ended = worst(code(rungs[0]) for rungs in ladders)  # what is behind a failure is news, not a second failure
    return words.known_exit if ended == 0 and any(rungs[0].expected for rungs in ladders) else ended


def _rungs(
    executor: Executor,
    scenario: Scenario,
    chosen: Build,
    words: argparse.Namespace,
    show: OnEvent,
    *,
    attempt: str | None,
) -> list[Run]:
    """One run; with `--peel` one more under each workaround that it takes to get past known failures."""
    from harness import known, run
    from harness.executors import Ask

    def launch(under: tuple[Step, ...]) -> Run:
        ask = Ask(
            scenario=scenario,
            build=chosen,
            out=words.out,
            sets=tuple(words.sets),
            grace=words.grace,
            skip_unmet=words.skip_unmet,
            attempt=attempt,
            handling=run.Handling(expected=words.known == "expected", under=under, peel=bool(under)),
        )
        return executor.execute(ask, show)

    return list(known.peel(launch, known.beside(scenario.path))) if words.peel else [launch(())]


def _fetch(words: argparse.Namespace) -> int:
    from harness import build, environment, launch, node, weights

    here = node.read()
    provided = environment.provide(build.parse(words.build), here, on_step=print)
    for scenario in _load(words):
        resolved, _ = scenario.apply_when(provided.version)
        given, _ = launch.scenario_env(resolved, os.environ)
        for got in weights.fetch(resolved, provided, {**os.environ, **given}, seconds=resolved.budgets.download):
            print(f"{scenario.name}: {got.model} {got.revision or 'local folder'}")
    return 0
