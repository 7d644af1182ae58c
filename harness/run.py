"""The one orchestrator: it alone knows the order of the stages.

    needs → environment → weights → lease → spawn → ready → checks → stop → proof → verdict

A product failure is data (`Run` with verdict FAIL); a `HarnessError` becomes verdict ERROR, with what to do.
The record and the reports are on disk after every stage; on an interruption they are written *before* the teardown.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from harness import (
    environment,
    gpu_memory,
    known,
    launch,
    launches,
    leases,
    masking,
    node,
    sequence,
    verdict,
    wanted,
    weights,
)
from harness.baseline.history import History
from harness.baseline.samples import Night
from harness.build import Build, parse
from harness.checks import CHECKS, CORPORA
from harness.checks.against import Overrides
from harness.conduct import Finding
from harness.environment import Environment
from harness.errors import HarnessError, Interrupted, NodeError, ScenarioError, UnmetError
from harness.events import Event, OnEvent, ignore
from harness.kernel_log import Heard, followed
from harness.leases import Lease
from harness.node import Node
from harness.record import Run, Teardown
from harness.recorder import Recorder
from harness.runtimes import RUNTIMES
from harness.scenario import Expect, Scenario
from harness.sequence import Own
from harness.serving import Serving
from harness.weights import Fetched

LEASE_SECONDS = 4 * 3600.0
"""A run waits for GPUs or the CPU as long as the longest nightly may hold them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Handling:
    """What a run does about known failures."""

    expected: bool = False
    """One that is met is nothing new, and one that is due and not met is a failure."""
    under: tuple[known.Change, ...] = ()
    """Workarounds to make the run with; nothing is due then, and nothing is reproduced."""
    probe: bool = False
    """The run is one of many builds: its times say nothing of what is normal."""
    peel: bool = False
    """The run is part of a ladder; for the command that makes it again."""

    @property
    def words(self) -> tuple[str, ...]:
        return (*(("--known", "expected") if self.expected else ()), *(("--peel",) if self.peel else ()))


AS_THEY_ARE = Handling()


def execute(
    scenario: Scenario,
    *,
    build: Build,
    out: Path,
    sets: tuple[str, ...] = (),
    on_event: OnEvent = ignore,
    port: int | None = None,
    grace: float = 8.0,
    skip_unmet: bool = False,
    attempt: str | None = None,
    handling: Handling = AS_THEY_ARE,
    reproduce: str = "",
) -> Run:
    """Run one scenario on one build and write its folder under `out`.

    `sets` are the overrides that the scenario was loaded with, for the command that makes the run again; `reproduce` is
    that command, where the run is made elsewhere than it was asked for.
    `port` None picks a free one. `grace` is what an interruption leaves for the teardown, in seconds. With
    `skip_unmet`, needs that this node cannot meet give SKIP in place of ERROR. `attempt`: `2/5`, the second of five.

    Raises:
        Interrupted, KeyboardInterrupt: after the record, marked interrupted, was written and the server taken down.
    """
    again = reproduce or command(scenario, build, sets, handling)
    recorder = Recorder.open(
        scenario,
        build=build,
        out=out,
        reproduce=again,
        attempt=attempt,
        under=handling.under,
        probe=handling.probe,
    )
    on_event(Event(kind="run", text=f"{recorder.run.title} on {build} → {recorder.folder}"))
    try:
        _stages(recorder, scenario, build=build, on_event=on_event, port=port, grace=grace, handling=handling)
    except (Interrupted, KeyboardInterrupt) as error:
        if recorder.run.state != "interrupted":
            recorder.interrupt(error)
        raise
    except UnmetError as error:
        recorder.fail(error, verdict="SKIP" if skip_unmet else "ERROR")
    except HarnessError as error:
        recorder.fail(error, verdict="ERROR")
    except BaseException as error:
        if recorder.run.state == "running":  # else it is a report that could not be rendered: the verdict stands
            recorder.fail(HarnessError(f"unexpected {type(error).__name__}: {error}", fix="report it"), verdict="ERROR")
        raise
    run = recorder.run
    remember(run, on_event)
    noted = f" (known: {run.known.words})" if run.known else ""
    on_event(Event(kind="verdict", text=f"{run.verdict} {run.title}: {run.reason}{noted}", ok=run.verdict == "PASS"))
    return run


def remember(run: Run, on_event: OnEvent) -> None:
    """Its start-up times into the history. Where that cannot be written the run is as good, but somebody must know."""
    try:
        History().feed(run)
    except NodeError as error:
        on_event(Event(kind="notice", text=f"not in the history: {error.what}; {error.fix}"))


def command(scenario: Scenario, build: Build, sets: tuple[str, ...], handling: Handling = AS_THEY_ARE) -> str:
    """The command line that makes a run again."""
    changes = [word for change in sets for word in ("--set", change)]
    return shlex.join(["harness", "run", *named(scenario), "--build", str(build), *changes, *handling.words])


def named(scenario: Scenario) -> list[str]:
    """The words that name a scenario and its variant on any command line."""
    path = os.path.relpath(scenario.path) if scenario.path.is_relative_to(Path.cwd()) else str(scenario.path)
    return [path, *(["--variant", scenario.variant] if scenario.variant else [])]


def _stages(
    recorder: Recorder,
    scenario: Scenario,
    *,
    build: Build,
    on_event: OnEvent,
    port: int | None,
    grace: float,
    handling: Handling,
) -> None:
    here = node.read()
    _check_needs(scenario, here)
    weights.present(scenario)
    scenario = _with_expectation(scenario, handling)
    catalogue = known.beside(scenario.path)  # what is wrong in it is said before minutes are spent
    for name, params in scenario.checks.items():
        CHECKS[name].prepare(params, model=scenario.model, corpora=CORPORA)
    with ExitStack() as stack:
        with recorder.step("environment", on_event):
            provided = environment.provide(build, here, on_step=_noticer(on_event))
            stack.enter_context(environment.in_use(provided))
        _check_accelerator(scenario, provided)
        recorder.update(node_class=provided.class_on(here))
        asked, scenario = scenario, _adapted(recorder, scenario, provided, handling.under)
        others = _others(recorder, scenario, here, stack, on_event=on_event)
        if any(step.touches_sources for step in handling.under):
            with recorder.step("edits", on_event):
                provided = stack.enter_context(_changed(provided, handling.under, recorder.folder))
        seconds = sequence.seconds(asked, scenario, provided, others)
        with recorder.step("weights", on_event):
            fetched = [each for one in (scenario, *(s.scenario for s in seconds)) for each in _fetch(one, provided)]
        recorder.update(revisions={each.model: each.revision for each in fetched if each.revision})
        with recorder.step("lease", on_event):
            lease = stack.enter_context(_lease(scenario, provided, here, on_event=on_event))
            leased = [gpu.uuid for gpu in lease.gpus]
            look = stack.enter_context(followed(here.gpus, leased=leased, note=_noter(recorder, on_event)))
            gpu_memory.check_free(lease.gpus, utilization=float(scenario.serve.get("gpu-memory-utilization", 0.9)))
        serving = Serving(recorder, lease, port=port, grace=grace, on_event=on_event)
        finding, teardown = sequence.carry_out(serving, Own(scenario=scenario, environment=provided), seconds)
        look()
        _conclude(recorder, scenario, finding, teardown, catalogue=catalogue, handling=handling)


def _check_needs(scenario: Scenario, here: Node) -> None:
    try:
        node.check_needs(here, gpus=scenario.needs.gpus, gpu_memory_gib=scenario.needs.gpu_memory_gib)
    except UnmetError as error:
        raise UnmetError(error.what, fix=scenario.hint(here)) from None


def _check_accelerator(scenario: Scenario, provided: Environment) -> None:
    if scenario.needs.gpus and provided.accelerator == "cpu":
        raise UnmetError(
            f"{scenario.title} needs {scenario.needs.words}, and {provided.build} is a build for CPUs",
            fix="name a build for GPUs",
        )


def _with_expectation(scenario: Scenario, handling: Handling) -> Scenario:
    """With the id of the run that `@run.json` names; under a workaround nothing is foretold."""
    if scenario.expect is None:
        return scenario
    word = wanted.resolve(scenario.expect.signature)
    return replace(scenario, expect=None if handling.under else Expect(signature=word))


def _adapted(
    recorder: Recorder, scenario: Scenario, provided: Environment, under: tuple[known.Change, ...]
) -> Scenario:
    """The scenario for this very version and these workarounds; record what is run and on what."""
    adapted, applied = scenario.apply_when(provided.version)
    for step in under:
        adapted = _around(adapted, step)
    recorder.update(
        version=provided.version,
        packages=provided.packages,
        content=provided.content,
        applied=applied,
        resolved=masking.redact(adapted.resolved()),
    )
    environment.write_lock(provided, recorder.folder / "packages.lock")
    return adapted


def _around(scenario: Scenario, step: known.Change) -> Scenario:
    """The scenario with the overrides of a workaround, and without asking for what that takes away."""
    if step.touches_sources and known.PYTHONPATH in scenario.env:
        raise ScenarioError(
            f"{scenario.path}: `env.{known.PYTHONPATH}` would hide the edited sources",
            fix="take it out, or do not peel",
        )
    changed = scenario.overlaid(step.serve, step.env, why=f"with {step.words}")
    references = RUNTIMES[scenario.runtime].references
    return replace(
        changed,
        subject=tuple(word for word in changed.subject if word not in step.taken),
        checks={
            name: params
            for name, params in changed.checks.items()
            if name not in step.taken and launches.compares(params, references) not in step.taken
        },
    )


def _changed(
    provided: Environment, under: tuple[known.Change, ...], folder: Path
) -> AbstractContextManager[Environment]:
    edits = [step.edit for step in under if step.edit]
    patches = [step for step in under if isinstance(step, known.Patch)]
    return known.edited(provided, edits, folder=folder, patches=patches)


def _others(
    recorder: Recorder, scenario: Scenario, here: Node, stack: ExitStack, *, on_event: OnEvent
) -> dict[str, Environment]:
    """The builds that the scenario compares with, by the names of those launches."""
    made: dict[str, Environment] = {}
    for name, other in launches.against(scenario).items():
        if isinstance(other, Overrides) and other.build:
            with recorder.step(f"environment, {name}", on_event):
                made[name] = environment.provide(parse(other.build), here, on_step=_noticer(on_event))
                stack.enter_context(environment.in_use(made[name]))
    return made


def _fetch(scenario: Scenario, provided: Environment) -> tuple[Fetched, ...]:
    given, _ = launch.scenario_env(scenario, os.environ)
    return weights.fetch(scenario, provided, {**os.environ, **provided.env, **given}, seconds=scenario.budgets.download)


def _lease(
    scenario: Scenario, provided: Environment, here: Node, *, on_event: OnEvent
) -> AbstractContextManager[Lease]:
    """GPUs for a CUDA build (as many as it needs, else the product of its parallel sizes), the CPU for a CPU build."""
    return leases.lease(
        here,
        gpus=0 if provided.accelerator == "cpu" else scenario.needs.gpus or scenario.world_size,
        gpu_memory_gib=scenario.needs.gpu_memory_gib,
        wait=LEASE_SECONDS,
        what=scenario.title,
        on_wait=_noticer(on_event),
    )


def _noticer(on_event: OnEvent) -> Callable[[str], None]:
    return lambda text: on_event(Event(kind="notice", text=text))


def _noter(recorder: Recorder, on_event: OnEvent) -> Callable[[Heard], None]:
    """Puts what the kernel said of GPUs into the record."""

    def note(heard: Heard) -> None:
        for xid in heard.xids[len(recorder.run.xids) :]:
            on_event(Event(kind="notice", text=xid.words))
        recorder.update(xids=heard.xids, kernel_log=heard.trouble)

    return note


def _conclude(
    recorder: Recorder,
    scenario: Scenario,
    finding: Finding,
    teardown: Teardown,
    *,
    catalogue: known.KnownFailures,
    handling: Handling,
) -> None:
    judged = verdict.judge(finding, teardown, expect=scenario.expect, xids=recorder.run.xids)
    version = recorder.run.version
    met = catalogue.met(finding.signature, version)
    expected = False
    if handling.expected and not handling.under and scenario.expect is None:
        due = catalogue.due(scenario, version)
        expected, judged = verdict.is_expected(judged, met, due), verdict.missed(judged, met, due)
    recorder.finish(
        known=met.recorded(finding.signature.title) if met and finding.signature else None,
        expected=expected,
        state="finished",
        verdict=judged.verdict,
        reason=judged.reason,
        fix=judged.fix,
        blame=judged.blame,
        signature=finding.signature,
        wrappers=finding.triage.wrappers,
        evidence=finding.triage.evidence,
        quiet_seconds=finding.quiet_seconds,
        nights=_nights(recorder.run),
    )


def _nights(run: Run) -> tuple[Night, ...]:
    """What reports draw beside its times. A history that cannot be read is told by `remember`, a moment later."""
    try:
        return History().nights(run)
    except NodeError:
        return ()
