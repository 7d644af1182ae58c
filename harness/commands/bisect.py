"""`harness bisect`: the first bad build, or with `--fix` the first good one."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands import probing
from harness.commands.words import positive, where_words, worst
from harness.errors import HarnessError, Interrupted, UnmetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.bisect.bench import Bench
    from harness.bisect.choosing import Ends
    from harness.bisect.from_junit import Red
    from harness.bisect.outcome import Bisection
    from harness.bisect.ranges import Range
    from harness.bisect.wish import Wish
    from harness.build import Build

EXIT = {"found": 0, "range": 1, "not reproduced": 1, "no culprit": 1, "flaky": 1, "error": 3}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bisect",
        help="the first bad build of a range",
        allow_abbrev=False,  # the line is printed again, in other orders
        description="Exit 0: one build found; 1: not reproduced, no culprit, or only a range; 3: an end in error.",
    )
    probing.scenario_words(parser, optional=True)
    parser.add_argument("--from-junit", type=Path, metavar="RED.xml", help="bisect every failure of a nightly's report")
    parser.add_argument(
        "--last-green", type=Path, metavar="GREEN.xml", help="report of the night before: its builds are good"
    )
    parser.add_argument("--good", metavar="B", help="a build without the failure")
    parser.add_argument("--bad", metavar="B", help="a build with it")
    parser.add_argument("--builds", type=Path, metavar="FILE", help="a list of builds, oldest first")
    parser.add_argument(
        "--vary-deps", action="store_true", help="the same server: which package between --good-env and --bad-env"
    )
    for end in ("good", "bad"):
        what = "a run's folder, its run.json or a packages.lock"
        parser.add_argument(f"--{end}-env", type=Path, metavar="RUN", help=f"{what}: packages of the {end} end")
    parser.add_argument("--repo", type=Path, help="git repository: goes on into the commits between two releases")
    parser.add_argument("--signature", metavar="S", help="the failure; default: what the bad end shows")
    probing.judging_words(parser)
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="N probes at once, a GPU set each")
    where_words(parser)
    parser.add_argument("--confidence", type=_probability, metavar="P", help="for a failure that comes and goes: 0.95")
    parser.add_argument(
        "--allow-unreached", action="store_true", help="a build that refuses the subject counts as one before it"
    )
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.add_argument(
        "--contract",
        metavar="RULE:CLASS",
        help="no scenario: a contract that the sources break; also CLASS.MEMBER, …=live",
    )
    parser.add_argument("--contracts", type=Path, metavar="FILE", help="with --contract: another contracts.yaml")
    parser.set_defaults(command=_bisect)


def _probability(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0.5 <= value < 1:  # noqa: PLR2004 - below one half the answer is more likely wrong than right
        raise argparse.ArgumentTypeError(f"{word!r} is no probability from 0.5 to below 1")
    return value


def _bisect(words: argparse.Namespace) -> int:
    if words.contract:
        return _static(words)
    if words.contracts:
        raise UsageError("--contracts goes with --contract", fix="name one as RULE:CLASS")
    if words.from_junit:
        return _all_red(words)
    if words.scenario is None:
        raise UsageError("which scenario?", fix="name a SCENARIO, or a nightly's report with --from-junit")
    if words.last_green:
        raise UsageError("--last-green goes with --from-junit", fix="name the good end with --good")
    return _one(words)


def _static(words: argparse.Namespace) -> int:
    """A bisection without a server: the judge reads sources."""
    from harness import view
    from harness.bisect import beginning, rendering, static
    from harness.bisect.ledger import Ledger
    from harness.contracts import contracts_file

    _no_server(words)
    contracts = contracts_file.load(words.contracts) if words.contracts else contracts_file.load()
    judge = static.Judge(contract=static.parse(words.contract), contracts=contracts)
    ends, builds = _range(words)
    allow, command = words.allow_unreached, shlex.join(["harness", *words.line])
    told, folder = static.begin(
        judge, ends, builds, out=words.out, command=command, allow_unreached=allow, repo=str(words.repo or "")
    )
    show = view.PlainView(sys.stdout)
    with beginning.alone(folder), show:
        ledger = Ledger(told, folder=folder, on_event=show)
        driver = static.Driver(ledger, judge, fix=words.fix, allow_unreached=allow)
        with _to_go_on(command, lambda: rendering.write(ledger.told, folder)):
            told = driver.carry_out(builds)
        rendering.write(told, folder)
    print("\n".join(view.bisected(told, folder)))
    return EXIT[told.ending or "error"]


def _no_server(words: argparse.Namespace) -> None:
    """See that nothing is asked for that only a server could answer.

    Raises:
        UsageError: it is; says what.
    """
    given = {
        "SCENARIO": words.scenario, "--variant": words.variant, "--set": words.sets, "--signature": words.signature,
        "--also": words.also, "--patch": words.patches, "--confidence": words.confidence, "--fresh": words.fresh,
        "--from-junit": words.from_junit, "--last-green": words.last_green, "--vary-deps": words.vary_deps,
        "--good-env": words.good_env, "--bad-env": words.bad_env, "--jobs": words.jobs != 1,
    }  # fmt: skip
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError(f"--contract starts no server: {', '.join(wrong)} has no meaning", fix="leave it out")


def _one(words: argparse.Namespace) -> int:
    from harness import executors

    ends, builds = _range(words)
    with executors.choose(words.ray, node_class=words.node_class) as executor:
        bench = probing.bench(words, executor=executor)
        wish = _wish(words, prefetch=not bench.timed and not executor.remote)
        probing.check_patches(bench.patches, builds)
        repo = str(words.repo or "")
        told = carry_out(bench, ends, builds, wish, fresh=words.fresh, line=words.line, repo=repo)
    return EXIT[told.ending or "error"]


def _wish(words: argparse.Namespace, *, prefetch: bool) -> Wish:
    from harness import wanted
    from harness.bisect.wish import Wish

    return Wish(
        signature=wanted.resolve(words.signature) if words.signature is not None else None,
        also=tuple(map(wanted.resolve, words.also)),
        allow_unreached=words.allow_unreached,
        confidence=words.confidence,
        jobs=words.jobs,
        prefetch=prefetch,
    )


def _all_red(words: argparse.Namespace) -> int:
    """One bisection for each failure of a nightly; what they probe alike is run once."""
    from harness import node
    from harness.bisect import from_junit

    if words.scenario or words.variant or words.bad or words.signature:
        raise UsageError("--from-junit says which scenario, variant, build and signature", fix="leave the others out")
    nightly = from_junit.read(words.from_junit)
    green = from_junit.read(words.last_green).green if words.last_green else {}
    here = words.node_class if words.ray else node.read().node_class
    for title in nightly.errors:
        print(f"{title}: no verdict on the product, nothing to bisect")
    codes = []
    for red in nightly.red:
        try:
            line = _words_of(words, red, green, here)
            print(f"{red.title} {red.signature}: {shlex.join(['harness', *line])}")
            codes.append(_one(_parsed(line)))
        except Interrupted:
            raise
        except HarnessError as error:  # the others can still be told
            print(f"harness: {red.title} {red.signature}: {error}", file=sys.stderr)
            codes.append(error.exit_code)
    if not codes:
        print(f"nothing in {words.from_junit} is red")
    return worst(codes or [0])


def _words_of(words: argparse.Namespace, red: Red, green: Mapping[str, Build], here: str | None) -> list[str]:
    """The command line of one bisection: it is printed, so that anybody can go on with it alone."""
    if here and red.node_class and red.node_class != here:
        raise UnmetError(f"{red.title} was red on {red.node_class}, not on {here}", fix="run it on such a node")
    good = words.good or (str(green[red.title]) if red.title in green else None)
    if good is None:
        raise UsageError(f"{red.title}: no build is known to be good", fix="name one with --good, or a --last-green")
    variant = ["--variant", red.variant] if red.variant else []
    sets = [word for each in red.sets for word in ("--set", each)]
    rest = _without(words.line[1:], ("--from-junit", "--last-green", "--good"))
    ends = ["--good", good, "--bad", str(red.build), "--signature", red.signature]
    return ["bisect", red.scenario, *variant, *sets, *ends, *rest]


def _without(line: list[str], options: tuple[str, ...]) -> list[str]:
    """The words without these options and their values."""
    kept: list[str] = []
    skip = False
    for word in line:
        if not skip and word.partition("=")[0] not in options:
            kept.append(word)
        skip = not skip and word in options
    return kept


def _parsed(line: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add(parser.add_subparsers(required=True))
    words = parser.parse_args(line)
    words.line = line
    return words


def _range(words: argparse.Namespace) -> tuple[Ends, Range]:
    from harness.bisect import choosing
    from harness.build import parse

    if words.vary_deps or words.good_env or words.bad_env:
        return _packages(words)
    good, bad = (parse(word) if word else None for word in (words.good, words.bad))
    if words.builds:
        return choosing.of_list(words.builds, good=good, bad=bad, fix=words.fix)
    if good is None or bad is None:
        raise UsageError("both ends are needed", fix="name --good B and --bad B, or a list of --builds")
    ends = choosing.Ends(good=good, bad=bad, fix=words.fix)
    return ends, choosing.between(ends, repo=words.repo)


def _packages(words: argparse.Namespace) -> tuple[Ends, Range]:
    from harness.bisect import packages

    if not (words.vary_deps and words.good_env and words.bad_env):
        raise UsageError("--vary-deps, --good-env and --bad-env go together", fix="name all three")
    if words.good or words.bad or words.builds or words.repo:
        raise UsageError("--vary-deps holds the server still", fix="leave --good, --bad, --builds and --repo out")
    return packages.between(words.good_env, words.bad_env, fix=words.fix, out=words.out)


@contextmanager
def _to_go_on(command: str, write: Callable[[], None]) -> Iterator[None]:
    """Whatever ends a bisection early: say which command goes on, and write what is known."""
    try:
        yield
    except BaseException as error:
        stopped = isinstance(error, (Interrupted, KeyboardInterrupt))
        lead = "interrupted; to go on" if stopped else "stopped; once that is mended, this goes on"
        print(f"{lead}: {command}", file=sys.stderr)
        with suppress(HarnessError):  # the first trouble is the one to tell
            write()
        raise


def carry_out(
    bench: Bench, ends: Ends, builds: Range, wish: Wish, *, fresh: bool, line: list[str], repo: str = ""
) -> Bisection:
    """Carry one bisection out, write its reports, say what came of it.

    Raises:
        Interrupted, KeyboardInterrupt: after the command that goes on was printed.
    """
    from harness import view
    from harness.bisect import beginning, rendering
    from harness.bisect.driver import Driver

    command = shlex.join(["harness", *line])
    told, folder, bench = beginning.begin(bench, ends, builds, wish, fresh=fresh, command=command, repo=repo)
    # Several at once have no one line that would be the live one.
    show = view.choose(sys.stdout, several=wish.jobs > 1)
    with beginning.alone(folder), show:
        driver = Driver(told, bench, wish, folder=folder, on_event=show)
        with _to_go_on(command, lambda: rendering.write(driver.told, folder)):
            told = driver.carry_out(builds)
        rendering.write(told, folder)
    print("\n".join(view.bisected(told, folder)))
    return told
