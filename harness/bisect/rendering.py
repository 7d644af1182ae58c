"""A bisection to paste into an issue (Markdown), for CI (JUnit) and to look at (HTML), from its record and the runs."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import SystemOut

from harness import record
from harness.bisect.outcome import Bisection, Probe
from harness.errors import UsageError
from harness.record import Run, replace_text, writable
from harness.report.html import bisection_page
from harness.report.markdown import code, escape, fenced, joined, table
from harness.report.text import cut_middle, log_excerpt, one_line, visible

LOG_BYTES = 16_000
NAMES = ("bisection.md", "junit.xml", "report.html")


def write(told: Bisection, folder: Path) -> None:
    """All reports, atomically, beside the record; the runs are looked for beside that folder."""
    text = markdown(told, folder.parent)
    with writable(folder):
        replace_text(folder / NAMES[0], text)
        replace_text(folder / NAMES[1], junit(told, text))
        replace_text(folder / NAMES[2], page(told, folder.parent))


def markdown(told: Bisection, out: Path) -> str:
    """What was found, the table of probes, both logs, the commands. `out` is the folder that holds the runs."""
    blocks = [
        f"### {escape(sentence(told))}",
        f"{escape(told.fix_hint)}" if told.fix_hint else "",
        _facts(told, _title(told)),
        *(f"- {escape(note)}" for note in told.notes),
        table(("build", "mark", "why", "as", "runs"), [_row(probe) for probe in told.probes]),
        _ladder(told),
        table(("build", "probability"), [(code(build), f"{share:.1%}") for build, share in told.posterior.items()]),
        f"Not probed, because those around them cannot be judged: {_some(told.untested)}" if told.untested else "",
        f"Between them:\n\n{fenced(cut_middle(visible(told.log), LOG_BYTES))}" if told.log else "",
        f"Packages that differ between them:\n\n{fenced(_packages(told))}" if told.packages else "",
        *_logs(told, out),
    ]
    return joined(blocks, [f"Reproduce:\n\n{fenced(chr(10).join(commands(told, out)), 'sh')}"])


def page(told: Bisection, out: Path) -> str:
    """One self-contained HTML file; `out` is the folder that holds the runs."""
    sides = [
        bisection_page.Side(build=probe.build, mark=probe.mark, log=_log(out, run))
        for probe in _both(told)
        if (run := _run(out, probe))
    ]
    return bisection_page.render(
        told, out, title=_title(told), headline=sentence(told), commands=commands(told, out), sides=sides
    )


def sentence(told: Bisection) -> str:
    return told.sentence if told.state == "finished" else f"{told.state}: {told.command} goes on"


def _title(told: Bisection) -> str:
    return f"{told.scenario}[{told.variant}]" if told.variant else told.scenario


def commands(told: Bisection, out: Path) -> list[str]:
    """The bisection again, then the runs that show both sides."""
    runs = [run for probe in _both(told) if (run := _run(out, probe))]
    return [one_line(each, 8_000) for each in dict.fromkeys([told.command, *(run.reproduce for run in runs)])]


def _facts(told: Bisection, title: str) -> str:
    facts = [f"scenario {code(title)}", f"node {code(told.node_class)}", f"{len(told.probes)} probes"]
    if told.range:
        facts += [f"range {code(told.range[0])} … {code(told.range[-1])} ({len(told.range)} builds)"]
    if told.signature:
        facts += [f"signature {code(told.signature.id)} {code(told.signature.title)}"]
        facts += [f"stops in {code(told.stop)}"] if told.stop else []
    if told.before and told.culprits:
        facts += [f"good {code(told.before)}" if not told.fix else f"still bad {code(told.before)}"]
        facts += [f"first {'fixed' if told.fix else 'bad'} {' or '.join(map(code, told.culprits[:10]))}"]
    return " · ".join(facts)


def _packages(told: Bisection) -> str:
    return cut_middle(visible("\n".join(told.packages)), LOG_BYTES)


def _row(probe: Probe) -> tuple[str, ...]:
    mark = {"GOOD": "✓ GOOD", "BAD": "**✗ BAD**", "MASKED": "◐ MASKED", "SKIP": "— SKIP"}[probe.mark]
    why = f"{probe.why}; {probe.under}" if probe.under else probe.why
    return code(probe.build), mark, escape(one_line(why, 300)), escape(probe.role), " ".join(map(code, probe.runs))


def _ladder(told: Bisection) -> str:
    rows = [
        (escape(one_line(rung.cover, 200)), escape(one_line(rung.hidden, 200)), " ".join(map(code, rung.builds)))
        for rung in told.ladder
    ]
    return table(("what is met", "what it hides", "in"), rows)


def _some(builds: tuple[str, ...]) -> str:
    shown = " ".join(map(code, builds[:20]))
    return shown if len(builds) <= 20 else f"{shown} and {len(builds) - 20} more"  # noqa: PLR2004 - one paragraph


def _both(told: Bisection) -> Iterator[Probe]:
    """The probes of the last build before the change and of the first one after it."""
    for word in (told.before, *told.culprits[-1:]):
        yield from [probe for probe in told.probes if probe.build == word and probe.role != "proof"][:1]


def _logs(told: Bisection, out: Path) -> Iterator[str]:
    for probe in _both(told):
        if run := _run(out, probe):
            log = fenced(_log(out, run))
            yield f"<details><summary>{escape(probe.build)}: {probe.mark}</summary>\n\n{log}\n\n</details>"


def _log(out: Path, run: Run) -> str:
    return log_excerpt(out / run.id / run.log, run.evidence, limit=LOG_BYTES)


def _run(out: Path, probe: Probe) -> Run | None:
    if not probe.runs:  # judged from its sources
        return None
    with suppress(UsageError):  # somebody tidied up: the table of probes still stands
        return record.load(out / probe.runs[-1])
    return None


def junit(told: Bisection, text: str) -> str:
    """One suite with three cases, the same ones every night: bad end, good end, culprit."""
    title = f"bisect {_title(told)}"
    suite = TestSuite(one_line(title))
    for name, value in _properties(told):
        suite.add_property(name, one_line(value, 4_000))
    suite.add_testcases(list(_cases(told, title)))
    suite.append(SystemOut(cut_middle(visible(text), 200_000)))  # type: ignore[no-untyped-call]
    report = JUnitXml("harness")
    report.append(suite)  # type: ignore[no-untyped-call]
    report.update_statistics()  # type: ignore[no-untyped-call]
    buffer = io.BytesIO()
    report.write(buffer, pretty=True)
    return buffer.getvalue().decode("utf-8")


def _cases(told: Bisection, title: str) -> Iterable[TestCase]:
    roles = {probe.role: probe for probe in told.probes}
    for name in ("bad end", "good end"):
        case = TestCase(name, title, roles[name].seconds if name in roles else 0.0)
        if name not in roles:
            case.result = Skipped("not reached", "not_reached")
        yield case
    culprit = TestCase("culprit", title, sum(probe.seconds for probe in told.probes))
    said = one_line(told.sentence) or told.state
    if told.ending == "error" or told.ending is None:
        culprit.result = Error(said, told.ending or told.state)
    elif told.ending != "found":
        culprit.result = Failure(said, told.ending)
    yield culprit


def _properties(told: Bisection) -> Iterator[tuple[str, str]]:
    yield from (("scenario", told.scenario), ("variant", told.variant or ""), ("node_class", told.node_class))
    yield from (("good", told.good), ("bad", told.bad), ("ending", told.ending or told.state))
    yield from (("probes", str(len(told.probes))), ("harness", told.harness), ("command", told.command))
    if told.signature:
        yield "signature", told.signature.id
    if told.culprits:
        yield "culprits", " ".join(told.culprits)
