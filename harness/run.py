"""The one orchestrator: it alone knows the order of the stages.

    needs → environment → weights → lease → spawn → ready → checks → stop → proof → verdict

A product failure is data (`Run` with verdict FAIL); a `HarnessError` becomes verdict ERROR, with what to do.
The record and the reports are on disk after every stage; on an interruption they are written *before* the teardown.
"""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from harness import clock, environment, known, launch, masking, node, verdict, wanted, weights
from harness.build import Build
from harness.checks import CHECKS, CORPORA
from harness.conduct import Assignment, Conduct, Finding
from harness.environment import Environment
from harness.errors import HarnessError, Interrupted, ScenarioError, UnmetError
from harness.events import Event, OnEvent, ignore
from harness.launch import Launch
from harness.masking import Masker
from harness.node import Lease, Node
from harness.record import Run, Teardown
from harness.recorder import Recorder
from harness.runtimes import RUNTIMES
from harness.scenario import Expect, Scenario
from harness.server.living import Server
from harness.weights import Fetched

GPU_RETURN_SECONDS = 30.0
"""After the last process of a server is gone, the driver needs a moment to give its memory back."""
GPU_SLACK_MIB = 64
LEASE_SECONDS = 4 * 3600.0
"""A run waits for GPUs or the CPU as long as the longest nightly may hold them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Handling:
    """What a run does about known failures."""

    expected: bool = False
    """One that is met is nothing new, and one that is due and not met is a failure."""
    under: tuple[known.Step, ...] = ()
    """Workarounds to make the run with; nothing is due then, and nothing is reproduced."""
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
) -> Run:
    """Run one scenario on one build and write its folder under `out`.

    `sets` are the overrides that the scenario was loaded with, for the command that makes the run again.
    `port` None picks a free one. `grace` is what an interruption leaves for the teardown, in seconds. With
    `skip_unmet`, needs that this node cannot meet give SKIP in place of ERROR. `attempt`: `2/5`, the second of five.

    Raises:
        Interrupted, KeyboardInterrupt: after the record, marked interrupted, was written and the server taken down.
    """
    again = command(scenario, build, sets, handling)
    recorder = Recorder.open(scenario, build=build, out=out, reproduce=again, attempt=attempt, under=handling.under)
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
        recorder.fail(HarnessError(f"unexpected {type(error).__name__}: {error}", fix="report it"), verdict="ERROR")
        raise
    run = recorder.run
    noted = f" (known: {run.known.words})" if run.known else ""
    on_event(Event(kind="verdict", text=f"{run.verdict} {run.title}: {run.reason}{noted}", ok=run.verdict == "PASS"))
    return run


def command(scenario: Scenario, build: Build, sets: tuple[str, ...], handling: Handling = AS_THEY_ARE) -> str:
    """The command line that makes a run again."""
    path = os.path.relpath(scenario.path) if scenario.path.is_relative_to(Path.cwd()) else str(scenario.path)
    variant = ["--variant", scenario.variant] if scenario.variant else []
    changes = [word for change in sets for word in ("--set", change)]
    return shlex.join(["harness", "run", path, *variant, "--build", str(build), *changes, *handling.words])


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
        scenario = _adapted(recorder, scenario, provided, handling.under)
        if edits := [step.edit for step in handling.under if step.edit]:
            with recorder.step("edits", on_event):
                provided = stack.enter_context(known.edited(provided, edits, folder=recorder.folder))
        with recorder.step("weights", on_event):
            fetched = _fetch(scenario, provided)
        recorder.update(revisions={each.model: each.revision for each in fetched if each.revision})
        with recorder.step("lease", on_event):
            lease = stack.enter_context(_lease(scenario, provided, here, on_event=on_event))
            node.check_free(lease.gpus, utilization=float(scenario.serve.get("gpu-memory-utilization", 0.9)))
        planned = _plan(recorder, scenario, provided, lease, port=port)
        before = node.gpu_used_mib(lease.gpus)
        finding, teardown = _serve(recorder, scenario, planned, on_event=on_event, grace=grace)
        _conclude(
            recorder, scenario, finding, _with_gpus(teardown, before, lease), catalogue=catalogue, handling=handling
        )


def _check_needs(scenario: Scenario, here: Node) -> None:
    if scenario.starts:
        raise HarnessError("`starts` is not run yet", fix="take it out: caches of compiled code are used as they are")
    try:
        node.check_needs(here, gpus=scenario.needs.gpus, gpu_memory_gib=scenario.needs.gpu_memory_gib)
    except UnmetError as error:
        raise UnmetError(error.what, fix=scenario.hint(here)) from None


def _with_expectation(scenario: Scenario, handling: Handling) -> Scenario:
    """With the id of the run that `@run.json` names; under a workaround nothing is foretold."""
    if scenario.expect is None:
        return scenario
    word = wanted.resolve(scenario.expect.signature)
    return replace(scenario, expect=None if handling.under else Expect(signature=word))


def _adapted(recorder: Recorder, scenario: Scenario, provided: Environment, under: tuple[known.Step, ...]) -> Scenario:
    """The scenario for this very version and these workarounds; record what is run and on what."""
    adapted, applied = scenario.apply_when(provided.version)
    for step in under:
        adapted = _around(adapted, step)
    recorder.update(
        version=provided.version,
        packages=provided.packages,
        applied=applied,
        resolved=masking.redact(adapted.resolved()),
    )
    environment.write_lock(provided, recorder.folder / "packages.lock")
    return adapted


def _around(scenario: Scenario, step: known.Step) -> Scenario:
    """The scenario with the overrides of a workaround, and without asking for what that takes away."""
    if step.edit and known.PYTHONPATH in scenario.env:
        raise ScenarioError(
            f"{scenario.path}: `env.{known.PYTHONPATH}` would hide the edited sources",
            fix="take it out, or do not peel",
        )
    changed = scenario.overlaid(step.serve, step.env, why=f"with {step.words}")
    return replace(
        changed,
        subject=tuple(word for word in changed.subject if word not in step.taken),
        checks={name: params for name, params in changed.checks.items() if name not in step.taken},
    )


def _fetch(scenario: Scenario, provided: Environment) -> tuple[Fetched, ...]:
    given, _ = launch.scenario_env(scenario, os.environ)
    return weights.fetch(scenario, provided, {**os.environ, **provided.env, **given}, seconds=scenario.budgets.download)


def _lease(
    scenario: Scenario, provided: Environment, here: Node, *, on_event: OnEvent
) -> AbstractContextManager[Lease]:
    """GPUs for a CUDA build (as many as it needs, else the product of its parallel sizes), the CPU for a CPU build."""
    return node.lease(
        here,
        gpus=0 if provided.accelerator == "cpu" else scenario.needs.gpus or scenario.world_size,
        gpu_memory_gib=scenario.needs.gpu_memory_gib,
        wait=LEASE_SECONDS,
        what=scenario.title,
        on_wait=_noticer(on_event),
    )


def _noticer(on_event: OnEvent) -> Callable[[str], None]:
    return lambda text: on_event(Event(kind="notice", text=text))


def _plan(recorder: Recorder, scenario: Scenario, provided: Environment, lease: Lease, *, port: int | None) -> Launch:
    runtime = RUNTIMES[scenario.runtime]
    planned = launch.plan(
        scenario,
        runtime=runtime,
        environment=provided,
        lease=lease,
        inherited=os.environ,
        caches=environment.cache_root() / "compiled" / f"{runtime.name}-{provided.version}-{provided.accelerator}",
        port=port or node.free_port(),
        name=f"{scenario.name}-{uuid.uuid4().hex[:8]}",
    )
    recorder.masker = Masker(planned.secrets)
    recorder.update(argv=planned.argv, env=planned.recorded_env)
    return planned


def _serve(
    recorder: Recorder, scenario: Scenario, planned: Launch, *, on_event: OnEvent, grace: float
) -> tuple[Finding, Teardown]:
    """Start it, follow it, take it down."""

    def record_phase(event: Event) -> None:
        if event.kind == "phase":
            recorder.update(timeline=conduct.timeline)  # a killed node leaves how far it came
        on_event(event)

    conduct = Conduct(
        Assignment(
            scenario=scenario,
            launch=planned,
            runtime=RUNTIMES[scenario.runtime],
            work={name: CHECKS[name].run for name in scenario.checks},
            node_class=recorder.run.node_class,
        ),
        folder=recorder.folder,
        masker=recorder.masker,
        on_event=record_phase,
    )
    with _server(recorder, scenario, planned, conduct) as server:
        on_event(Event(kind="spawned", text="spawn", t=0.0, tail=lambda: next(iter(server.tail(1)), "")))
        try:
            finding = conduct.follow(server)
        except (Interrupted, KeyboardInterrupt) as error:
            recorder.update(**conduct.facts())
            recorder.interrupt(error)  # first the record, then the teardown: a CI agent kills after ten seconds
            recorder.finish(teardown=server.stop(within=grace))
            raise
        except HarnessError:
            recorder.update(**conduct.facts(), teardown=server.stop())
            raise
        lifetime = clock.now() - server.started
        conduct.stopping(lifetime)
        recorder.update(**conduct.facts(), lifetime=round(lifetime, 3))
        teardown = server.stop()
        conduct.stopped(clock.now() - server.started)
    recorder.update(timeline=conduct.timeline)
    return finding, teardown


def _server(recorder: Recorder, scenario: Scenario, planned: Launch, conduct: Conduct) -> Server:
    runtime, budgets = RUNTIMES[scenario.runtime], scenario.budgets
    return Server(
        planned,
        folder=recorder.folder,
        health_path=runtime.health_path,
        literals=runtime.literals,
        startup=budgets.startup,
        silence=budgets.silence,
        stop=budgets.stop,
        masker=recorder.masker,
        on_line=conduct.on_line,
    )


def _with_gpus(teardown: Teardown, before: Mapping[str, int], lease: Lease) -> Teardown:
    """Wait until the memory of every leased GPU is back where it was, and say where it is not."""
    deadline = clock.Deadline.after(GPU_RETURN_SECONDS)
    while held := _held(before, node.gpu_used_mib(lease.gpus)):
        if deadline.expired:
            return replace(teardown, left=(*teardown.left, *held))
        clock.sleep(0.25)
    return teardown


def _held(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    return [
        f"GPU {uuid} holds {used - before[uuid]} MiB more than before the run"
        for uuid, used in after.items()
        if used > before[uuid] + GPU_SLACK_MIB
    ]


def _conclude(
    recorder: Recorder,
    scenario: Scenario,
    finding: Finding,
    teardown: Teardown,
    *,
    catalogue: known.KnownFailures,
    handling: Handling,
) -> None:
    judged = verdict.judge(finding, teardown, expect=scenario.expect)
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
        exit=finding.exit,
        quiet_seconds=finding.quiet_seconds,
        teardown=teardown,
    )
