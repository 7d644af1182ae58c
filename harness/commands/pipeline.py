"""`harness pipeline`: a night as a pipeline for Buildkite, and with `--collect` the last step of that pipeline."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands.words import scenarios, worst
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.pipeline.jobs import Job
    from harness.pipeline.pools import Pool
    from harness.pipeline.steps import Shop
    from harness.scenario import Scenario


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "pipeline",
        help="a night as a pipeline for Buildkite, on standard output",
        allow_abbrev=False,  # the line is run again, with --collect, by the pipeline itself
        description="Pipe it into `buildkite-agent pipeline upload`. CONTRIBUTING.md says what the agents need.",
    )
    scenarios(parser)
    parser.add_argument("--variant", dest="variants", action="append", default=[], help="a variant of each; repeatable")
    parser.add_argument("--all-variants", action="store_true", help="each scenario and every variant that it has")
    parser.add_argument(
        "--build", dest="builds", action="append", default=[], metavar="B", help="as for run; repeatable, oldest first"
    )
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE", help="as for run")
    _add_agents(parser)
    _add_bisections(parser)
    parser.add_argument("--collect", action="store_true", help="what the last step does; only in a job of Buildkite")
    parser.set_defaults(command=_pipeline)


def _add_agents(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pool", dest="pools", action="append", default=[], metavar="NAME[:FACTS]",
        help="a queue of agents and what they have, gpu-8:gpus=8,gpu-memory-gib=141,node-class=h200,jobs=2; "
        "repeatable (default: cpu, gpu-1 and gpu-8)",
    )  # fmt: skip
    parser.add_argument("--node-class", metavar="CLASS", help="only pools of this class of node")
    parser.add_argument(
        "--collect-queue", default="cpu", metavar="QUEUE", help="where the last step runs (default: cpu)"
    )
    parser.add_argument(
        "--setup", default="make setup", metavar="COMMAND", help="before each step (default: make setup)"
    )
    parser.add_argument(
        "--program", default=".venv/bin/harness", metavar="WORDS", help="harness there (default: .venv/bin/harness)"
    )
    parser.add_argument(
        "--test-collector", default="", metavar="VERSION", help="send JUnit to Test Engine with this version's plugin"
    )


def _add_bisections(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nights", type=Path, metavar="FILE", help="remembers what was green and red; on a disk that the agents share"
    )
    parser.add_argument("--good", metavar="B", help="a build to take for good where no night knows better")
    parser.add_argument("--repo", type=Path, help="git repository: bisections go on into the commits")


def _pipeline(words: argparse.Namespace) -> int:
    from harness import build
    from harness.pipeline import jobs

    found = list(_scenarios(words))
    builds = [build.parse(word) for word in words.builds or ["current"]]
    made = jobs.jobs(found, builds, _pools(words))
    return _collect(words, made) if words.collect else _print(words, made)


def _scenarios(words: argparse.Namespace) -> Iterator[Scenario]:
    """Each that is named, once, in the order of the command line."""
    from harness import scenario

    seen: set[tuple[Path, str | None]] = set()
    for word in words.scenarios:
        path, own = scenario.find(word)
        for variant in _variants(words, path, own):
            loaded = scenario.load(path, variant=variant, sets=tuple(words.sets))
            if (loaded.path, variant) not in seen:
                seen.add((loaded.path, variant))
                yield loaded


def _variants(words: argparse.Namespace, path: Path, own: str | None) -> list[str | None]:
    from harness import scenario

    if words.all_variants and words.variants:
        raise UsageError("--all-variants and --variant do not go together", fix="leave one out")
    if own:
        return [own]
    if words.all_variants:
        return [None, *scenario.load_file(path).variants]
    return [*words.variants] or [None]


def _pools(words: argparse.Namespace) -> list[Pool]:
    from harness.pipeline import pools

    known = [pools.parse(word) for word in words.pools] or list(pools.DEFAULT)
    if len({pool.name for pool in known}) < len(known):
        raise UsageError("two pools have one name", fix="name each queue once")
    chosen = [pool for pool in known if words.node_class in (None, pool.node_class)]
    if not chosen:
        raise UsageError(
            f"no pool is of class {words.node_class}",
            fix=f"say which one is: --pool NAME:gpus=8,node-class={words.node_class}",
        )
    return chosen


def _shop(words: argparse.Namespace) -> Shop:
    from harness.pipeline.steps import Shop

    return Shop(setup=words.setup, program=words.program, sets=tuple(words.sets), collector=words.test_collector)


def _print(words: argparse.Namespace, made: tuple[Job, ...]) -> int:
    from harness.pipeline import steps, text

    shop = _shop(words)
    listed = [steps.run_step(job, shop) for job in made]
    listed.append(steps.collect_step(made, words.line, shop, {"queue": words.collect_queue}))
    sys.stdout.write(text.pipeline(listed, head=f"made by: {shlex.join(['harness', *words.line])}"))
    return 0


def _collect(words: argparse.Namespace, made: tuple[Job, ...]) -> int:
    """3 where a job left no record, so that it is tried once more; what is red made the build red already."""
    from harness import build
    from harness.pipeline.agent import Agent
    from harness.pipeline.collect import Asked, collect

    asked = Asked(nights=words.nights, good=build.parse(words.good) if words.good else None, repo=words.repo)
    done = collect(made, agent=Agent(), shop=_shop(words), asked=asked)
    for each in done:
        said = f"{each.run.verdict or 'ERROR'} {each.run.id}" if each.run else f"no record: {each.trouble}"
        print(f"{each.job.scenario.title} on {each.job.build}: {said}")
    return worst(0 if each.run else 3 for each in done)
