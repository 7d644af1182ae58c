"""JUnit XML that Jenkins, GitLab and Buildkite read the same way, and whose names are the same every night.

Rules, each learnt from a reader:

- one control character makes Jenkins drop the file: all text goes through `text.visible`;
- the schema that Jenkins publishes knows properties on a suite only, and no `skipped` on the root;
- Jenkins keeps twice 50,000 characters of a failing case's output;
- GitLab shows the text of a failure and not its message, so the text begins with it; of two cases with one name
  it drops one; it refuses files of 30 MB;
- Buildkite's Test Engine wants class and name on every case and at most 5,000 cases a file.

`[[ATTACHMENT|path]]` is left out: GitLab wants it relative to the checkout, which a run's folder knows nothing about.
"""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import SystemOut

from harness.errors import UsageError
from harness.record import Launched, Run, load
from harness.report.cases import STARTUP, Case, cases, details, headline, known_words, outcome, under_words, verdict
from harness.report.node_facts import driver, remarks
from harness.report.text import cut_middle, log_excerpt, one_line, visible

MAX_CASES = 5_000
MAX_FILE_BYTES = 28_000_000
MAX_NODE_BYTES = 1_000_000
OUTPUT_BYTES = 40_000
EXCERPT_BYTES = 8_000
"""Log lines repeated in the text of a failure, for readers that do not show the output."""

Attempt = tuple[Run, Path]
RANK = {"failure": 3, "error": 2, "pass": 1, "skipped": 0}
"""Of several attempts at one case the worst counts; one that ran counts more than one that did not."""


class Report(JUnitXml):
    # The published schema has no such attribute on <testsuites>; here it hides the one that junitparser would write.
    skipped = 0


def render(run: Run, folder: Path) -> str:
    """The XML text of one run."""
    return _bounded([(run, folder)])[1]


def merge_junit(folders: Iterable[Path]) -> JUnitXml:
    """One report of several runs, a suite per scenario and variant.

    Runs of one title (`--repeat`, several nights) become attempts at the same cases: a second case of the same name
    would be dropped by GitLab, and `k/N` in a name would begin a new history. A case fails if any attempt failed; its
    text has every failing attempt, its time is the mean, and the suite's property `attempts` says how many were bad.

    Raises:
        UsageError: a folder without a readable record; more cases than one file may have.
    """
    return _bounded([(load(folder), folder if folder.is_dir() else folder.parent) for folder in folders])[0]


def to_text(report: JUnitXml) -> str:
    """The report as it is written to a file."""
    buffer = io.BytesIO()
    report.write(buffer, pretty=True)
    return buffer.getvalue().decode("utf-8")


def _bounded(attempts: Sequence[Attempt]) -> tuple[JUnitXml, str]:
    for shrink in (1, 4, 16, 64):
        report = _report(attempts, shrink)
        text = to_text(report)
        if len(text.encode()) <= MAX_FILE_BYTES:
            return report, text
    raise UsageError(
        f"the JUnit file of {len(attempts)} runs is too large for CI", fix="merge fewer runs into one file"
    )


def _report(attempts: Sequence[Attempt], shrink: int) -> JUnitXml:
    groups: dict[str, list[Attempt]] = {}
    for run, folder in attempts:
        groups.setdefault(_suite_title(run), []).append((run, folder))
    report = Report("harness")
    for title, group in groups.items():
        report.append(_suite(one_line(title), group, shrink))  # type: ignore[no-untyped-call]
    report.update_statistics()  # type: ignore[no-untyped-call]
    total = sum(len(suite) for suite in report)
    if total > MAX_CASES:
        raise UsageError(f"{total} cases, but a JUnit file may have {MAX_CASES}", fix="merge fewer runs into one file")
    return report


def _suite_title(run: Run) -> str:
    # What was found behind a known failure is no second attempt at the scenario itself.
    count = len(run.under)
    return f"{run.title} under {count} workaround{'s' if count > 1 else ''}" if count else run.title


def _suite(title: str, group: Sequence[Attempt], shrink: int) -> TestSuite:
    suite = TestSuite(title)
    for name, value in _joined_properties(group):
        suite.add_property(name, value)
    hosts = {str(run.node.get("hostname") or "") for run, _ in group}
    if len(hosts) == 1 and (host := one_line(hosts.pop())):
        suite.hostname = host
    if stamp := _timestamp(group[0][0].started):
        suite.timestamp = stamp
    suite.add_testcases([_testcase(title, name, found, shrink) for name, found in _by_name(group)])
    suite.append(SystemOut(_node("\n\n".join(_story(run) for run, _ in group), OUTPUT_BYTES // shrink)))  # type: ignore[no-untyped-call]
    return suite


def _by_name(group: Sequence[Attempt]) -> Iterator[tuple[str, list[tuple[Case, Attempt]]]]:
    found: dict[str, list[tuple[Case, Attempt]]] = {}
    for attempt in group:
        for case in cases(attempt[0]):
            found.setdefault(case.name, []).append((case, attempt))
    yield from found.items()


def _testcase(title: str, name: str, found: list[tuple[Case, Attempt]], shrink: int) -> TestCase:
    worst, _ = max(found, key=lambda pair: RANK[pair[0].kind])  # the first of the worst
    ran = [case.seconds for case, _ in found if case.kind != "skipped"]
    made = TestCase(one_line(name), title, round(sum(ran) / len(ran), 3) if ran else 0.0)
    if worst.kind == "skipped":
        made.result = Skipped(worst.message, worst.type)
        return made
    if worst.kind == "pass":
        return made
    bad = [pair for pair in found if pair[0].kind in ("failure", "error")]
    result = (Failure if worst.kind == "failure" else Error)(worst.message, worst.type)
    result.text = _node(_text(bad, len(found)), MAX_NODE_BYTES // shrink)
    made.result = result
    made.system_out = _node(_output(bad, OUTPUT_BYTES // shrink), OUTPUT_BYTES // shrink)
    return made


def _text(bad: Sequence[tuple[Case, Attempt]], total: int) -> str:
    parts = []
    for case, (run, folder) in bad:
        excerpt = (
            log_excerpt(folder / run.log, run.evidence, limit=EXCERPT_BYTES, tail=False)
            if case.place and run.evidence
            else ""
        )
        parts.append("\n\n".join(part for part in (details(run, case), excerpt) if part))
    if total == 1:
        return parts[0]
    return "\n\n".join([f"{bad[0][0].message}\n{len(bad)} of {total} attempts failed", *parts])


def _output(bad: Sequence[tuple[Case, Attempt]], limit: int) -> str:
    share = limit // len(bad)
    logs = (log_excerpt(folder / run.log, run.evidence, limit=share) for case, (run, folder) in bad if case.place)
    return "\n\n".join(log for log in logs if log) or "no server.log: the server was never started"


def _story(run: Run) -> str:
    lines = [
        f"{verdict(run)} {run.title}: {headline(run)}",
        *filter(None, (known_words(run), under_words(run))),
        f"build: {run.build} {run.version or ''}",
        *remarks(run),
        f"Reproduce: {run.reproduce}",
    ]
    return "\n".join(lines)


def _node(text: str, limit: int) -> str:
    return cut_middle(visible(text), limit)


def _joined_properties(group: Sequence[Attempt]) -> Iterator[tuple[str, str]]:
    """Each property once; the different values of several runs side by side."""
    values: dict[str, list[str]] = {}
    for run, _ in group:
        for name, value in _properties(run):
            values.setdefault(one_line(name), []).append(value)
    if len(group) > 1:
        bad = sum(outcome(run) in ("FAIL", "ERROR") for run, _ in group)
        values["attempts"] = [f"{bad}/{len(group)} bad"]
    for name, several in values.items():
        yield name, one_line(", ".join(dict.fromkeys(several)), 4_000)


def _properties(run: Run) -> Iterator[tuple[str, str]]:
    yield from (
        ("scenario", run.scenario),
        ("variant", run.variant or ""),
        ("build", run.build),
        ("version", run.version or ""),
    )
    yield from (
        ("fingerprint", run.fingerprint),
        ("node_class", run.node_class),
        ("run", run.id),
        ("schema", str(run.schema)),
    )
    yield from (("verdict", verdict(run)), ("state", run.state), ("blame", run.blame or ""), ("harness", run.harness))
    yield from (("refs", " ".join(run.refs)), ("reproduce", run.reproduce))
    if run.known:
        yield "known", run.known.words
    if run.under:
        yield "under", " and ".join(run.under)
    if words := driver(run):
        yield "driver", words
    if run.xids:
        yield "xids", ", ".join(f"{xid.number} on {f'GPU {xid.gpu}' if xid.own else 'another GPU'}" for xid in run.xids)
    if run.kernel_log:
        yield "kernel_log", run.kernel_log
    yield from ((f"step.{name}", _decimal(seconds)) for name, seconds in run.steps.items())
    for each in run.launches:
        yield from _times(each)
    if run.signature:
        place = next((case.name for case in cases(run) if case.place), STARTUP)
        yield f"signature.{place}", run.signature.id


def _times(launched: Launched) -> Iterator[tuple[str, str]]:
    of = f"[{launched.launch}]" if launched.launch else ""
    if launched.timeline.ready is not None:
        yield f"ready{of}", _decimal(launched.timeline.ready)
    for phase in launched.timeline.phases:
        if phase.end is not None:
            yield f"phase{of}.{phase.label}", _decimal(phase.end - phase.start)


def _decimal(seconds: float) -> str:
    return f"{max(0.0, seconds):.3f}"


def _timestamp(started: str) -> str | None:
    """UTC without a zone, as the oldest schema has it; None where the record's own time cannot be read."""
    try:
        moment = dt.datetime.fromisoformat(started)
    except ValueError:
        return None
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
