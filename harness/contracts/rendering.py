"""A report as text, as JSON and as JUnit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, get_args

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from harness.contracts.accepted import Baseline
from harness.contracts.model import Finding, Report, Rule
from harness.report.junit import MAX_CASES, to_text
from harness.report.text import visible

SCHEMA = 1
_USES = 5


def new(report: Report, baseline: Baseline) -> list[Finding]:
    """The findings that nobody accepted, those that somebody runs into first."""
    fresh = (each for each in report.findings if not baseline.reason(each, report.version))
    return sorted(fresh, key=lambda each: (each.state != "live", each.key))


def as_text(report: Report, baseline: Baseline) -> Iterator[str]:
    """Lines for people: new findings in full, accepted ones as a number."""
    fresh = new(report, baseline)
    looked = sum(report.classes.values())
    yield f"{report.build}: {report.files} files, {looked} classes in {len(report.classes)} hierarchies"
    for each in fresh:
        yield from _lines(each)
    yield from (f"UNREAD {visible(each)}" for each in report.unread)
    yield from (f"  note: {note}" for note in notes(report, baseline))
    live = sum(each.state == "live" for each in fresh)
    yield f"{len(fresh)} new findings ({live} live), {len(report.findings) - len(fresh)} accepted"


def notes(report: Report, baseline: Baseline) -> list[str]:
    """What was not looked at, and accepted findings that are gone."""
    gone = baseline.idle(report.findings, report.version)
    return [*report.notes, *(f"nothing answers to the accepted {key}" for key in gone)]


def _lines(found: Finding) -> Iterator[str]:
    refs = f" (see {', '.join(found.refs)})" if found.refs else ""
    yield f"{found.state.upper():<6} {found.title}"
    yield f"       {found.message}{refs}"
    yield f"       at {found.place}"
    yield from (f"       used at {use}" for use in found.uses[:_USES])
    if len(found.uses) > _USES:
        yield f"       and at {len(found.uses) - _USES} more places"


def as_json(report: Report, baseline: Baseline) -> dict[str, Any]:
    """One object for programs."""
    rows = [_row(each, baseline.reason(each, report.version)) for each in report.findings]
    return {
        "schema": SCHEMA,
        "build": report.build,
        "version": report.version,
        "content": report.content,
        "files": report.files,
        "classes": report.classes,
        "new": sum(row["accepted"] is None for row in rows),
        "findings": rows,
        "unread": list(report.unread),
        "notes": notes(report, baseline),
    }


def _row(found: Finding, reason: str) -> dict[str, Any]:
    return {"key": found.key, "title": found.title, **asdict(found), "accepted": reason or None}


def as_junit(report: Report, baseline: Baseline) -> str:
    """A suite with one case a finding: failed if it is new, skipped if it is accepted; a rule without any passes.

    The names have no line, build or state in them, so that a history of each goes on.
    """
    suite = TestSuite("harness contracts")
    for name, value in (("build", report.build), ("version", report.version), ("content", report.content)):
        suite.add_property(name, visible(value))
    fresh = new(report, baseline)
    others = [each for each in report.findings if each not in fresh]
    cases = [
        *(_case(each, "") for each in fresh),
        *(_case(each, baseline.reason(each, report.version)) for each in others),
    ]
    suite.add_testcases([*map(_unread, report.unread), *_clean(report.findings), *cases][:MAX_CASES])
    suite.add_property("notes", visible("\n".join(notes(report, baseline))))
    whole = JUnitXml("harness")
    whole.append(suite)  # type: ignore[no-untyped-call]
    whole.update_statistics()  # type: ignore[no-untyped-call]
    return to_text(whole)


def _case(found: Finding, accepted: str) -> TestCase:
    case = TestCase(visible(f"{found.subject}.{found.member}"), classname=f"contracts.{found.rule}")
    text = visible("\n".join(_lines(found)))
    if accepted:
        case.result = [Skipped(visible(f"accepted: {accepted}"))]
        return case
    failure = Failure(visible(found.message), found.state)
    failure.text = text
    case.result = [failure]
    return case


def _unread(words: str) -> TestCase:
    case = TestCase(visible(words.partition(" cannot be read")[0]), classname="contracts.unread")
    case.result = [Error(visible(words), "unread")]
    return case


def _clean(findings: Iterable[Finding]) -> list[TestCase]:
    broken = {each.rule for each in findings}
    return [TestCase("nothing found", classname=f"contracts.{rule}") for rule in get_args(Rule) if rule not in broken]
