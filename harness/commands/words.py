"""Words that several commands take, and the exit code of several outcomes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from harness.record import Run
    from harness.scenario import Scenario

WORST_FIRST = (130, 3, 2, 1, 0)


def scenarios(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="a file, or a name in scenarios/")


def positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least 1")
    return int(word)


def count(word: str) -> int:
    if not (word.isascii() and word.isdecimal()):
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least 0")
    return int(word)


def known_exit(word: str) -> int:
    """An exit code that no other end has, here or in a shell: 4 to 125."""
    if not (word.isascii() and word.isdecimal()) or not 4 <= int(word) <= 125:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{word!r} is no exit code from 4 to 125: others mean something else")
    return int(word)


def amount(word: str) -> float:
    """A number of seconds or days: not below 0, and finite."""
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of at least 0")
    return value


def named(word: str, variant: str | None, sets: Sequence[str] = ()) -> Scenario:
    """The scenario that a command line names, as PATH, NAME or NAME[VARIANT], with its variant and overrides applied.

    Raises:
        UsageError: two variants are named.
    """
    from harness import scenario

    path, own = scenario.find(word)
    if own and variant and own != variant:
        raise UsageError(f"{word} names variant {own}, --variant names {variant}", fix="name it once")
    return scenario.load(path, variant=own or variant, sets=tuple(sets))


def run_words(parser: argparse.ArgumentParser) -> None:
    """How a scenario is run: variant, overrides, where reports go, how long a teardown may take."""
    parser.add_argument("--variant", help="a variant of the scenario (or write SCENARIO[VARIANT])")
    parser.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override, as in serve.max-model-len=512",
    )
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder for the reports (default: reports)")
    parser.add_argument(
        "--grace",
        type=amount,
        default=8.0,
        metavar="SECONDS",
        help="for the teardown after an interruption (default: 8)",
    )


def where_words(parser: argparse.ArgumentParser) -> None:
    """Where runs are made: here, or on the nodes of a cluster."""
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="on the nodes of a Ray cluster: HOST:PORT, or auto for the one this node is in"
    )
    parser.add_argument(
        "--node-class", metavar="CLASS", help="only on nodes that declare the resource node-class:CLASS (with --ray)"
    )


def code(run: Run) -> int | None:
    """The exit code of one run; None: it was skipped."""
    return 0 if run.expected else {"PASS": 0, "FAIL": 1, "ERROR": 3}.get(run.verdict or "ERROR")


def worst(codes: Iterable[int | None]) -> int:
    """The worst of several outcomes; None is a SKIP, and a call in which nothing ran is an error."""
    ran = [code for code in codes if code is not None]
    return next((code for code in WORST_FIRST if code in ran), HarnessError.exit_code)
