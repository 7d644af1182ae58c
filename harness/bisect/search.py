"""Which build to probe next, and when the change is found. Pure: positions in a range, no builds, no I/O.

Position 0 is the verified end before the change, the last one the verified end after it:

    0     1     2     3     4     5     6     7
    before            ?     ?     ?     after after        the window is (1, 6): what is still possible are 2 … 6

On a clean range this is bisection: ⌈log2 n⌉ probes for n candidates, which no search can beat; with k workers it is
(k+1)-ary. A build that cannot be judged (masked by another bug, not to be made) says nothing, and neither will its
neighbours, most likely: the next probe goes aside, the farther the wider the unknown stretch has proved to be. What is
unknown between the two sides stays part of the answer: never one culprit across a gap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

Side = Literal["before", "after"]
"""Whether a build shows the change: `before` not yet, `after` it does."""

PRESUMED_FROM = 6
"""Probes in one stretch that were unknown for the same cause, after which what lies between them is taken to be so too,
and only its two edges are looked for: a bug that covers 100 builds is not probed 100 times. The answer can get wider by
it, never wrong. (Where one build in five cannot be judged by mere chance, six in a row are one stretch in 15,000.)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """A build that cannot be judged."""

    cause: str
    """Title of the bug that covers, or the reason of the skip: neighbours with the same cause are one stretch."""


Seen = Side | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The change came with one of the builds `first` … `last`, both included; one build where they are the same."""

    first: int
    last: int
    untested: tuple[int, ...] = ()
    """Those among them that were not probed, because the ones around them are unknown for one cause."""

    @property
    def single(self) -> bool:
        return self.first == self.last


def window(size: int, seen: Mapping[int, Seen]) -> tuple[int, int]:
    """The last build before and the first build after the change; the ends count as judged.

    Where an earlier build shows the change and a later one does not, it is the first change that is looked for.
    """
    after = min((at for at, side in seen.items() if side == "after"), default=size - 1)
    before = max((at for at, side in seen.items() if side == "before" and at < after), default=0)
    return before, after


def matters(size: int, seen: Mapping[int, Seen], position: int) -> bool:
    """Whether a probe there can still say anything; a running one that cannot is to be cancelled."""
    before, after = window(size, seen)
    return before < position < after


def contradictions(seen: Mapping[int, Seen]) -> tuple[tuple[int, int], ...]:
    """Neighbours in the wrong order: (one that shows the change, a later one that does not)."""
    judged = sorted((at, side) for at, side in seen.items() if not isinstance(side, Unknown))
    return tuple((at, later) for (at, one), (later, other) in pairwise(judged) if (one, other) == ("after", "before"))


def targets(size: int, seen: Mapping[int, Seen], *, workers: int = 1, running: Collection[int] = ()) -> tuple[int, ...]:
    """What to probe now, for the workers that are not busy with `running`; empty where there is nothing left to try."""
    before, after = window(size, seen)
    busy = sorted(at for at in running if before < at < after)
    unknown = _inside(seen, before, after)
    free = set(_open(seen, before, after, unknown)) - set(busy)
    chosen: list[int] = []
    for goal, spacing in _goals(_gaps(before, after, busy, unknown), workers - len(busy)):
        left = sorted(free - set(chosen))
        promises = {at: _promise(at, goal, spacing, unknown) for at in left}
        chosen += [max(left, key=promises.__getitem__)] if left else []
    return tuple(chosen)


def answer(size: int, seen: Mapping[int, Seen]) -> Answer | None:
    """The builds with one of which the change came; None while a probe can still narrow them."""
    before, after = window(size, seen)
    if _open(seen, before, after, _inside(seen, before, after)):
        return None
    untested = tuple(at for at in range(before + 1, after) if at not in seen)
    return Answer(first=before + 1, last=after, untested=untested)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Neighbours among the probed that are unknown for one cause."""

    at: tuple[int, ...]

    @property
    def width(self) -> int:
        return self.at[-1] - self.at[0] + 1

    @property
    def closed(self) -> bool:
        """Whether what lies between its probes is presumed to be as they are."""
        return len(self.at) >= PRESUMED_FROM

    def presumes(self, position: int) -> bool:
        return self.closed and self.at[0] < position < self.at[-1]

    def distance(self, position: int) -> int:
        return min(abs(position - at) for at in self.at)


def stretches(causes: Mapping[int, str | None]) -> tuple[Stretch, ...]:
    """Of probed builds and why each cannot be judged (None: it can), the neighbours with one cause."""
    groups = groupby(sorted(causes.items()), key=lambda pair: pair[1])
    return tuple(Stretch(at=tuple(at for at, _ in group)) for cause, group in groups if cause is not None)


def chance(position: int, unknown: Iterable[Stretch]) -> float:
    """That a build beside such stretches can be judged: at distance d from one of width w it is taken as d / (d + w).

    One unknown build sends the next probe a few places aside, a stretch of forty sends it forty. The edges of a closed
    stretch are bisected as any other range.
    """
    distances = [(each.distance(position), each.width) for each in unknown if not each.closed]
    return min((far / (far + width) for far, width in distances), default=1.0)


def _inside(seen: Mapping[int, Seen], before: int, after: int) -> tuple[Stretch, ...]:
    unknown = {at: side.cause for at, side in seen.items() if isinstance(side, Unknown)}
    return stretches({at: cause for at, cause in unknown.items() if before < at < after})


def _open(seen: Mapping[int, Seen], before: int, after: int, unknown: Iterable[Stretch]) -> list[int]:
    """Builds that are worth a probe."""
    return [at for at in range(before + 1, after) if at not in seen and not any(each.presumes(at) for each in unknown)]


def _gaps(before: int, after: int, busy: Iterable[int], unknown: Iterable[Stretch]) -> list[tuple[int, int]]:
    """What lies between the window's edges, running probes and stretches whose inside is presumed."""
    walls = [(before, before), *((at, at) for at in busy), (after, after)]
    walls += [(each.at[0], each.at[-1]) for each in unknown if each.closed]
    return [(left[1], right[0]) for left, right in pairwise(sorted(walls)) if right[0] > left[1]]


def _goals(gaps: list[tuple[int, int]], count: int) -> Iterator[tuple[float, float]]:
    """Points that split the gaps most evenly, each with the distance to its neighbours."""
    points = [0] * len(gaps)
    for _ in range(max(0, count)):
        widest = max(range(len(gaps)), key=lambda at: (gaps[at][1] - gaps[at][0]) / (points[at] + 1))
        points[widest] += 1
    for (left, right), number in zip(gaps, points, strict=True):
        spacing = (right - left) / (number + 1)
        yield from ((left + spacing * (point + 1), spacing) for point in range(number))


def _promise(position: int, goal: float, spacing: float, unknown: Iterable[Stretch]) -> float:
    """How much a probe there is worth: near to where it splits evenly, far from what cannot be judged."""
    return chance(position, unknown) / (1 + ((position - goal) / spacing) ** 2) ** 2
