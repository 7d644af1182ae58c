"""`harness probe`: one judgement, in the exit codes of `git bisect run`.

0    good        1    bad        125   masked by another bug, or no such build
128  everything else: usage, scenario, harness, node. git stops there and marks nothing.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from harness.commands import probing

if TYPE_CHECKING:
    from harness.bisect.bench import Bench
    from harness.bisect.marks import Chased

ABORT = 128
SKIP = 125
CODES = {"GOOD": 0, "BAD": 1, "MASKED": SKIP}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "probe",
        help="one judgement for `git bisect run`",
        allow_abbrev=False,
        description="Exit 0: good; 1: bad; 125: masked, or no such build; 128: everything else, so git stops.",
    )
    probing.scenario_words(parser)
    parser.add_argument("--build", required=True, help="release:0.30.0, source:PATH, commit:SHA, venv:PATH …")
    parser.add_argument("--signature", required=True, metavar="S", help="id, prefix of one, title or @run.json")
    probing.judging_words(parser)
    parser.set_defaults(command=_probe)


def exit_code(code: int) -> int:
    """What is no judgement aborts: 2 would mark a build as bad that nobody looked at."""
    return code if code in (*CODES.values(), 130) else ABORT


def _probe(words: argparse.Namespace) -> int:
    from harness import build, environment, node, view
    from harness.errors import BuildError

    chosen = build.parse(words.build)
    bench = probing.bench(words)
    probing.check_patches(bench.patches, None)
    chased = _chased(words, bench)
    with view.choose(sys.stdout) as show:
        try:
            environment.provide(chosen, node.read())
        except BuildError as error:
            print(f"SKIP {chosen}: {error}", file=sys.stderr)
            return SKIP
        trial = bench.examine(chosen, chased, on_event=show)
    lead = f" {trial.words}" if trial.under else ""
    print(f"{trial.judged.mark} {chosen}{lead}: {trial.judged.why}")
    return CODES.get(trial.judged.mark, ABORT)


def _chased(words: argparse.Namespace, bench: Bench) -> Chased:
    """The failure with the place where it strikes, from the run that is named or a run on disk that showed it."""
    from harness import wanted
    from harness.bisect import marks

    also = tuple(map(wanted.resolve, words.also))
    word = words.signature
    if word.startswith("@"):
        run = wanted.recorded(word)
        return marks.chased(run, also=also, known=bench.known_of(run))
    runs = (run for run in bench.memory.runs() if run.signature and wanted.named(word, run.signature))
    if found := next(runs, None):
        return marks.chased(found, also=also, known=bench.known_of(found))
    print(f"no run in {words.out} shows {word}: a build that fails otherwise cannot be good", file=sys.stderr)
    return marks.unseen(wanted.resolve(word), also=also)
