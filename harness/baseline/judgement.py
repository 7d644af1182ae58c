"""Is a value worse than those before it? A stated rule for few, noisy samples. Pure.

    limit = median + max(k(n) · spread, 3 % of the median)

`spread` is the median of all pairwise differences |xi - xj|, times 1.0483 so that it estimates the standard deviation
of normal noise (Bickel and Lehmann, Descriptive Statistics for Nonparametric Models IV: Spread, 1979; discussed beside
the MAD in Rousseeuw and Croux, Alternatives to the Median Absolute Deviation, JASA 88, 1993). Five values have ten
differences but only five deviations from their median: at the same rate of false alarms the limit needs 8 spreads where
it needs 20 MADs. Up to 29 % of the values may be anything.

`k(n)` was found by simulation (benchmarks/baseline_alarms.py): the factor that a value with nothing wrong exceeds in
0.5 % of nights, the largest of normal, log-normal (sigma 0.35, skewed as start-up times are) and Student's t noise (5
degrees of freedom). A scenario with a cold and a warm start has two values, so at most 1 % of its nights.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

FEWEST = 5
"""Values below which nothing is judged."""
WINDOW = 20
"""The last so many values count: what is normal moves."""
CONSISTENT = 1.0483
"""Makes the median pairwise difference an estimate of the standard deviation of normal noise."""
FLOOR = 0.03
"""Of the median: a smaller slow-down is no news, also where values happen to be equal to the millisecond."""
FACTORS = {
    5: 8.0, 6: 6.9, 7: 6.2, 8: 5.8, 9: 5.7, 10: 5.4, 11: 5.4, 12: 5.1, 13: 5.0, 14: 5.0, 15: 4.9, 16: 4.9, 17: 4.9,
    18: 4.8, 19: 4.8, 20: 4.7,
}  # fmt: skip
"""k(n) by the number of values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Normal:
    """What is normal. All in the unit of the values."""

    count: int
    median: float
    spread: float
    """Robust estimate of the standard deviation."""
    limit: float
    """A value above it is a regression."""


def normal(values: Sequence[float]) -> Normal | None:
    """Of values in their order, oldest first; None where there are fewer than `FEWEST`."""
    used = list(values)[-WINDOW:]
    if len(used) < FEWEST:
        return None
    median = statistics.median(used)
    spread = CONSISTENT * statistics.median(abs(a - b) for a, b in combinations(used, 2))
    limit = median + max(FACTORS[len(used)] * spread, FLOOR * median)
    return Normal(count=len(used), median=median, spread=spread, limit=limit)
