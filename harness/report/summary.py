"""Markdown for a CI annotation (Buildkite shows up to 1 MiB of it): the verdict first, the command to reproduce last.

Whatever a server or a scenario wrote is either escaped or stands in a fence longer than any run of backticks in it, so
that no log line can end a block, break a table or become a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness import launches
from harness.record import Launched, Run, load
from harness.report.cases import (
    FRAMES,
    RANK_OF_VERDICT,
    environment,
    headline,
    known_words,
    number,
    outcome,
    signature_facts,
    under_words,
    verdict,
)
from harness.report.markdown import code, escape, fenced, joined, table
from harness.report.node_facts import remarks
from harness.report.text import cut_middle, log_excerpt, one_line, visible
from harness.timeline import Phase

LOG_BYTES = 12_000
BLOCK_BYTES = 8_000
"""Longest command shown."""
MAX_ROWS = 1_000
SHOWN_SECONDS = 0.05
"""Shorter phases (`ready` is a moment) are no news of a run that passed."""


def render(run: Run, folder: Path) -> str:
    """The summary of one run; short where it passed."""
    blocks = [f"### {outcome(run)} · {escape(run.title)} · {escape(headline(run))}"]
    blocks += [f"**{escape(words)}**" for words in (known_words(run), under_words(run)) if words]
    if verdict(run) != "PASS":
        blocks += _trouble(run)
    blocks += [
        _checks(run),
        _phases(run),
        _environment(run),
        "\n".join(f"- {escape(remark)}" for remark in remarks(run)),
        *map(_differing, run.launches),
        *map(_uneven, run.launches),
        *map(_teardown, run.launches),
    ]
    if verdict(run) in ("FAIL", "ERROR"):
        blocks.append(_log(run, folder))
    return joined(blocks, [f"Reproduce:\n\n{fenced(cut_middle(visible(run.reproduce), BLOCK_BYTES), 'sh')}"])


def render_many(folders: Iterable[Path]) -> str:
    """One table of several runs, the bad ones first, and the command of each bad one.

    Raises:
        UsageError: a folder without a readable record.
    """
    runs = sorted((load(folder) for folder in folders), key=lambda run: RANK_OF_VERDICT[outcome(run)])
    counts = [f"{n} {word}" for word in RANK_OF_VERDICT if (n := sum(outcome(run) == word for run in runs))]
    rows = [_run_row(run) for run in runs[:MAX_ROWS]]
    listed = table(("verdict", "scenario", "build", "ready s", "", "signature"), rows)
    more = (
        f"… and {len(runs) - MAX_ROWS} more runs, none of them worse than the last shown."
        if len(runs) > MAX_ROWS
        else ""
    )
    commands = [one_line(run.reproduce, BLOCK_BYTES) for run in runs[:MAX_ROWS] if verdict(run) != "PASS"]
    again = f"Reproduce:\n\n{fenced(chr(10).join(dict.fromkeys(commands)), 'sh')}" if commands else ""
    return joined([f"### {len(runs)} runs: {', '.join(counts) or 'none'}", listed, more, again], [])


def _trouble(run: Run) -> list[str]:
    found = run.signature
    facts = " · ".join(f"{word} {code(value)}" for word, value in signature_facts(run))
    frames = [f"{frame.function} ({frame.file}:{frame.line})" for frame in found.frames[:FRAMES]] if found else []
    others = "\n".join(f"- or: {escape(title)}" for title in found.alternatives) if found else ""
    return [
        escape(run.reason) if run.reason and one_line(run.reason) != headline(run) else "",
        f"**What to do:** {escape(run.fix)}" if run.fix else "",
        facts,
        fenced("\n".join(one_line(frame, 500) for frame in frames)) if frames else "",
        others,
    ]


def _checks(run: Run) -> str:
    """What each check says; of one that passed only what has a limit, the rest is in run.json."""
    rows: list[tuple[str, ...]] = []
    for check in run.checks:
        name = code(launches.case(check.name, check.launch))
        outcome = {"pass": "✓", "fail": "**✗**", "not_tested": "—"}[check.outcome]
        rows.append((outcome, name, escape(check.message), "", "", ""))
        for value in check.measurements:
            if check.outcome == "pass" and value.limit is None:
                continue
            sense = "≤" if value.sense == "max" else "≥"
            limit = "" if value.limit is None else f"{sense} {number(value.limit)}"
            mark = "✓" if value.ok else "**✗**"
            rows.append((mark, name, escape(value.name), escape(number(value.value)), escape(value.unit), limit))
    return table(("", "check", "measured", "value", "unit", "limit"), rows)


def _phases(run: Run) -> str:
    """A table where it went wrong or several servers stand side by side, one line where one passed."""
    if len(started := [each for each in run.launches if each.timeline.phases]) > 1:
        order = launches.expected(run.resolved)
        places = {name: place for place, name in enumerate(order)}
        return _side_by_side(sorted(started, key=lambda each: places.get(launches.startup(each.launch), len(order))))
    phases = run.timeline.phases
    if verdict(run) == "PASS":
        shown = [(p.label, p.end - p.start) for p in phases if p.end is not None and p.end - p.start >= SHOWN_SECONDS]
        spent = [f"{label} {seconds:.1f} s" for label, seconds in shown]
        ready = [f"ready after {run.timeline.ready:.1f} s"] if run.timeline.ready is not None else []
        return " · ".join(ready + spent)
    rows = [
        (
            phase.label,
            f"{phase.start:.1f}",
            f"{phase.end - phase.start:.1f}" if phase.end is not None else "",
            "✓" if phase.completed else "not completed",
        )
        for phase in phases
    ]
    return table(("phase", "from s", "seconds", ""), rows)


def _side_by_side(started: Sequence[Launched]) -> str:
    """Seconds of every phase, a column a server; the last row is the time to ready."""
    labels = dict.fromkeys(phase.label for each in started for phase in each.timeline.phases)
    took = [{phase.label: _took(phase) for phase in each.timeline.phases} for each in started]
    rows = [(label, *(column.get(label, "") for column in took)) for label in labels]
    ready = [each.timeline.ready for each in started]
    last = ("**ready after**", *("never" if seconds is None else f"**{seconds:.1f}**" for seconds in ready))
    return table(("seconds of", *(escape(each.launch) or "the server" for each in started)), [*rows, last])


def _took(phase: Phase) -> str:
    return f"{phase.end - phase.start:.1f}" if phase.end is not None and phase.completed else "not completed"


def _environment(run: Run) -> str:
    steps = [f"{escape(name)} {seconds:.1f} s" for name, seconds in run.steps.items()]
    return " · ".join([*(f"{word} {code(value)}" for word, value in environment(run)), *steps])


def _differing(launched: Launched) -> str:
    if not launched.differing:
        return ""
    words = one_line(", ".join(launched.differing), BLOCK_BYTES)
    return f"{escape(launched.launch)}: other packages: {escape(words)}"


def _uneven(launched: Launched) -> str:
    """Ranks that run other code than their peers are news, also where the run passed."""
    lines = [
        f"- {escape(name)}: " + ", ".join(f"{escape(rank)} {code(', '.join(said))}" for rank, said in ranks.items())
        for name, ranks in launched.uneven.items()
    ]
    who = f"{escape(launched.launch)}: " if launched.launch else ""
    return "\n".join([f"{who}**Ranks chose differently**", *lines]) if lines else ""


def _teardown(launched: Launched) -> str:
    done, who = launched.teardown, f"{escape(launched.launch)}: " if launched.launch else ""
    if done is None:
        return ""
    if not done.survivors and not done.left:
        return f"{who}Stopped in {done.seconds:.1f} s; no process left."
    lines = [f"{who}**Not clean after the stop** ({done.seconds:.1f} s: {escape('; '.join(done.steps))})"]
    lines += [f"- still alive: {code(name)}" for name in done.survivors]
    return "\n".join(lines + [f"- left: {code(name)}" for name in done.left])


def _log(run: Run, folder: Path) -> str:
    log = log_excerpt(folder / run.log, run.evidence, limit=LOG_BYTES)
    return f"<details><summary>{run.log}</summary>\n\n{fenced(log)}\n\n</details>" if log else ""


def _run_row(run: Run) -> tuple[str, ...]:
    word = outcome(run) if outcome(run) == "PASS" else f"**{outcome(run)}**"
    said = "; ".join(filter(None, (headline(run), known_words(run), under_words(run))))
    ready = f"{run.timeline.ready:.1f}" if run.timeline.ready is not None else ""
    identity = code(run.signature.id) if run.signature else ""
    return word, escape(run.title), code(run.build), ready, escape(one_line(said, 300)), identity
