"""In which packages two environments differ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageChange:
    """One package of which two environments have different versions; None: it is not there."""

    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        """`numpy 2.1.0 → 2.2.0`, `numpy 2.1.0 → not there`."""
        return f"{self.name} {self.before or 'not there'} → {self.after or 'not there'}"


def difference(
    one: Mapping[str, str], other: Mapping[str, str], *, held: Collection[str] = ()
) -> tuple[PackageChange, ...]:
    """The packages whose version differs, by name; those in `held` are not looked at. Versions by normalised name."""
    names = sorted({*one, *other} - set(held))
    changes = (PackageChange(name=name, before=one.get(name), after=other.get(name)) for name in names)
    return tuple(change for change in changes if change.before != change.after)


def applied(packages: Mapping[str, str], changes: Iterable[PackageChange]) -> dict[str, str]:
    """The packages after these changes, by name."""
    after = {change.name: change.after for change in changes}
    return {name: version for name, version in sorted({**packages, **after}.items()) if version is not None}
