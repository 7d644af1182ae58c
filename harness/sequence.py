"""The servers of a run in their order, and what is judged when they are gone; launches.py says which.

    own starts ─▶ second servers, for the checks that compare ─▶ checks of what the servers left ─▶ one finding

The first server with which something is wrong is the last one launched: what would come after it is not run, and that
is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness import launches
from harness.checks import CHECKS
from harness.checks.against import Against
from harness.checks.base import AfterStop, CheckContext, CheckResult, Unfinished
from harness.conduct import Finding, Half, failed
from harness.environment import Environment, cache_root, scratch
from harness.environment.changes import difference
from harness.errors import ScenarioError
from harness.record import Run, Teardown
from harness.runtimes import RUNTIMES
from harness.scenario import Scenario
from harness.serving import Job, Served, Serving


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """The scenario's own server."""

    scenario: Scenario
    environment: Environment


@dataclass(frozen=True, kw_only=True, slots=True)
class Second:
    """A server whose answers are held against those of the scenario's own."""

    label: str
    against: Against
    scenario: Scenario
    environment: Environment
    other_build: str | None
    """Where it is not of the run's own build."""
    differing: tuple[str, ...] = ()
    """Packages of which it then has other versions."""


def seconds(
    asked: Scenario, scenario: Scenario, provided: Environment, others: Mapping[str, Environment]
) -> tuple[Second, ...]:
    """The second servers of `scenario`. Of another build: for its version, and without workarounds for this one.

    `asked` is the scenario before `when` rules were applied, `others` are the environments of other builds by label.

    Raises:
        ScenarioError: one would be the same as the first, or runs on another kind of hardware.
    """
    references = RUNTIMES[scenario.runtime].references
    made = []
    for label, against in launches.against(scenario).items():
        used, base = others.get(label), scenario
        if used:
            _same_kind(scenario, provided, used)
            base, _ = asked.apply_when(used.version)
        made.append(
            Second(
                label=label,
                against=against,
                scenario=launches.second(base, against, references),
                environment=used or provided,
                other_build=f"{used.build} ({used.version})" if used else None,
                differing=tuple(map(str, difference(provided.packages, used.packages))) if used else (),
            )
        )
    return tuple(made)


def _same_kind(scenario: Scenario, provided: Environment, other: Environment) -> None:
    if other.accelerator != provided.accelerator:
        raise ScenarioError(
            f"{scenario.path}: {other.build} runs on {other.accelerator}, but {provided.build} on "
            f"{provided.accelerator}: their answers cannot be compared",
            fix="name a build of the same kind under `against`",
        )


def carry_out(serving: Serving, own: Own, others: Sequence[Second]) -> tuple[Finding, Teardown]:
    """Launch them all and judge them all; the record then speaks of the server that the finding is about.

    Raises:
        ScenarioError: a server of another build did not do what it was asked, so there is nothing to compare with.
        HarnessError, Interrupted, KeyboardInterrupt: after the server was taken down.
    """
    last = first = _starts(serving, own)
    for number, second in enumerate(others, start=1):
        halves = {name: half for name, half in first.halves.items() if _asks(half, second)}
        if halves and last.good:
            last = _second(serving, second, halves, folder=f"against-{number}")
    finding = last.finding
    if first.good:
        finding = _judge_after(serving, first.halves, finding)
    if not last.teardown.held and (finding.signature is None or finding.judged):
        serving.recorder.speak_of(serving.recorder.run.own[-1].launch)
    _not_run(serving, first.halves, finding)
    return (finding if finding.signature else Finding(reason=_passed(serving.recorder.run))), last.teardown


# --- the scenario's own


def _starts(serving: Serving, own: Own) -> Served:
    cold: float | None = None
    with _caches(own) as caches:
        for start in launches.starts(own.scenario):
            served = serving.serve(
                Job(
                    scenario=own.scenario,
                    environment=own.environment,
                    work={name: CHECKS[name].run for name in start.checks},
                    caches=caches,
                    name=start.name,
                    folder=start.folder,
                    cold=cold,
                )
            )
            cold = served.ready
            if not served.good:
                break
    return _told(served, f"{start.name} start: " if start.name else "")


@contextmanager
def _caches(own: Own) -> Iterator[Path]:
    """The folder of what is compiled: a fresh one where there is a cold start, else the one that all runs share."""
    if not own.scenario.starts:
        yield _shared(own.scenario, own.environment)
        return
    with scratch.folder("compiled-runs") as place:
        yield place


def _shared(scenario: Scenario, environment: Environment) -> Path:
    name = f"{scenario.runtime}-{environment.version}-{environment.accelerator}"
    if environment.build.kind in ("source", "commit"):  # many builds have one version
        name += f"-{environment.content}"
    return cache_root() / "compiled" / name


def _told(served: Served, lead: str) -> Served:
    finding = served.finding
    return replace(served, finding=replace(finding, reason=f"{lead}{finding.reason}")) if finding.signature else served


# --- second servers


def _asks(half: Half, second: Second) -> bool:
    return isinstance(half.rest, Unfinished) and half.rest.against == second.against


def _second(serving: Serving, second: Second, halves: Mapping[str, Half], *, folder: str) -> Served:
    served = serving.serve(
        Job(
            scenario=second.scenario,
            environment=second.environment,
            work={name: partial(_finished, half) for name, half in halves.items()},
            caches=_shared(second.scenario, second.environment),
            name=second.label,
            folder=folder,
            other_build=second.other_build,
            differing=second.differing,
        )
    )
    if second.other_build and served.finding.signature and not served.finding.judged:
        raise ScenarioError(
            f"there is nothing to compare with, for the server with {second.label} failed: {served.finding.reason}",
            fix=f"see {folder}/server.log, or compare with another build",
        )
    return served if served.finding.judged else _told(served, f"the server with {second.label}: ")


def _finished(half: Half, context: CheckContext) -> CheckResult:
    assert isinstance(half.rest, Unfinished)
    result = half.rest.finish(half.rest.ask(context))
    return replace(result, seconds=result.seconds + half.seconds, asking=result.asking + half.asking)


# --- when they are gone


def _judge_after(serving: Serving, halves: Mapping[str, Half], finding: Finding) -> Finding:
    """All of these are judged, as that costs nothing; the first that fails is the finding, if there is none yet."""
    run = serving.recorder.run
    for half in halves.values():
        if isinstance(half.rest, AfterStop):
            result = half.rest.finish(run)
            _add(serving, replace(result, seconds=half.seconds, asking=half.asking))
            if result.outcome == "fail" and finding.signature is None:
                finding = failed(result)
    return finding


def _not_run(serving: Serving, halves: Mapping[str, Half], finding: Finding) -> None:
    done = {result.name for result in serving.recorder.run.checks}
    for name in halves:
        if name not in done:
            _add(serving, CheckResult(name=name, outcome="not_tested", message=f"not run: {finding.reason}"))


def _add(serving: Serving, result: CheckResult) -> None:
    serving.recorder.update(checks=(*serving.recorder.run.checks, result))
    serving.on_event(launches.told(result))


def _passed(run: Run) -> str:
    """`ready after 20.1 s, 5 checks passed`."""
    ready = [
        f"{f'{each.launch} start ' if each.launch else ''}ready after {each.timeline.ready or 0:.1f} s"
        for each in run.own
    ]
    words = f"{', '.join(ready)}, {sum(check.outcome == 'pass' for check in run.checks)} checks passed"
    open_ = [launches.case(check.name, check.launch) for check in run.checks if check.outcome == "not_tested"]
    words += f"; {', '.join(open_)} not tested" if open_ else ""
    dark = [word for word, on in run.subject.items() if not on]
    return f"{words}; nothing showed that {', '.join(dark)} was on" if dark else words
