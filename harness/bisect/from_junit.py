"""What a red nightly lets us bisect, read from the properties of its JUnit file; see `report.junit`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from junitparser import JUnitXml, TestSuite

from harness.build import Build, parse
from harness.errors import UsageError

_FIX = "name the junit.xml of a run, or a file that `harness report --junit` merged"


@dataclass(frozen=True, kw_only=True, slots=True)
class Red:
    """One failure of one scenario."""

    title: str
    """`NAME[VARIANT]`, the name of its suite."""
    scenario: str
    """As it can be found again: the path of the run's command, or its name."""
    variant: str | None
    sets: tuple[str, ...]
    build: Build
    node_class: str
    signature: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Nightly:
    red: tuple[Red, ...] = ()
    """One for each signature of each scenario."""
    errors: tuple[str, ...] = ()
    """Titles that came to no verdict on the product: there is nothing to bisect."""
    green: Mapping[str, Build]
    """The build of each title that passed."""


def read(path: Path) -> Nightly:
    """Read a JUnit file of ours.

    Raises:
        UsageError: not readable, or its suites lack our properties.
    """
    try:
        report = JUnitXml.fromstring(path.read_bytes())
        suites = list(report) if isinstance(report, JUnitXml) else [report]
        rows = [(suite, _properties(suite)) for suite in suites]
        bad = [(suite, row) for suite, row in rows if suite.failures or suite.errors]
    except Exception as error:  # the parser's own errors are of several libraries
        raise UsageError(f"{path} is no readable JUnit file: {error}", fix=_FIX) from error
    if not rows or any("scenario" not in row or "build" not in row for _, row in rows):
        raise UsageError(f"{path} was not written by harness: its suites name no scenario and build", fix=_FIX)
    return Nightly(
        red=tuple(red for suite, row in bad for red in _reds(suite.name, row)),
        errors=tuple(suite.name for suite, row in bad if not any(_signatures(row))),
        green={suite.name: _build(row) for suite, row in rows if row.get("verdict") == "PASS"},
    )


def _properties(suite: TestSuite) -> dict[str, str]:
    return {str(each.name): str(each.value or "") for each in suite.properties()}  # type: ignore[no-untyped-call]


def _reds(title: str, row: Mapping[str, str]) -> Iterator[Red]:
    path, sets = _command(row.get("reproduce", ""))
    for signature in dict.fromkeys(_signatures(row)):
        yield Red(
            title=title,
            scenario=path if path and Path(path).is_file() else row["scenario"],
            variant=row.get("variant") or None,
            sets=sets,
            build=_build(row),
            node_class=row.get("node_class", ""),
            signature=signature,
        )


def _signatures(row: Mapping[str, str]) -> Iterator[str]:
    """Of a title that was run several times there may be several side by side."""
    for name, value in row.items():
        if name.startswith("signature.") and "FAIL" in row.get("verdict", ""):
            yield from value.split(", ")


def _build(row: Mapping[str, str]) -> Build:
    """What was on somebody's PATH is not there tomorrow, but its version is a release."""
    build = row["build"].split(", ")[0]
    return parse(row["version"].split(", ")[0]) if build == "current" and row.get("version") else parse(build)


def _command(reproduce: str) -> tuple[str, tuple[str, ...]]:
    """Path and `--set` words of the first command."""
    try:
        words = shlex.split(reproduce)
    except ValueError:
        return "", ()
    sets = tuple(after for word, after in pairwise(words) if word == "--set")
    return (words[2] if words[:2] == ["harness", "run"] and len(words) > 2 else ""), sets  # noqa: PLR2004
