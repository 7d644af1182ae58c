"""A comparison as text for people and as JSON. Rows that are equal are counted, choices are always shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.report.comparison import Comparison, Pair, Row, Seconds
from harness.report.text import one_line

WIDTH = 400
"""Longest value shown."""
MARKS = {"same": "=", "differs": "≠", "only one": "A", "only other": "B", "not reached": "?"}
LEGEND = "= same   ≠ differs   A, B said only there   ? not said by a server that never came up"
ORDER = ("differs", "only one", "only other", "not reached", "same")


def to_text(found: Comparison) -> str:
    """The answer first, then choices, then what may be the reason, then what came of it."""
    sections = {name: _section(name, rows) for name, rows in found.sections.items()}
    blocks = [
        [one_line(found.sentence)],
        _sides(found),
        *(block for pair in found.pairs for block in _chosen(pair)),
        sections.get("flags", []),
        *(_section(_of("env", pair), pair.env or ()) for pair in found.pairs),
        *(sections.get(name, []) for name in ("build", "packages", "node")),
        *(_phases(_of("Seconds of phases", pair), pair.phases) for pair in found.pairs),
        *(sections.get(name, []) for name in ("verdict", "signature", "checks")),
        _open_ends(found),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _sides(found: Comparison) -> list[str]:
    return [f"{side}  {one_line(each.name)}  ({each.what})" for side, each in (("A", found.one), ("B", found.other))]


def _of(head: str, pair: Pair) -> str:
    return f"{head} [{one_line(pair.name)}]" if pair.name else head


def _chosen(pair: Pair) -> Iterator[list[str]]:
    if shown := sorted(pair.choices, key=lambda row: ORDER.index(row.state)):
        yield [f"{_of('Choices', pair)}   {LEGEND}", *_lines(shown)]
    yield _ranks(pair)
    if pair.sizes:
        yield [f"{_of('Sizes', pair)}, which follow from model, flags and memory", *_lines(pair.sizes)]
    yield _section(_of("versions", pair), pair.versions)


def _ranks(pair: Pair) -> list[str]:
    lines = [
        f"  {side}  {one_line(name)}: {', '.join(f'{rank} {_value(said)}' for rank, said in ranks.items())}"
        for side, uneven in zip("AB", pair.uneven, strict=True)
        for name, ranks in uneven.items()
    ]
    return ["Ranks of one server chose differently", *lines] if lines else []


def _section(name: str, rows: Sequence[Row]) -> list[str]:
    """What differs, and how much does not."""
    apart = [row for row in rows if row.state != "same"]
    if not rows:
        return []
    head = name[:1].upper() + name[1:]
    same = len(rows) - len(apart)
    if not apart:
        return [f"{head}: {'the same' if same == 1 else f'all {same} the same'}"]
    return [f"{head}: {len(apart)} of {len(rows)} differ", *_lines(apart)]


def _lines(rows: Iterable[Row]) -> Iterator[str]:
    """Two lines for a difference, so that long values can be read one below the other."""
    shown = [(row, one_line(row.name, WIDTH)) for row in rows]
    wide = max((len(name) for _, name in shown), default=0)
    for row, name in shown:
        begin = f"  {MARKS[row.state]} {name:<{wide}}  "
        if row.state == "same":
            yield begin + _value(row.one)
        else:
            yield f"{begin}A  {_value(row.one)}"
            yield f"{'':<{len(begin)}}B  {_value(row.other)}"


def _value(values: Sequence[str] | None) -> str:
    return "—" if values is None else one_line(", ".join(values), WIDTH)


def _phases(head: str, phases: Sequence[Seconds]) -> list[str]:
    if not phases:
        return []
    wide = max(len(each.phase) for each in phases)
    lines = [f"  {each.phase:<{wide}}  {_number(each.one):>8}  {_number(each.other):>8}" for each in phases]
    return [head, f"  {'':<{wide}}  {'A':>8}  {'B':>8}", *lines]


def _number(seconds: float | None) -> str:
    return "—" if seconds is None else f"{seconds:.1f}"


def _open_ends(found: Comparison) -> list[str]:
    lines = [
        f"{'A and B do' if len(sides) > 1 else f'{sides[0]} does'} not say: {', '.join(names)}"
        for sides, names in _grouped(found)
    ]
    for side, names in zip("AB", found.alone, strict=True):
        lines += [f"launch {one_line(name) or 'without a name'}: only in {side}" for name in names]
    for side, each in (("A", found.one), ("B", found.other)):
        lines += [f"{side}: {one_line(note)}" for note in each.notes]
    return ["Not compared, or only in part", *(f"  {line}" for line in lines)] if lines else []


def _grouped(found: Comparison) -> list[tuple[tuple[str, ...], list[str]]]:
    """Sections that are not compared, by the sides that lack them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, sides in found.unknown.items():
        groups.setdefault(sides, []).append(name)
    return list(groups.items())


def to_json(found: Comparison) -> dict[str, Any]:
    """The comparison with every row, `same` ones too; values are lists, null: not said."""
    return {
        "sentence": found.sentence,
        "same": found.same,
        "one": {"name": found.one.name, "what": found.one.what, "notes": found.one.notes},
        "other": {"name": found.other.name, "what": found.other.what, "notes": found.other.notes},
        "servers": [_pair_json(pair) for pair in found.pairs],
        "only_in_one": found.alone[0],
        "only_in_other": found.alone[1],
        "sections": {name: [_row_json(row) for row in rows] for name, rows in found.sections.items()},
        "not_compared": found.unknown,
    }


def _pair_json(pair: Pair) -> dict[str, Any]:
    tables = {"choices": pair.choices, "sizes": pair.sizes, "versions": pair.versions, "env": pair.env}
    return {
        "launch": [pair.one.launch, pair.other.launch],
        **{name: None if rows is None else [_row_json(row) for row in rows] for name, rows in tables.items()},
        "ranks_differ": pair.uneven,
        "phases": [{"phase": each.phase, "one": each.one, "other": each.other} for each in pair.phases],
    }


def _row_json(row: Row) -> Mapping[str, Any]:
    return {"name": row.name, "state": row.state, "one": row.one, "other": row.other}
