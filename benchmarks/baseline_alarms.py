"""How often the baseline rule alarms with nothing wrong, and the smallest slow-down that it catches; beside two rivals.

    median + k(n) · spread   the rule of harness/baseline/judgement.py
    median + k'(n) · MAD     the same rate of false alarms, with the spread that is used most
    mean + 3 · sd            the rule of thumb

Noise has three shapes, each with the standard deviation (as a share of the time) in the head of its table; `outliers`
is normal noise in which one night in fifty truly took up to several sigmas longer. Exits 1 where the rule alarms in
more than 1 % of nights.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence

from harness.baseline.judgement import FLOOR, normal

NIGHTS = 8_000
POWER = 0.9
COUNTS = (5, 10, 20)
WANTED = 0.01
OUTLIERS = 0.02
MAD_FACTORS = {5: 20.5, 10: 8.0, 20: 5.6}
"""For 0.5 % with the same three shapes, found by simulation as k(n) was."""

Draw = Callable[[random.Random], float]
NOISE: dict[str, Draw] = {
    "normal": lambda rng: rng.gauss(0, 1),
    "log-normal": lambda rng: (math.exp(rng.gauss(0, 0.35)) - 1.063) / 0.384,
    "Student's t (5)": lambda rng: rng.gauss(0, 1) / math.sqrt(rng.gammavariate(2.5, 2) / 5) / 1.291,
    "outliers": lambda rng: rng.gauss(0, 1) if rng.random() > OUTLIERS else abs(rng.gauss(0, 6)),
}
"""Mean 0 and standard deviation 1, but for the outliers."""


def ours(past: Sequence[float]) -> float:
    found = normal(past)
    assert found is not None
    return found.limit


def mad(past: Sequence[float]) -> float:
    median = statistics.median(past)
    spread = 1.4826 * statistics.median([abs(value - median) for value in past])
    return median + max(MAD_FACTORS[len(past)] * spread, FLOOR * median)


def three_sigma(past: Sequence[float]) -> float:
    return statistics.mean(past) + 3 * statistics.stdev(past)


RULES = {"harness": ours, "median + MAD": mad, "mean + 3 sd": three_sigma}


def ratios(rule: Callable[[Sequence[float]], float], draw: Draw, count: int, sigma: float) -> list[float]:
    """For each night, by how much tonight's value may grow before it alarms; sorted. Below 1: it alarms as it is."""
    rng = random.Random(count)
    found = []
    for _ in range(NIGHTS):
        *past, now = (max(1.0, 100 * (1 + sigma * draw(rng))) for _ in range(count + 1))
        found.append(rule(past) / now)
    return sorted(found)


def main() -> int:
    worst = 0.0
    for sigma in (0.01, 0.03, 0.05):
        print(
            f"\nnoise {sigma:.0%} of the time to ready; false alarms a night, and the slow-down caught in {POWER:.0%}"
        )
        print(f"{'noise':<16} {'nights':>6}  " + "  ".join(f"{name:>18}" for name in RULES))
        for name, draw in NOISE.items():
            for count in COUNTS:
                cells = []
                for rule in RULES.values():
                    found = ratios(rule, draw, count, sigma)
                    alarms = sum(ratio < 1 for ratio in found) / NIGHTS
                    caught = found[int(POWER * NIGHTS)] - 1
                    worst = max(worst, alarms) if rule is ours else worst
                    cells.append(f"{alarms:7.2%} {caught:9.0%}")
                print(f"{name:<16} {count:>6}  " + "  ".join(f"{cell:>18}" for cell in cells))
    print(f"\nthe rule's worst rate of false alarms: {worst:.2%} a night; at most 1 % is wanted")
    return 0 if worst <= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
