"""What differs between two runs: first whether the same code ran, then everything that may be the reason. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from harness.choices import Uneven
from harness.report.sides import Facts, Server, Side
from harness.runtimes.base import ChoiceRule
from harness.timeline import seconds

SECTIONS = ("flags", "build", "packages", "node", "verdict", "signature", "checks")
NAMED = 4
"""Differing choices that the first sentence names."""
SHORT = 80
"""Characters of values that it repeats."""

State = Literal["same", "differs", "only one", "only other", "not reached"]
MIRROR: Mapping[State, State] = {"only one": "only other", "only other": "only one"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    name: str
    one: tuple[str, ...] | None
    other: tuple[str, ...] | None
    state: State
    """not reached: one of the servers never came up, so that it may have said no more than the beginning."""

    @property
    def mirrored(self) -> Row:
        return replace(self, one=self.other, other=self.one, state=MIRROR.get(self.state, self.state))


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """Of one occurrence of a phase; None: that server did not complete it."""

    phase: str
    one: float | None
    other: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two servers that stand for each other."""

    one: Server
    other: Server
    choices: tuple[Row, ...]
    sizes: tuple[Row, ...]
    """What follows from model, flags and memory: other numbers here are no other code."""
    versions: tuple[Row, ...]
    env: tuple[Row, ...] | None
    phases: tuple[Seconds, ...]

    @property
    def name(self) -> str:
        """`cold`, or `warm / the only one` where the names differ."""
        if self.one.launch == self.other.launch:
            return self.one.launch
        return " / ".join(each.launch or "the only one" for each in (self.one, self.other))

    @property
    def differing(self) -> tuple[Row, ...]:
        return tuple(row for row in self.choices if row.state not in ("same", "not reached"))

    @property
    def same(self) -> bool | None:
        """Whether the same code ran; None: not everything is known."""
        if not (self.one.choices and self.other.choices):
            return None
        if self.differing:
            return False
        return True if self.one.came_up and self.other.came_up else None

    @property
    def uneven(self) -> tuple[Uneven, Uneven]:
        return self.one.uneven, self.other.uneven


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    one: Side
    other: Side
    pairs: tuple[Pair, ...]
    alone: tuple[tuple[str, ...], tuple[str, ...]]
    """Launches of each side for which the other has none."""
    sections: Mapping[str, tuple[Row, ...]]
    unknown: Mapping[str, tuple[Literal["A", "B"], ...]]
    """Sections that could not be compared, and the sides that lack them: A is `one`, B `other`."""

    @property
    def same(self) -> bool | None:
        """Whether the same code ran; None: not everything is known."""
        found = [pair.same for pair in self.pairs]
        return False if False in found else None if None in found or not found else True

    @property
    def sentence(self) -> str:
        """The answer. The sides are A and B in it."""
        said = {pair.name: _sentence(pair) for pair in self.pairs}
        if not said:
            return "nothing to compare: there is a side on which no server was started"
        if len(set(said.values())) == 1:
            return next(iter(said.values()))
        return "; ".join(f"{name or 'the server'}: {sentence}" for name, sentence in said.items())


def compare(one: Side, other: Side) -> Comparison:
    paired = tuple(_paired(one, other))
    known = [name for name in SECTIONS if name in one.facts and name in other.facts]
    taken = ({id(a) for a, _ in paired}, {id(b) for _, b in paired})
    return Comparison(
        one=one,
        other=other,
        pairs=tuple(_pair(a, b, one.runtime.choices) for a, b in paired),
        alone=(_left(one, taken[0]), _left(other, taken[1])),
        sections={name: rows(one.facts[name], other.facts[name]) for name in known},
        unknown={name: lack for name in (*SECTIONS, "env") if (lack := _lacking(name, one, other))},
    )


def _lacking(name: str, one: Side, other: Side) -> tuple[Literal["A", "B"], ...]:
    lacks = [_lacks(side, name) for side in (one, other)]
    return (*(("A",) if lacks[0] else ()), *(("B",) if lacks[1] else ()))


def _lacks(side: Side, name: str) -> bool:
    return any(server.env is None for server in side.servers) if name == "env" else name not in side.facts


def _left(side: Side, taken: set[int]) -> tuple[str, ...]:
    return tuple(server.launch for server in side.servers if id(server) not in taken)


def _paired(one: Side, other: Side) -> Iterator[tuple[Server, Server]]:
    """Servers of one name; where no name is shared, those that the records speak of."""
    theirs = {server.launch: server for server in other.servers}
    common = [server for server in one.servers if server.launch in theirs]
    if common:
        yield from sorted(((s, theirs[s.launch]) for s in common), key=lambda pair: pair[0].launch)
    elif one.servers and other.servers:
        yield _spoken_of(one), _spoken_of(other)


def _spoken_of(side: Side) -> Server:
    return next((server for server in side.servers if server.launch == side.speaks_of), side.servers[-1])


def _pair(one: Server, other: Server, rules: Iterable[ChoiceRule]) -> Pair:
    tells = {rule.name: rule.tells for rule in rules}
    order = {name: place for place, name in enumerate(tells)}
    judged = {
        row.name: _reached(row, one, other)
        for row in sorted(rows(one.choices, other.choices), key=lambda row: order.get(row.name, len(order)))
    }
    told = {what: tuple(r for r in judged.values() if tells.get(r.name, "path") == what) for what in _TOLD}
    env = rows(one.env, other.env) if one.env is not None and other.env is not None else None
    return Pair(
        one=one, other=other, choices=told["path"], sizes=told["size"], versions=told["version"], env=env,
        phases=tuple(_seconds(one, other)),
    )  # fmt: skip


_TOLD = ("path", "size", "version")


def rows(one: Facts, other: Facts) -> tuple[Row, ...]:
    """All facts of both sides, by name."""
    return tuple(_row(name, one.get(name), other.get(name)) for name in sorted({*one, *other}))


def _row(name: str, one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> Row:
    state: State = "only other" if one is None else "only one" if other is None else "differs"
    return Row(name=name, one=one, other=other, state="same" if one == other else state)


def _reached(row: Row, one: Server, other: Server) -> Row:
    """What a server that never came up did not say (yet) is no difference."""
    a, b = row.one or (), row.other or ()
    begun = (not one.came_up and b[: len(a)] == a) or (not other.came_up and a[: len(b)] == b)
    return replace(row, state="not reached") if begun and row.state != "same" else row


def _seconds(one: Server, other: Server) -> Iterator[Seconds]:
    """Every phase, in the order of the server that came to it later."""
    places = [{phase.label: at for at, phase in enumerate(each.timeline.phases)} for each in (one, other)]
    took = [seconds(each.timeline) for each in (one, other)]
    for label in sorted({*places[0], *places[1]}, key=lambda label: (max(p.get(label, -1) for p in places), label)):
        yield Seconds(phase=label, one=took[0].get(label), other=took[1].get(label))
    ready = (one.timeline.ready, other.timeline.ready)
    if ready != (None, None):
        yield Seconds(phase="time to ready", one=ready[0], other=ready[1])


def _sentence(pair: Pair) -> str:
    for side, server in (("A", pair.one), ("B", pair.other)):
        if not server.choices:
            return f"nothing to compare: {side} logged no choices (it came to {_last(server)})"
    if not pair.differing:
        return "same choices: the same code paths were taken" + ("" if pair.same else _as_far(pair))
    named = ", ".join(map(_named, pair.differing[:NAMED]))
    more = f" and {len(pair.differing) - NAMED} more" if len(pair.differing) > NAMED else ""
    count = len(pair.differing)
    return f"{count} {'choice differs' if count == 1 else 'choices differ'}: {named}{more}"


def _named(row: Row) -> str:
    """`moe_backend (TritonExperts / MarlinExperts)`; of long values only the name."""
    values = f"{_words(row.one)} / {_words(row.other)}"
    return f"{row.name} ({values})" if len(values) <= SHORT else row.name


def _as_far(pair: Pair) -> str:
    """`, as far as B came (capture#1); 4 choices are not known of both`."""
    sides = (("A", pair.one), ("B", pair.other))
    came = " and ".join(f"{side} came ({_last(server)})" for side, server in sides if not server.came_up)
    if not (open_ := sum(row.state == "not reached" for row in pair.choices)):
        return f", as far as {came}"
    return f", as far as {came}; {open_} {'choice is' if open_ == 1 else 'choices are'} not known of both"


def _last(server: Server) -> str:
    return server.timeline.last.label if server.timeline.last else "not started"


def _words(values: tuple[str, ...] | None) -> str:
    return "not said" if values is None else ", ".join(values)
