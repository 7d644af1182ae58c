"""What a call found, for people and programs: `nightly.md` and `nightly.json`. Made anew by every call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import __version__
from harness.nightly.bisecting import Search
from harness.nightly.judging import ORDER, Row
from harness.record import replace_text, writable
from harness.report.markdown import code, escape, fenced, joined, table
from harness.report.text import one_line, visible

SCHEMA = 1
JSON, MARKDOWN = "nightly.json", "nightly.md"
EXIT = {"FAIL": 1, "SLOW": 1, "ERROR": 3, "PASS": 0, "KNOWN": 0}
"""A skip is none of these: a call in which nothing ran is an error."""
_PACKAGES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    name: str
    node_class: str
    rows: tuple[Row, ...]
    searches: tuple[Search, ...] = ()
    troubles: tuple[str, ...] = ()
    """What could not be asked or done."""
    spent: str = ""
    """By the searches of this call."""

    @property
    def ordered(self) -> list[Row]:
        """The worst first."""
        return sorted(self.rows, key=lambda row: (ORDER.index(row.status), row.news == "still"))

    @property
    def sentence(self) -> str:
        counts = [(status, sum(row.status == status for row in self.rows)) for status in ORDER]
        said = ", ".join(f"{count} {status}" for status, count in counts if count)
        new = sum(row.news == "new" for row in self.rows)
        return f"{said or 'nothing'}{f', {new} of them new' if new else ''}"

    def keys(self) -> dict[str, str]:
        """Everything worth telling once: its key, and a line on it."""
        rows = {row.key: f"{row.status} {row.title} on {row.build}: {row.said}" for row in self.rows}
        searches = {each.key: f"{each.title} {each.signature}: {each.said}" for each in self.searches}
        troubles = {f"trouble {each}": each for each in self.troubles}
        return {key: line for key, line in {**rows, **searches, **troubles}.items() if key}


def to_json(story: Story) -> dict[str, Any]:
    return {"schema": SCHEMA, "harness": __version__, "sentence": story.sentence, **asdict(story)}


def write(story: Story, folder: Path) -> None:
    """Both files, atomically."""
    with writable(folder):
        replace_text(folder / JSON, json.dumps(to_json(story), indent=1, ensure_ascii=False) + "\n")
        replace_text(folder / MARKDOWN, markdown(story))


def markdown(story: Story) -> str:
    rows = [_row(row) for row in story.ordered]
    searches = [
        (escape(each.title), code(each.signature), escape(one_line(each.said, 400)), code(each.folder))
        for each in story.searches
    ]
    return joined(
        [
            f"### {escape(story.name)} on {escape(story.node_class)}: {escape(story.sentence)}",
            table(("", "", "scenario", "build", "last green", "", "run"), rows),
            table(("scenario", "signature", "which build brought it", "bisection"), searches),
            f"Searches of this call: {escape(story.spent)}" if story.searches else "",
            "\n".join(f"- **trouble**: {escape(each)}" for each in story.troubles),
            *_changed(story.ordered),
        ],
        _commands(story),
    )


def _row(row: Row) -> tuple[str, ...]:
    word = row.status if row.status in ("PASS", "SKIP", "KNOWN") else f"**{row.status}**"
    said = f"{row.said} — {row.fix}" if row.fix and row.status != "PASS" else row.said
    shown = (escape(one_line(said, 400)), code(row.run))
    return word, row.news, escape(row.title), code(row.build), code(row.green_build), *shown


def _changed(rows: Sequence[Row]) -> Iterator[str]:
    """Packages that came with a build: a failure is not put down to the build alone."""
    for row in rows:
        if row.packages:
            more = f" and {len(row.packages) - _PACKAGES} more" if len(row.packages) > _PACKAGES else ""
            words = escape(", ".join(row.packages[:_PACKAGES]))
            yield f"{escape(row.title)}: other packages than {code(row.green_build)}: {words}{more}"


def _commands(story: Story) -> list[str]:
    bad = [row.reproduce for row in story.ordered if row.reproduce and row.status in ("FAIL", "ERROR", "SLOW")]
    lines = [
        one_line(line, 4_000) for line in dict.fromkeys([*bad, *(each.command for each in story.searches)]) if line
    ]
    return [f"Reproduce:\n\n{fenced(visible(chr(10).join(lines[:100])), 'sh')}"] if lines else []
