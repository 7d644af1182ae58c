"""The words that `bisect`, `sweep` and `probe` share, and what they mean."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from harness.commands.words import named, run_words
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.bisect.bench import Bench
    from harness.bisect.ranges import Range
    from harness.executors import Executor
    from harness.known import Patch


def scenario_words(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument("scenario", metavar="SCENARIO", nargs="?" if optional else None, help="a file, or a name")
    run_words(parser)


def judging_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--also", action="append", default=[], metavar="S", help="another signature of the same failure"
    )
    parser.add_argument("--fix", action="store_true", help="find the first build without it: --bad is the older end")
    parser.add_argument(
        "--patch",
        dest="patches",
        action="append",
        default=[],
        metavar="FILE[@RANGE]",
        help="where another bug covers, try again with this diff in a copy of the build's sources; "
        "RANGE: '>=0.29.0,<0.30.0' or FIRST..LAST",
    )


def bench(words: argparse.Namespace, *, since: str = "", executor: Executor | None = None) -> Bench:
    """How builds are run for this command line; by this machine, unless another executor is given."""
    from harness import known
    from harness.bisect.bench import Bench, plain
    from harness.bisect.memory import Memory
    from harness.executors import Local
    from harness.known import patches

    loaded = plain(named(words.scenario, words.variant, words.sets))  # what is expected of it is not asked
    return Bench(
        scenario=loaded,
        out=words.out,
        sets=tuple(words.sets),
        grace=words.grace,
        memory=Memory(words.out, since=since),
        known=known.beside(loaded.path),
        patches=tuple(map(patches.read, words.patches)),
        fix=words.fix,
        executor=executor or Local(),
    )


def check_patches(patches: Sequence[Patch], builds: Range | None) -> None:
    """See that the ends of `FIRST..LAST` are builds of the range; finer ones are known only when it comes to them.

    Raises:
        UsageError: one is not, or there is no range in which it could be one.
    """
    from harness.bisect.bench import place

    for patch in patches:
        if ".." not in patch.builds:
            continue
        if builds is None:
            raise UsageError(
                f"--patch {patch.name}@{patch.builds}: one build has no first and last",
                fix="leave the range out, or give versions: '>=0.29.0,<0.30.0'",
            )
        order = tuple(map(str, builds.builds))
        lost = [word for word in patch.builds.split("..") if place(order, word) is None]
        if lost and builds.finer is None:
            raise UsageError(
                f"--patch {patch.name}@{patch.builds}: {' and '.join(lost)} is not in {builds.words}",
                fix="name the builds as the range does",
            )
