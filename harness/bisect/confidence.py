"""A failure that comes and goes: which build it came with, and how sure that is. Pure.

Hypotheses: the failure came with build c (1 … n-1), or with none of them: all are alike, the good end too. A build that
has it shows it with probability f in a run, one that has it not only by a false alarm, with probability ε:

    L(c, f) = ε^S(<c) · (1-ε)^P(<c) · f^S(≥c) · (1-f)^P(≥c)          S: runs that showed it, P: runs that passed

so a pass is weak evidence (one in five bad builds passes at f = 0.8) and a failure strong. f is not known: hypotheses
are weighed over a grid of rates, which is also how the rate is learnt on the way. Builds that cannot be judged weigh
nothing; hypotheses that only they would tell apart are one answer with several builds. Beside them the next probe goes
aside, and what lies inside a long stretch of them is presumed to be as they are, both as in `search`.

The next probe is the one from which most is expected to be learnt, the mutual information of its outcome and the
hypothesis: A. Ben-Or and A. Hassidim, "The Bayesian Learner is Optimal for Noisy Binary Search", FOCS 2008; the unknown
rate is as in git-bayesect.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from harness.bisect.search import Answer, Stretch, chance, stretches

FALSE_ALARM = 0.002
"""A run that shows the very signature although the build has it not: rare, as it is one sentence; but a single such run
must not be a proof."""
RATES = tuple((step + 0.5) / 40 for step in range(40))
"""Probabilities with which a bad build shows the failure, all as likely before the first run."""
NONE = 0.5
"""That no build brought it, before the first run. With less, people who named a wrong good end would be told a culprit
more often than was asked: where there is none, one is named in at most (1 - asked) / asked · (1 - NONE) / NONE of
searches (Ville's inequality, over the rates above). It costs a probe more than 0.2 does. A good end that was chosen
*because* it passed is beyond this: at a rate of 30 % one search in eight names a culprit, at 50 % one in seventy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """All runs of one build."""

    shown: int = 0
    passed: int = 0
    unknown: bool = False
    """It cannot be judged."""
    cause: str = ""
    """Why not: neighbours with the same cause are one stretch."""

    @property
    def runs(self) -> int:
        return self.shown + self.passed


@dataclass(frozen=True, kw_only=True, slots=True)
class Posterior:
    culprit: tuple[float, ...]
    """Of each build that it came with it; the first is position 1."""
    none: float
    """That all builds are alike."""
    rate: float
    """Expected probability with which a bad build shows the failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoCulprit:
    """All builds are alike."""

    probability: float


def posterior(size: int, tallies: Mapping[int, Tally]) -> Posterior:
    """How likely each hypothesis is after these runs."""
    weights, rates = _weights(size, tallies)
    total = sum(weights)
    shares = [weight / total for weight in weights]
    rate = sum(share * rate for share, rate in zip(shares, rates, strict=True))
    return Posterior(culprit=tuple(shares[1:]), none=shares[0], rate=rate)


def next_probe(size: int, tallies: Mapping[int, Tally], *, busy: Collection[int] = ()) -> int | None:
    """The build of which one more run is expected to tell most, ties to the middle; None: there is none to try.

    `busy`: builds of which a run is under way. They are taken to tell on which side of them the change is, so that
    several workers split the range instead of crowding where it is most even:

        none … 40 … 80 … 120 … 160 … 199        with 80 busy, 120 says something of 81 … 199 alone
    """
    weights, rates = _weights(size, tallies)
    total = sum(weights)
    shares = [weight / total for weight in weights]
    # Running sums over hypotheses give those of any part, and so each build, in one step.
    has = [0.0, *accumulate(shares)]
    shows = [0.0, *accumulate(share * rate for share, rate in zip(shares, rates, strict=True))]
    doubt = [0.0, *accumulate(share * _entropy(rate) for share, rate in zip(shares, rates, strict=True))]
    walls, unknown = [-1, *sorted(busy), size - 1], _unknown(tallies)

    def told(at: int) -> float:
        """Of the part it lies in, the hypotheses up to `at` say that this build has the failure, those after not."""
        low, high = walls[bisect_left(walls, at) - 1] + 1, walls[min(bisect_right(walls, at), len(walls) - 1)] + 1
        free = has[high] - has[at + 1]
        mass = has[high] - has[low]
        seen = shows[at + 1] - shows[low] + free * FALSE_ALARM
        bits = mass * _entropy(seen / mass) if mass > 0 else 0.0
        return bits - (doubt[at + 1] - doubt[low]) - free * _entropy(FALSE_ALARM)

    def promise(at: int) -> float:
        return told(at) * (1.0 if tallies.get(at, Tally()).runs else chance(at, unknown))

    left = [at for at in range(size) if at not in busy and _tells(at, tallies, unknown)]
    return min(left, key=lambda at: (-round(promise(at), 9), abs(at - size / 2)), default=None)


def decide(size: int, tallies: Mapping[int, Tally], *, asked: float) -> Answer | NoCulprit | None:
    """The answer that is right with the asked probability, if there is one yet.

    Of builds that cannot be told apart (those between can not be judged) it names all; and the build before them and
    the last of them were judged: beside a wide gap a build that nobody looked at has too small a share to be missed.
    """
    found = posterior(size, tallies)
    if found.none >= asked:
        return NoCulprit(probability=found.none)
    for first, last in _classes(size, tallies):
        judged = all(tallies.get(at, Tally()).runs for at in (first - 1, last))
        if judged and sum(found.culprit[first - 1 : last]) >= asked:
            return Answer(first=first, last=last, untested=tuple(at for at in range(first, last) if at not in tallies))
    return None


def probes(size: int, *, rate: float, asked: float) -> int:
    """Runs that it will take, about: bits to be learnt over what a run tells of a build that is bad every other time.

    A run is a use of a Z-channel: a good build always passes, a bad one passes with 1 - rate; its capacity is
    log2(1 + rate · (1 - rate)^((1 - rate) / rate)).
    """
    rate = min(max(rate, RATES[0]), 1.0)
    capacity = math.log2(1 + rate * (1 - rate) ** ((1 - rate) / rate))
    return math.ceil((math.log2(max(2, size - 1)) + math.log2(1 / (1 - asked))) / capacity)


def _unknown(tallies: Mapping[int, Tally]) -> tuple[Stretch, ...]:
    return stretches({at: tally.cause if tally.unknown else None for at, tally in tallies.items()})


def _tells(at: int, tallies: Mapping[int, Tally], unknown: Collection[Stretch]) -> bool:
    """Whether it can be judged, as far as is known."""
    return not tallies.get(at, Tally()).unknown and not any(each.presumes(at) for each in unknown)


def _classes(size: int, tallies: Mapping[int, Tally]) -> list[tuple[int, int]]:
    """Positions of hypotheses that no probe can tell apart: up to the next build that can be judged."""
    unknown = _unknown(tallies)
    classes, first = [], 1
    for at in range(1, size):
        if _tells(at, tallies, unknown) or at == size - 1:
            classes.append((first, at))
            first = at + 1
    return classes


def _weights(size: int, tallies: Mapping[int, Tally]) -> tuple[list[float], list[float]]:
    """Of each hypothesis (0: none) its weight, and the expected rate under it."""
    shown = [0, *accumulate(tallies.get(at, Tally()).shown for at in range(size))]
    passed = [0, *accumulate(tallies.get(at, Tally()).passed for at in range(size))]
    logs, rates = [], []
    for at in range(size):
        prior = NONE if at == 0 else (1 - NONE) / (size - 1)
        quiet = shown[at] * math.log(FALSE_ALARM) + passed[at] * math.log(1 - FALSE_ALARM)
        evidence, rate = _rates(shown[size] - shown[at], passed[size] - passed[at])
        logs.append(math.log(prior) + quiet + evidence)
        rates.append(rate)
    top = max(logs)
    return [math.exp(each - top) for each in logs], rates


@lru_cache(maxsize=4096)
def _rates(shown: int, passed: int) -> tuple[float, float]:
    """Log-likelihood of these runs of bad builds, weighed over all rates, and the expected rate after them."""
    logs = [shown * math.log(rate) + passed * math.log(1 - rate) for rate in RATES]
    top = max(logs)
    weights = [math.exp(each - top) for each in logs]
    mean = sum(weight * rate for weight, rate in zip(weights, RATES, strict=True)) / sum(weights)
    return top + math.log(sum(weights) / len(RATES)), mean


def _entropy(chance: float) -> float:
    """In bits."""
    if not 0 < chance < 1:
        return 0.0
    return -chance * math.log2(chance) - (1 - chance) * math.log2(1 - chance)
