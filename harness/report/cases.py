"""A run as test cases: `startup`, then one per check, in an order and with names that never change over nights.

Where a scenario launches several servers each has a `startup` of its own: `startup[cold]`, `warmup[cold]`,
`startup[warm]`, … `startup[no speculation]`, `same_output`.

Whatever went wrong has one *place*, and what comes after it was not reached, with that cause and no other:

    startup ✓   warmup ✓   perplexity ✗ TITLE   prefix_cache · not reached: perplexity failed (TITLE)

A trouble that belongs to neither (processes left after the stop, an expected failure that did not come) gets a case of
its own, `run`, which appears only then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from harness import launches
from harness.checks.base import CheckResult, Measurement
from harness.record import Launched, Run
from harness.report.node_facts import driver, remarks
from harness.report.text import one_line, visible

STARTUP, REST = "startup", "run"
FRAMES, WRAPPERS = 12, 5
"""How many frames and demoted messages are shown."""

RANK_OF_VERDICT = {"FAIL": 0, "ERROR": 1, "KNOWN": 2, "SKIP": 3, "PASS": 4}
"""The order in which verdicts are shown: the worst first."""

CaseKind = Literal["pass", "failure", "error", "skipped"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    name: str
    seconds: float
    kind: CaseKind = "pass"
    type: str = ""
    """Kind of the signature, or whose error it is: never a volatile word."""
    message: str = ""
    """One line."""
    place: bool = False
    """This is where the run went wrong."""


def headline(run: Run) -> str:
    """The sentence of the verdict: the title of the signature, else the reason. One bounded line."""
    if run.state == "running":
        where = f" in {run.timeline.last.label}" if run.timeline.last else " before the server was started"
        return f"interrupted: the record ends{where}"
    if run.signature and run.verdict != "PASS":
        return one_line(run.signature.title)
    return one_line(run.reason) or f"{run.verdict or run.state}, and no reason was recorded"


def verdict(run: Run) -> str:
    """As in the record; ERROR for a run that never came to one."""
    return run.verdict or "ERROR"


def outcome(run: Run) -> str:
    """The verdict as people are shown it: a failure that was expected is KNOWN, and nothing to get up for."""
    return "KNOWN" if run.expected else verdict(run)


def known_words(run: Run) -> str:
    """`known: vllm#54636, fixed in 0.30.0`; empty for a failure that nobody knows."""
    return one_line(f"known: {run.known.words}") if run.known else ""


def under_words(run: Run) -> str:
    """`under edit of F in FILE, removes X`; empty for a run without workarounds."""
    return one_line(f"under {' and '.join(run.under)}") if run.under else ""


def cases(run: Run) -> tuple[Case, ...]:
    """Every case of the run, in order."""
    place, results = _place(run), _results(run)
    starts = {launches.startup(each.launch): each for each in run.launches if each.timeline.phases}
    return tuple(
        _startup(run, name, starts.get(name), place=place)
        if _is_startup(name)
        else _check(run, name, results.get(name), place=place)
        for name in [*_expected(run), *([REST] if place == REST else [])]
    )


def _is_startup(name: str) -> bool:
    """`startup` and `startup[cold]`, but not the check `startup_time`."""
    return name.partition("[")[0] == STARTUP


def _results(run: Run) -> dict[str, CheckResult]:
    return {launches.case(check.name, check.launch): check for check in run.checks}


def _expected(run: Run) -> list[str]:
    """What the scenario asks for, then any other launch that there was and any other check that has a result.

    Two launches that differ in a secret read the same in a record.
    """
    further = [launches.startup(each.launch) for each in run.others if each.timeline.phases and each.launch]
    return list(dict.fromkeys([*launches.expected(run.resolved), *further, *_results(run)]))


def _place(run: Run) -> str | None:
    if verdict(run) in ("PASS", "SKIP"):
        return None
    if run.timeline.ready is None:
        return launches.startup(run.launch)
    results = _results(run)
    if failed := next((name for name, check in results.items() if check.outcome == "fail"), None):
        return failed
    # Of the server that the record speaks of first: what is judged after the stop of all stands before a second one.
    order = _expected(run)
    begun = order.index(launches.startup(run.launch)) if launches.startup(run.launch) in order else 0
    unsaid = (name for name in (*order[begun:], *order) if name not in results and not _is_startup(name))
    return next(unsaid, REST)


def _startup(run: Run, name: str, launched: Launched | None, *, place: str | None) -> Case:
    seconds = _startup_seconds(launched) if launched else 0.0
    if name != place and verdict(run) != "SKIP" and launched:
        return Case(name=name, seconds=seconds)
    return _special(run, name, seconds, place=place) or _unreached(run, name, None, place)


def _check(run: Run, name: str, result: CheckResult | None, *, place: str | None) -> Case:
    seconds = _seconds(result.seconds if result else 0.0)
    if special := _special(run, name, seconds, place=place):
        return special
    if result and (result.outcome == "pass" or verdict(run) == "PASS") and result.outcome != "not_tested":
        return Case(name=name, seconds=seconds)
    if result and result.outcome == "fail":
        return Case(name=name, seconds=seconds, kind="failure", type="check_failed", message=one_line(result.message))
    return _unreached(run, name, result, place)


def _special(run: Run, name: str, seconds: float, *, place: str | None) -> Case | None:
    """The place where the run went wrong, and every case of a run that was skipped."""
    if name == place and run.expected:
        message = one_line(f"{known_words(run)}: {headline(run)}")
        return Case(name=name, seconds=seconds, kind="skipped", type="known", message=message, place=True)
    if name == place:
        kind, word = _fault(run)
        return Case(name=name, seconds=seconds, kind=kind, type=word, message=headline(run), place=True)
    if verdict(run) == "SKIP":
        return Case(name=name, seconds=seconds, kind="skipped", type="skip", message=_skip_reason(run))
    return None


def _unreached(run: Run, name: str, result: CheckResult | None, place: str | None) -> Case:
    return Case(name=name, seconds=0.0, kind="skipped", type="not_reached", message=_not_reached(run, result, place))


def _fault(run: Run) -> tuple[CaseKind, str]:
    if run.state != "finished":
        return "error", "interrupted"
    if run.verdict == "FAIL":
        return "failure", run.signature.kind if run.signature else "failure"
    return "error", run.blame or "error"


def _skip_reason(run: Run) -> str:
    return one_line("; ".join(part for part in (run.reason, run.fix) if part)) or "skipped, and no reason was recorded"


def _not_reached(run: Run, result: CheckResult | None, place: str | None) -> str:
    if place:
        return one_line(f"not reached: {place} failed ({headline(run)})")
    return one_line(result.message if result and result.message else f"not reached: {headline(run)}")


def _startup_seconds(launched: Launched) -> float:
    return _seconds(launched.timeline.ready if launched.timeline.ready is not None else launched.lifetime or 0.0)


def _seconds(value: float) -> float:
    return round(max(0.0, value), 3) if math.isfinite(value) else 0.0


def details(run: Run, case: Case) -> str:
    """What the reader of a failing case needs, title first (GitLab shows the text alone, without the message)."""
    result = _results(run).get(case.name)
    blocks = [
        [case.message, *([visible(run.reason)] if case.place and one_line(run.reason) != case.message else [])],
        [visible(run.fix)] if case.place and run.fix else [],
        [line for line in (known_words(run), under_words(run)) if line],
        _signature_lines(run) if case.place else [],
        [visible(result.message), *map(measured, result.measurements)] if result else [],
        [f"{name}: {visible(value)}" for name, value in environment(run)],
        list(remarks(run)),
        [f"Reproduce: {visible(run.reproduce)}"],
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def environment(run: Run) -> tuple[tuple[str, str], ...]:
    """Where it happened, as (word, value)."""
    pairs = (
        ("build", run.build), ("version", run.version), ("node class", run.node_class), ("driver", driver(run)),
        ("run", run.id),
    )  # fmt: skip
    return tuple((name, value) for name, value in pairs if value)


def signature_facts(run: Run) -> tuple[tuple[str, str], ...]:
    """The identity of the failure and where it was seen, as (word, value)."""
    found = run.signature
    if found is None:
        return ()
    quiet = f"{run.quiet_seconds:.0f} s without output and CPU use" if run.quiet_seconds is not None else None
    pairs = (
        ("signature", found.id), ("kind", found.kind), ("process", found.process), ("ranks", found.ranks),
        ("phase", found.phase), ("exit", run.exit), ("quiet", quiet),
    )  # fmt: skip
    return tuple((name, value) for name, value in pairs if value)


def _signature_lines(run: Run) -> list[str]:
    found = run.signature
    if found is None:
        return []
    lines = [f"{name}: {one_line(value)}" for name, value in signature_facts(run)]
    lines += [f"  at {one_line(f'{frame.function} ({frame.file}:{frame.line})')}" for frame in found.frames[:FRAMES]]
    lines += [f"or: {one_line(title)}" for title in found.alternatives]
    return lines + [f"only reports it: {one_line(wrapper, 300)}" for wrapper in run.wrappers[:WRAPPERS]]


def measured(value: Measurement) -> str:
    """`perplexity 6.24 (at most 4.5): too high`."""
    limit = (
        "" if value.limit is None else f" ({'at most' if value.sense == 'max' else 'at least'} {number(value.limit)})"
    )
    return f"{one_line(value.name)} {number(value.value)} {value.unit}".rstrip() + limit + ("" if value.ok else " ✗")


def number(value: float | str | None) -> str:
    """Four significant digits; whole numbers whole."""
    if isinstance(value, float) and math.isfinite(value) and value != int(value):
        return f"{value:.4g}"
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value))
    return "—" if value is None else one_line(str(value))
