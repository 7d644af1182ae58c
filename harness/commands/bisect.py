"""`harness bisect`: the first bad build, or with `--fix` the first good one."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands import probing
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.bisect.bench import Bench
    from harness.bisect.choosing import Ends
    from harness.bisect.driver import Wish
    from harness.bisect.outcome import Bisection
    from harness.bisect.ranges import Range

EXIT = {"found": 0, "range": 1, "not reproduced": 1, "no culprit": 1, "flaky": 1, "error": 3}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bisect",
        help="the first bad build of a range",
        description="Exit 0: one build found; 1: not reproduced, no culprit, or only a range; 3: an end in error.",
    )
    probing.scenario_words(parser)
    parser.add_argument("--good", metavar="B", help="a build without the failure")
    parser.add_argument("--bad", metavar="B", help="a build with it")
    parser.add_argument("--builds", type=Path, metavar="FILE", help="a list of builds, oldest first")
    parser.add_argument("--repo", type=Path, help="git repository: goes on into the commits between two releases")
    parser.add_argument("--signature", metavar="S", help="the failure; default: what the bad end shows")
    probing.judging_words(parser)
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help="N probes at once, a GPU set each")
    parser.add_argument("--confidence", type=_probability, metavar="P", help="for a failure that comes and goes: 0.95")
    parser.add_argument(
        "--allow-unreached", action="store_true", help="a build that refuses the subject counts as one before it"
    )
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.set_defaults(command=_bisect)


def _positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least 1")
    return int(word)


def _probability(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0.5 <= value < 1:  # noqa: PLR2004 - below one half the answer is more likely wrong than right
        raise argparse.ArgumentTypeError(f"{word!r} is no probability from 0.5 to below 1")
    return value


def _bisect(words: argparse.Namespace) -> int:
    from harness import wanted
    from harness.bisect.driver import Wish

    bench = probing.bench(words)
    ends, builds = _range(words)
    wish = Wish(
        signature=wanted.resolve(words.signature) if words.signature else None,
        also=tuple(map(wanted.resolve, words.also)),
        allow_unreached=words.allow_unreached,
        confidence=words.confidence,
        jobs=words.jobs,
    )
    told = one(bench, ends, builds, wish, fresh=words.fresh, line=words.line)
    return EXIT[told.ending or "error"]


def _range(words: argparse.Namespace) -> tuple[Ends, Range]:
    from harness.bisect import choosing
    from harness.build import parse

    good, bad = (parse(word) if word else None for word in (words.good, words.bad))
    if words.builds:
        return choosing.of_list(words.builds, good=good, bad=bad, fix=words.fix)
    if good is None or bad is None:
        raise UsageError("both ends are needed", fix="name --good B and --bad B, or a list of --builds")
    ends = choosing.Ends(good=good, bad=bad, fix=words.fix)
    return ends, choosing.between(ends, repo=words.repo)


def one(bench: Bench, ends: Ends, builds: Range, wish: Wish, *, fresh: bool, line: list[str]) -> Bisection:
    """Carry one bisection out, write its reports, say what came of it.

    Raises:
        Interrupted, KeyboardInterrupt: after the command that goes on was printed.
    """
    from harness import view
    from harness.bisect import beginning, rendering
    from harness.bisect.driver import Driver

    told, folder, bench = beginning.begin(bench, ends, wish, fresh=fresh, command=shlex.join(["harness", *line]))
    with view.choose(sys.stdout) as show:
        driver = Driver(told, bench, wish, folder=folder, on_event=show)
        try:
            told = driver.carry_out(builds)
        except BaseException:
            print(f"interrupted; to go on: {told.command}", file=sys.stderr)
            raise
        finally:
            rendering.write(driver.told, folder)
    print("\n".join(view.bisected(told, folder)))
    return told
