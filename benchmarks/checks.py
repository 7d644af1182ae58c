"""What all checks of a scenario add to the start of a real server, beyond the time in which it answers requests.

    python benchmarks/checks.py [SCENARIO[VARIANT]] [BUILD]      default: tiny_lm[ngram] release:0.32.0

The rival is the start itself: seconds of the checks in which no request was under way, as a share of the time to ready.
A second server, to compare with, is a start of its own and counted in neither. Exits 1 above 20 %.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from harness import run, scenario
from harness.build import parse

LIMIT = 0.20


def main(words: list[str]) -> int:
    name, build = [*words, *("tiny_lm[ngram]", "release:0.32.0")[len(words) :]]
    path, variant = scenario.find(name)
    with tempfile.TemporaryDirectory() as folder:
        done = run.execute(scenario.load(path, variant=variant), build=parse(build), out=Path(folder))
    if done.verdict != "PASS":
        print(f"{done.verdict}: {done.reason}")
        return 1
    own = done.own[-1]
    assert own.timeline.ready is not None  # it passed
    print(f"{'check':<14} {'seconds':>8} {'asking':>8} {'beside':>8}")
    for check in done.checks:
        print(f"{check.name:<14} {check.seconds:>8.2f} {check.asking:>8.2f} {check.seconds - check.asking:>8.2f}")
    beside = sum(check.seconds - check.asking for check in done.checks)
    share = beside / own.timeline.ready
    print(f"{beside:.2f} s beside the requests, {own.timeline.ready:.1f} s to ready: {share:.1%}, at most {LIMIT:.0%}")
    return 0 if share <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
