"""`harness nightly CONFIG`: run what is new, say what turned red and which build brought it; twice is as once."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands.words import worst
from harness.errors import HarnessError, Interrupted

if TYPE_CHECKING:
    from harness.events import OnEvent
    from harness.nightly.config import Config
    from harness.nightly.story import Story


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "nightly",
        help="run what is new of the newest builds, bisect what turned red, tell whom it concerns",
        description="Exit 0: nothing is red; 1: something is; 3: an error of the node or of ours, or nothing ran.",
    )
    parser.add_argument("config", type=Path, metavar="CONFIG", help="`harness schema --nightly` prints its format")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder for the reports (default: reports)")
    parser.set_defaults(command=_nightly)


def _nightly(words: argparse.Namespace) -> int:
    from harness import view
    from harness.bisect import beginning
    from harness.nightly import config, story
    from harness.record import writable

    chosen = config.load(words.config)
    folder = words.out / f"nightly-{chosen.body.name}"
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    again = shlex.join(["harness", *words.line])
    with beginning.alone(folder), view.choose(sys.stdout) as show:
        try:
            told = _told(chosen, words.out, show)
        except (Interrupted, KeyboardInterrupt):
            print(f"interrupted; to go on: {again}", file=sys.stderr)
            raise
        code = _tell(told, chosen, folder)
    print(f"{told.name}: {told.sentence}\n  report       {folder / story.MARKDOWN}\n  again        {again}")
    return code


def _told(chosen: Config, out: Path, show: OnEvent) -> Story:
    from harness import node
    from harness.nightly.bisecting import Searcher
    from harness.nightly.night import Night
    from harness.nightly.story import Story

    night, searcher = Night(config=chosen, out=out, on_event=show), Searcher(config=chosen, out=out, on_event=show)
    found = list(night.found())  # all of it first: a search must not keep a scenario from its night
    searches = [search for each in found if (search := searcher.search(each))]
    return Story(
        name=chosen.body.name,
        node_class=node.read().node_class,
        rows=tuple(each.row for each in found),
        searches=tuple(searches),
        troubles=(*night.troubles, *searcher.troubles),
        spent=searcher.purse.words,
    )


def _tell(told: Story, chosen: Config, folder: Path) -> int:
    from harness.nightly import story, telling

    story.write(told, folder)
    codes: list[int | None] = [story.EXIT.get(row.status) for row in told.rows]
    codes += [HarnessError.exit_code for _ in told.troubles]
    try:
        news = telling.tell(told, chosen, folder)
        print("\n".join(f"news: {line}" for line in news) if news else "no news")
    except HarnessError as error:
        print(f"harness: {error}", file=sys.stderr)
        codes.append(error.exit_code)
    return worst(codes)
