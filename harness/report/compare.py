"""What two runs do not have in common, so that a difference in what they did is not put down to the build alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from harness.environment.changes import PackageChange, difference
from harness.record import Run


def packages(one: Run, other: Run, *, held: Collection[str] = ()) -> tuple[str, ...]:
    """Packages whose versions differ: `numpy 2.1.0 → 2.2.0`, `only in ID: x 1.0`; without those in `held`.

    Empty where one of the runs never came to an environment: nothing is known of it then.
    """
    if not (one.packages and other.packages):
        return ()
    return tuple(_lines(difference(one.packages, other.packages, held=held), one.id, other.id))


def _lines(changes: tuple[PackageChange, ...], one: str, other: str) -> Iterator[str]:
    both = [change for change in changes if change.before and change.after]
    yield from map(str, both)
    for change in (change for change in changes if change not in both):
        yield f"only in {one if change.before else other}: {change.name} {change.before or change.after}"
