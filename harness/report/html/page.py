"""Templates filled so that nobody's text becomes markup; by its policy a page runs and fetches nothing else."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from harness import __version__
from harness.report.cases import number
from harness.report.text import cut_middle, one_line, visible

HERE = Path(__file__).parent / "templates"
CELL_CHARACTERS = 2_000
BLOCK_BYTES = 200_000
"""Of one block of anybody's text."""
MARKS = {
    "PASS": "✓", "FAIL": "✗", "ERROR": "!", "KNOWN": "◐", "SKIP": "—", "pass": "✓", "fail": "✗", "not_tested": "—",
    "GOOD": "✓", "BAD": "✗", "MASKED": "◐", "untested": "·", "found": "✓", "range": "◐", "error": "!",
}  # fmt: skip
"""A sign beside each colour, and always a word beside each sign."""
LOOKS = {
    "PASS": "good", "FAIL": "bad", "ERROR": "warn", "KNOWN": "warn", "SKIP": "dim", "pass": "good", "fail": "bad",
    "not_tested": "dim", "GOOD": "good", "BAD": "bad", "MASKED": "warn", "untested": "dim", "found": "good",
    "range": "warn", "error": "bad",
}  # fmt: skip


def fill(template: str, **values: Any) -> str:
    """A page."""
    return _environment().get_template(template).render(version=__version__, **values)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, finalize=_shown,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    style, script = _part("page.css"), _part("page.js")
    made.globals |= {"style": style, "script": script, "policy": _policy(script), "look": _look, "mark": _mark}
    made.filters |= {"cell": _cell, "block": _block, "path": path, "number": number, "s": _seconds, "size": _size}
    return made


def _part(name: str) -> Markup:
    return Markup((HERE / name).read_text(encoding="utf-8"))  # noqa: S704 - a file of ours


def _policy(script: str) -> str:
    """Styles and pictures inside the page, one script known by its digest, and nothing from anywhere."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _shown(value: Any) -> Any:
    """Of every text what can be seen: no control character, no lone surrogate, nothing that turns a line around."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _cell(text: Any) -> str:
    return one_line(str(text), CELL_CHARACTERS)


def _block(text: str) -> str:
    return cut_middle(visible(text), BLOCK_BYTES)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"  # noqa: PLR2004 - a tenth of a MB


def _mark(word: str) -> str:
    return MARKS.get(word, "•")


def _look(word: str) -> str:
    return LOOKS.get(word, "dim")


def path(name: str) -> str:
    """A relative file as a link: never a scheme, a host or a query."""
    return f"./{quote(name, errors='surrogatepass')}"
