"""Bisection on generated histories, against `git bisect run` and git-bayesect on the same ones: probes, wrong culprits.

    python benchmarks/bisection.py [--quick] [--histories 7] [--jobs 2]

Each history has a table that says how run k of build b ends, so all see the same luck. The rivals really run, in a
throw-away repository, with a script that looks its answer up: exit 0, 1 or 125 (skip). A search only begins where the
good end passed and the bad end failed: these two runs are given, and count as probes of everybody.

    harness                as without --confidence: its two runs that confirm are counted apart, under `confirm`
    harness, 4 workers     the same with --jobs 4; a round is what runs at the same time
    harness, 95 %          --confidence 0.95
    git bisect             `git bisect run`; it cannot tell another bug from the chased one, so the script has to:
                           masked builds are bad in one row, skipped in the next
    git-bayesect           `git bayesect run --confidence 0.95`; every code but 0 is a failure to it, skips too

`right`: the one culprit. `range`: several builds, the culprit among them. `none`: that no build brought it.
`open`: no answer (what was found changed its mind, or the runs were used up). `wrong`: anything else that was said.

Under the table come the aims, measured on more histories of the same kinds. Exits 1 where one is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.bisect.confidence import NoCulprit, Tally
from harness.bisect.search import Answer, Seen, Unknown
from harness.bisect.strategies import Settling, Weighing

SIZE = 200
MOST, QUICK_MOST = 300, 40
"""Runs after which a search that has not ended is given up."""
ASKED = 0.95
WORKERS = 4
QUICK_HISTORIES, QUICK_AIMED, AIMED = 1, 10, 400
PASSED, SHOWN, SKIPPED, MASKED = "passed", "shown", "skipped", "masked"


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """Builds 0 … size-1; from `culprit` on they show the failure in `rate` of their runs. None: all do."""

    seed: int
    culprit: int | None
    rate: float = 1.0
    skipped: frozenset[int] = frozenset()
    masks: tuple[range, ...] = ()
    """Of each other bug the builds that it kills before they come to the failure."""
    size: int = SIZE

    def outcome(self, at: int, nth: int) -> str:
        """How run `nth` of build `at` ends; the first runs of the ends are those that made one search."""
        if nth == 0 and at in (0, self.size - 1):
            return SHOWN if at else PASSED
        if at in self.skipped:
            return SKIPPED
        if any(at in mask for mask in self.masks):
            return MASKED
        has = self.culprit is None or at >= self.culprit
        return SHOWN if has and random.Random(f"{self.seed} {at} {nth}").random() < self.rate else PASSED

    def cause(self, at: int) -> str:
        return next((f"bug {number}" for number, mask in enumerate(self.masks) if at in mask), "no wheel")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """`kind`: as in the head of the table. `confirm`: runs that only confirmed."""

    probes: int
    kind: str
    rounds: int = 0
    confirm: int = 0


# --- histories


def clean(rng: random.Random) -> History:
    return History(seed=rng.randrange(10**9), culprit=rng.randrange(1, SIZE))


def skips(rng: random.Random) -> History:
    inside = range(1, SIZE - 1)
    return replace(clean(rng), skipped=frozenset(rng.sample(inside, k=len(inside) // 5)))


def blocks(rng: random.Random) -> History:
    """One build in five cannot be made, in four blocks."""
    width = SIZE // 20
    starts = [rng.randrange(1, SIZE - 1 - width) for _ in range(4)]
    return replace(clean(rng), skipped=frozenset(at for start in starts for at in range(start, start + width)))


def masked(rng: random.Random, *, over: bool, bugs: int = 1) -> History:
    """Other bugs, each over up to a third of the builds; `over`: the first of them has the culprit under it."""
    history, first = clean(rng), _mask(rng)
    while (history.culprit in first) is not over:  # both anew: no mask reaches the last build
        history, first = clean(rng), _mask(rng)
    return replace(history, masks=(first, *(_mask(rng) for _ in range(bugs - 1))))


def _mask(rng: random.Random) -> range:
    width = rng.randrange(5, SIZE // 3)
    start = rng.randrange(1, SIZE - 1 - width)
    return range(start, start + width)


def flaky(rng: random.Random, *, flake: float) -> History:
    return replace(clean(rng), rate=1 - flake)


def nobody(rng: random.Random, *, rate: float) -> History:
    return replace(clean(rng), culprit=None, rate=rate)


KINDS: dict[str, Callable[[random.Random], History]] = {
    "clean": clean,
    "20 % skips": skips,
    "20 % skips in blocks": blocks,
    "masked elsewhere": partial(masked, over=False),
    "masked over culprit": partial(masked, over=True),
    "two masks, one over it": partial(masked, over=True, bugs=2),
    **{f"flaky, {flake:.0%}": partial(flaky, flake=flake) for flake in (0.05, 0.1, 0.2, 0.35, 0.5)},
    **{f"no culprit, in {rate:.0%}": partial(nobody, rate=rate) for rate in (0.8, 0.3)},
}


def histories(kind: str, count: int) -> list[History]:
    """The first are the same for any count."""
    rng = random.Random(kind)
    return [KINDS[kind](rng) for _ in range(count)]


# --- ours, as harness/bisect/driver.py does it


def judged(history: History, answer: Answer | NoCulprit | None) -> str:
    if answer is None:
        return "open"
    if isinstance(answer, NoCulprit):
        return "none" if history.culprit is None else "wrong"
    if history.culprit is None or not answer.first <= history.culprit <= answer.last:
        return "wrong"
    return "right" if answer.single else "range"


def settle(history: History, *, workers: int = 1) -> Found:
    seen: dict[int, Seen] = {0: "before", history.size - 1: "after"}
    rounds = 0
    while (answer := (now := Settling(size=history.size, seen=seen)).answer()) is None:
        rounds += 1
        for at in now.targets(workers=workers, running=()):
            seen[at] = side(history, at)
    kept = all(side(history, at, nth=1) == seen[at] for at in (answer.first - 1, answer.last))
    kind = judged(history, answer if kept else None)
    return Found(probes=len(seen), kind=kind, rounds=rounds, confirm=2)


def side(history: History, at: int, nth: int = 0) -> Seen:
    sides: Mapping[str, Seen] = {PASSED: "before", SHOWN: "after"}
    return sides.get(history.outcome(at, nth), Unknown(cause=history.cause(at)))


def weigh(history: History, *, workers: int = 1, most: int = MOST) -> Found:
    tallies = {at: add(history, at, Tally()) for at in (0, history.size - 1)}
    probes, rounds = 2, 0
    while (answer := (now := weighing(history, tallies)).answer()) is None and probes < most:
        rounds += 1
        for at in now.targets(workers=workers, running=()):
            probes += 1
            tallies[at] = add(history, at, tallies.get(at, Tally()))
    return Found(probes=probes, kind=judged(history, answer), rounds=rounds)


def weighing(history: History, tallies: Mapping[int, Tally]) -> Weighing:
    return Weighing(size=history.size, tallies=tallies, asked=ASKED, fix=False)


def add(history: History, at: int, before: Tally) -> Tally:
    outcome = history.outcome(at, before.runs)
    if outcome in (SKIPPED, MASKED):
        return Tally(unknown=True, cause=history.cause(at))
    return Tally(shown=before.shown + (outcome == SHOWN), passed=before.passed + (outcome == PASSED))


# --- rivals: git, in a repository whose file `position` says which build a commit is

SCRIPT = """
import os, signal, sys
table, journal, most = sys.argv[1:]
at = open("position").read().strip()
earlier = open(journal).read().split()
open(journal, "a").write(at + "\\n")
if len(earlier) >= int(most):
    os.kill(os.getppid(), signal.SIGINT)
code = open(table).read().splitlines()[int(at)].split()[earlier.count(at)]
sys.exit(int(code))
"""
BAYESECT = """
import sys, git_bayesect
for words in (["start", "--old", sys.argv[1], "--new", sys.argv[2]], ["pass", "--commit", sys.argv[1]],
              ["fail", "--commit", sys.argv[2]], ["run", "--confidence", sys.argv[3], *sys.argv[4:]]):
    sys.argv[1:] = words
    git_bayesect.main()
"""


class Repository:
    """One commit a build. Each process has its own."""

    def __init__(self, folder: Path, *, most: int) -> None:
        self.folder, self.most = folder, most
        (folder / "script.py").write_text(SCRIPT)
        self._git("init", "-q", "-b", "main", "work")
        self.work = folder / "work"
        self._git("fast-import", "--quiet", at=self.work, text="".join(map(_commit, range(SIZE))))
        self._git("checkout", "-q", "main", at=self.work)
        self.commits = self._git("rev-list", "--reverse", "main", at=self.work).split()

    def bisect(self, history: History, *, masked: int) -> Found:
        """`masked`: the script's exit code for a build that another bug kills."""
        self._write(history, masked)
        self._git("bisect", "start", self.commits[-1], self.commits[0], at=self.work)
        self._git("bisect", "run", *self._script, at=self.work, may_fail=True)
        told = self._git("bisect", "log", at=self.work)
        self._git("bisect", "reset", at=self.work)
        named = [line.split("[")[1].split("]")[0] for line in told.splitlines() if "first bad commit: [" in line]
        return self._found(history, [self.commits.index(each) for each in named])

    def bayesect(self, history: History) -> Found:
        self._write(history, 1)
        ends = (self.commits[0], self.commits[-1], str(ASKED))
        argv = (sys.executable, "-c", BAYESECT, *ends, *self._script)
        done = subprocess.run(argv, cwd=self.work, capture_output=True, text=True, check=False, env=_environment())
        named = [line.split()[3] for line in done.stdout.splitlines() if line.startswith("Bisection converged to ")]
        if not named and "KeyboardInterrupt" not in done.stderr:
            raise RuntimeError(done.stderr)
        places = [at for at, commit in enumerate(self.commits) for each in named if commit.startswith(each)]
        return self._found(history, places)

    def _found(self, history: History, named: list[int]) -> Found:
        runs = len((self.folder / "journal").read_text().split())
        if not named:
            return Found(probes=runs, rounds=runs - 2, kind="open")
        answer = Answer(first=min(named), last=max(named)) if named != [0] else NoCulprit(probability=ASKED)
        return Found(probes=runs, rounds=runs - 2, kind=judged(history, answer))

    def _write(self, history: History, masked: int) -> None:
        codes = {PASSED: 0, SHOWN: 1, SKIPPED: 125, MASKED: masked}
        rows = ([codes[history.outcome(at, nth)] for nth in range(self.most + 1)] for at in range(history.size))
        (self.folder / "table").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
        (self.folder / "journal").write_text(f"0\n{history.size - 1}\n")

    @property
    def _script(self) -> tuple[str, ...]:
        files = (str(self.folder / name) for name in ("script.py", "table", "journal"))
        return (sys.executable, "-I", "-S", *files, str(self.most))

    def _git(self, *words: str, at: Path | None = None, text: str | None = None, may_fail: bool = False) -> str:
        argv = ("git", *words)
        done = subprocess.run(
            argv, cwd=at or self.folder, input=text, capture_output=True, text=True, check=False, env=_environment()
        )
        if done.returncode and not may_fail:
            raise RuntimeError(f"{argv}: {done.stderr}")
        return done.stdout


def _commit(at: int) -> str:
    words = f"{at}\n"
    who = f"committer x <x@example.org> {1_700_000_000 + at} +0000\n"
    return f"commit refs/heads/main\n{who}data {len(words)}\n{words}M 644 inline position\ndata {len(words)}\n{words}\n"


def _environment() -> dict[str, str]:
    """Git without the user's own settings; one core a process."""
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **quiet, "OPENBLAS_NUM_THREADS": "1"}


# --- the comparison


def everybody(history: History, most: int) -> Iterator[tuple[str, Found]]:
    yield "harness", settle(history)
    yield f"harness, {WORKERS} workers", settle(history, workers=WORKERS)
    yield "harness, 95 %", weigh(history, most=most)
    yield f"harness, 95 %, {WORKERS} workers", weigh(history, workers=WORKERS, most=most)
    with tempfile.TemporaryDirectory() as folder:
        repository = Repository(Path(folder), most=most)
        yield "git bisect" + (", masked is bad" if history.masks else ""), repository.bisect(history, masked=1)
        if history.masks:
            yield "git bisect, masked is skip", repository.bisect(history, masked=125)
        if importlib.util.find_spec("git_bayesect"):
            yield "git-bayesect", repository.bayesect(history)


def compare(history: History, *, most: int) -> list[tuple[str, Found]]:
    return list(everybody(history, most))


def row(who: str, found: list[Found]) -> str:
    probes, rounds = ([getattr(each, name) for each in found] for name in ("probes", "rounds"))
    shares = (
        f"{sum(each.kind == kind for each in found) / len(found):6.0%}"
        for kind in ("right", "range", "none", "open", "wrong")
    )
    numbers = f"{statistics.mean(probes):7.1f} {max(probes):5} {found[0].confirm:7} {statistics.mean(rounds):7.1f}"
    return f"  {who:<28} {numbers} {max(rounds):5}  {''.join(shares)}"


def table(count: int, jobs: int, most: int) -> None:
    print(f"{SIZE} builds, {count} histories of each kind          probes        con-      rounds")
    print(f"  {'':<28}    mean   max   firm    mean   max   right range  none  open wrong")
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        for kind in KINDS:
            results = list(pool.map(partial(compare, most=most), histories(kind, count)))
            print(kind)
            for number, (who, _) in enumerate(results[0]):
                print(row(who, [each[number][1] for each in results]), flush=True)


# --- the aims


def share(found: list[Found], kind: str) -> float:
    return sum(each.kind == kind for each in found) / len(found)


def aims(count: int) -> Iterator[tuple[str, float, float]]:
    """What is measured, its value, and the most that it may be."""
    probes = math.ceil(math.log2(SIZE)) + 2
    rounds = math.ceil(math.log(SIZE, WORKERS + 1)) + 1
    straight = histories("clean", count)
    yield "clean: most probes, both ends counted", max(settle(each).probes for each in straight), probes
    fanned = (settle(each, workers=WORKERS).rounds for each in straight)
    yield f"clean: most rounds of {WORKERS} workers", max(fanned), rounds
    for kind in ("masked elsewhere", "masked over culprit", "two masks, one over it"):
        for search in (settle, weigh):
            found = [search(each) for each in histories(kind, count)]
            yield f"{kind}: wrong, {search.__name__}", share(found, "wrong"), 0
    for kind, most in (("flaky, 20%", 0.03), ("no culprit, in 80%", 0.05)):
        yield f"{kind}: wrong", share([weigh(each) for each in histories(kind, count)], "wrong"), most


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few histories: seconds instead of minutes")
    parser.add_argument("--histories", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=2)
    words = parser.parse_args()
    begin = time.monotonic()
    if not importlib.util.find_spec("git_bayesect"):
        print("git-bayesect is not installed, its rows are missing: python -m pip install '.[bench]'\n")
    table(*((QUICK_HISTORIES, words.jobs, QUICK_MOST) if words.quick else (words.histories, words.jobs, MOST)))
    missed = 0
    count = QUICK_AIMED if words.quick else AIMED
    print(f"\naims, on {count} histories of each kind")
    for what, value, most in aims(count):
        missed += value > most
        print(f"  {what:<48} {value:8.3g}, at most {most:.3g}{'' if value <= most else '   MISSED'}", flush=True)
    print(f"\n{time.monotonic() - begin:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
