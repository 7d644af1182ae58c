"""Pictures as SVG, drawn by matplotlib where it is installed; each says only what a table beside it says too.

matplotlib writes colours as `#rrggbb`. They are drawn in colours that nobody uses and replaced by CSS variables, so
that one picture serves light and dark. It is drawn 440 pixels wide: readable on a phone, and enlarged elsewhere.
"""

from __future__ import annotations

import importlib.util
import io
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WITHOUT = "Pictures are drawn where matplotlib is (pip install 'harness[html]'); all their numbers are in the tables."
WIDTH, ROW = 4.4, 0.34
"""Inches: of a picture, of one row in it."""
DPI = 100
MOST_ROWS = 60
"""Of one picture."""

# Colours as they are drawn, and the CSS variables that take their place.
INK, MUTED, BAND, BAR, BAD, GRID, WARN = (f"#01020{n}" for n in range(3, 10))
_VARIABLES = {INK: "ink", MUTED: "muted", BAND: "band", BAR: "bar", BAD: "bad", GRID: "line", WARN: "warn"}
_RC: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "harness", "font.family": "sans-serif", "font.size": 8.5,
    "hatch.linewidth": 0.6, "hatch.color": INK, "text.parse_math": False, "text.color": INK, "axes.edgecolor": GRID,
    "xtick.color": MUTED,
}  # fmt: skip
DONE: Any = {"color": BAR}
BROKEN_OFF: Any = {"facecolor": "none", "hatch": "////", "edgecolor": BAD}
_BESIDE: Any = {"textcoords": "offset points", "va": "center", "fontsize": 8}
_ALONE = threading.Lock()
"""Settings and fonts of matplotlib are the process's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A phase of a start. Seconds since the spawn."""

    label: str
    start: float
    end: float
    completed: bool
    median: float | None = None
    """Of its length, before."""
    limit: float | None = None
    """A longer one is not normal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One thing over several nights, oldest first."""

    label: str
    values: tuple[float | None, ...]
    """Seconds; the last is the one that the page is about."""
    median: float | None = None
    limit: float | None = None
    bad: frozenset[int] = frozenset()
    """Positions of those that did not pass."""


def available() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def timeline(bars: Sequence[Bar], *, name: str) -> Markup:
    """Phases one below the other; behind each what is normal for it, from its own start."""
    return _drawn(len(bars), name, lambda axes: _timeline(axes, bars)) if bars else Markup()


def trend(rows: Sequence[Row], *, name: str) -> Markup:
    """Seconds over nights, a row each with a scale of its own that begins at 0."""
    parts = [rows[at : at + MOST_ROWS] for at in range(0, len(rows), MOST_ROWS)]
    return Markup().join(_drawn(len(part), f"{name}-{at}", partial(_trend, rows=part)) for at, part in enumerate(parts))


def shares(parts: Sequence[tuple[str, float]], *, name: str) -> Markup:
    """Probabilities as bars."""
    return _drawn(len(parts), name, lambda axes: _shares(axes, parts)) if parts else Markup()


def _timeline(axes: Axes, bars: Sequence[Bar]) -> None:
    for y, bar in enumerate(bars):
        if bar.limit is not None:
            axes.barh(y, bar.limit, left=bar.start, height=0.86, color=BAND)
        if bar.median is not None:
            axes.plot([bar.start + bar.median] * 2, [y - 0.43, y + 0.43], color=INK, lw=1, ls=(0, (2, 1)))
        slow = bar.limit is not None and bar.end - bar.start > bar.limit
        axes.barh(y, bar.end - bar.start, left=bar.start, height=0.46, **(DONE if bar.completed else BROKEN_OFF))
        said = seconds(bar.end - bar.start) + ("" if bar.completed else ", not completed") + (" ▲" if slow else "")
        _at_the_edge(axes, y, said, color=WARN if slow else INK if bar.completed else BAD)
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(0, max(bar.end for bar in bars) or 1.0)
    axes.set_xlabel("seconds since the spawn", color=MUTED)
    axes.grid(axis="x", color=GRID, lw=0.5)
    axes.set_axisbelow(True)


def _at_the_edge(axes: Axes, y: int, said: str, *, color: str) -> None:
    """What a row says, in one column to the right of the picture: beside bars it would now and then be on them."""
    at = axes.get_yaxis_transform()
    axes.annotate(said, (1, y), (7, 0), at, color=color, annotation_clip=False, **_BESIDE)


def _trend(axes: Axes, rows: Sequence[Row]) -> None:
    last = max(len(row.values) for row in rows) - 1
    for y, row in enumerate(rows):
        _line(axes, row, y, last)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(-0.04 * max(last, 1), 1.04 * max(last, 1))
    axes.set_xticks([0, last] if last else [0], ["oldest", "newest"] if last else ["newest"])
    axes.spines[:].set_visible(False)


def _line(axes: Axes, row: Row, y: int, last: int) -> None:
    known = [(last - len(row.values) + 1 + x, value) for x, value in enumerate(row.values) if value is not None]
    top = max([value for _, value in known] + [row.limit or 0.0]) or 1.0
    height = [y + 0.4 - 0.8 * value / top for _, value in known]
    offset = last - len(row.values) + 1
    if row.limit is not None:
        axes.fill_between([0, last + 0.01], y + 0.4 - 0.8 * row.limit / top, y + 0.4, color=BAND, lw=0)
    if row.median is not None:
        axes.plot([0, last + 0.01], [y + 0.4 - 0.8 * row.median / top] * 2, color=INK, lw=0.6, ls=(0, (2, 2)))
    axes.plot([x for x, _ in known], height, color=BAR, lw=1, marker=".", ms=4)
    bad = [(x, h) for (x, _), h in zip(known, height, strict=True) if x - offset in row.bad]
    axes.plot([x for x, _ in bad], [h for _, h in bad], color=BAD, lw=0, marker="x", ms=5)
    if known and row.values[-1] is not None:
        axes.plot([known[-1][0]], [height[-1]], color=INK, marker="D", ms=3.5, lw=0)
    now = row.values[-1]
    said = seconds(now) if now is not None else "not reached"
    said += f" (usual {seconds(row.median)})" if row.median is not None else ""
    slow = now is not None and row.limit is not None and now > row.limit
    _at_the_edge(axes, y, f"{said} ▲" if slow else said, color=WARN if slow else INK)


def _shares(axes: Axes, parts: Sequence[tuple[str, float]]) -> None:
    axes.barh(range(len(parts)), [share for _, share in parts], color=BAR, height=0.5)
    for y, (_, share) in enumerate(parts):
        axes.annotate(f"{share:.1%}", (share, y), (4, 0), **_BESIDE)
    axes.set_yticks(range(len(parts)), [label for label, _ in parts])
    axes.set_ylim(len(parts) - 0.4, -0.6)
    axes.set_xlim(0, 1.15)
    axes.set_xticks([])


def seconds(value: float) -> str:
    """As in the tables: every number of a picture stands there in the same digits."""
    return f"{value:.1f} s"


def _drawn(rows: int, name: str, draw: Callable[[Axes], None]) -> Markup:
    if not available():
        return Markup()
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and 0.7 s
    from matplotlib.figure import Figure  # noqa: PLC0415

    with _ALONE, mpl.rc_context(_RC), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name in letters that its font lacks: the browser has them
        figure = Figure(figsize=(WIDTH, ROW * rows + 0.5), dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        axes.tick_params(length=0)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.spines[["top", "right", "left"]].set_visible(False)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return Markup(_inline(buffer.getvalue(), name))  # noqa: S704 - matplotlib escapes what it writes


_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r'(?:url\(#|href="#)([^")]+)')


def _inline(svg: str, name: str) -> str:
    """A file of its own made part of a page: no prolog, no style for all elements, no id that another picture has."""
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    used = set(_REFERENCE.findall(body))
    body = re.sub(r' id="[xy]tick_\d+"', ' class="tick"', body)
    body = _ID.sub(lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", body)
    body = _REFERENCE.sub(lambda found: found[0].replace(f"#{found[1]}", f"#{name}-{found[1]}"), body)
    for drawn, variable in _VARIABLES.items():
        body = body.replace(drawn, f"var(--{variable})")
    box = re.search(r'viewBox="[^"]*"', svg)
    return f'<svg class="plot" role="img" aria-label="{name}: see the table" {box[0] if box else ""}>{body}'
