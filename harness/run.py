"""The one orchestrator: it alone knows the order of the stages, and turns what happened into a verdict.

    needs → environment → weights → lease → spawn → ready → checks → stop → proof → verdict

A product failure is data (`Run` with verdict FAIL); a `HarnessError` becomes verdict ERROR, with what to do.
The record and the reports are on disk after every stage; on an interruption they are written *before* the teardown.
"""

from __future__ import annotations

import os
import shlex
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import __version__, clock, environment, launch, masking, node, report, triage, weights
from harness.build import Build
from harness.conduct import Conduct, Finding
from harness.environment import Environment
from harness.errors import Blame, HarnessError, Interrupted, UnmetError
from harness.events import Event, OnEvent, ignore
from harness.masking import Masker
from harness.node import Lease
from harness.record import Run, Teardown, Verdict, save
from harness.runtimes import RUNTIMES
from harness.scenario import Scenario
from harness.server.living import Server

GPU_RETURN_SECONDS = 30.0
"""After the last process of a server is gone, the driver needs a moment to give its memory back."""
GPU_SLACK_MIB = 64
LEASE_SECONDS = 4 * 3600.0
"""A run waits for GPUs or the CPU as long as the longest nightly may hold them."""


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
) -> Run:
    """Run one scenario on one build and write its folder under `out`.

    `sets` are the overrides that the scenario was loaded with, for the command that makes the run again.
    `port` None picks a free one. `grace` is what an interruption leaves for the teardown, in seconds. With
    `skip_unmet`, needs that this node cannot meet give SKIP in place of ERROR.

    Raises:
        Interrupted, KeyboardInterrupt: after the record, marked interrupted, was written and the server taken down.
    """
    recorder = _open(scenario, build=build, out=out, sets=sets)
    on_event(Event(kind="run", text=f"{recorder.run.title} on {build} → {recorder.folder}"))
    try:
        _stages(recorder, scenario, build=build, on_event=on_event, port=port, grace=grace)
    except (Interrupted, KeyboardInterrupt) as error:
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
    on_event(Event(kind="verdict", text=f"{run.verdict} {run.title}: {run.reason}", ok=run.verdict == "PASS"))
    return run


class Recorder:
    """Owns the record of one run: every change is on disk before the next stage begins."""

    def __init__(self, run: Run, folder: Path, masker: Masker) -> None:
        self.run, self.folder, self.masker = run, folder, masker
        self.update()

    def update(self, **changes: Any) -> None:
        self.run = replace(self.run, **changes)
        save(self.run, self.folder, self.masker)

    def finish(self, **changes: Any) -> None:
        """Write the record and every report of it."""
        self.update(ended=clock.utc(), artifacts=tuple(sorted(_files(self.folder) | set(report.REPORTS))), **changes)
        report.render(self.folder)

    def fail(self, error: HarnessError, *, verdict: str) -> None:
        self.finish(state="finished", verdict=verdict, reason=error.what, fix=error.fix, blame=error.blame)

    def interrupt(self, error: BaseException) -> None:
        reason = f"interrupted: {error}" if str(error) else "interrupted"
        self.finish(state="interrupted", verdict="ERROR", reason=reason, fix="run it again", blame="harness")

    @contextmanager
    def step(self, name: str, on_event: OnEvent) -> Iterator[None]:
        """Time what comes before the spawn; these are never start-up seconds."""
        begun = clock.now()
        on_event(Event(kind="step", text=name))
        yield
        self.update(steps={**self.run.steps, name: round(clock.now() - begun, 3)})


def _files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")}


def command(scenario: Scenario, build: Build, sets: tuple[str, ...]) -> str:
    """The command line that makes a run again."""
    path = os.path.relpath(scenario.path) if scenario.path.is_relative_to(Path.cwd()) else str(scenario.path)
    variant = ["--variant", scenario.variant] if scenario.variant else []
    changes = [word for change in sets for word in ("--set", change)]
    return shlex.join(["harness", "run", path, *variant, "--build", str(build), *changes])


def _open(scenario: Scenario, *, build: Build, out: Path, sets: tuple[str, ...]) -> Recorder:
    here = node.describe()
    title = f"{scenario.name}.{scenario.variant}" if scenario.variant else scenario.name
    stamp = clock.utc()[:19].replace("-", "").replace(":", "").replace("T", "-")
    folder = out / f"{stamp}-{title}-{uuid.uuid4().hex[:6]}"
    folder.mkdir(parents=True)
    run = Run(
        id=folder.name,
        scenario=scenario.name,
        variant=scenario.variant,
        resolved=masking.redact(scenario.resolved()),
        refs=scenario.refs,
        fingerprint=scenario.fingerprint,
        build=str(build),
        node_class=here.node_class,
        node=here.record(),
        reproduce=command(scenario, build, sets),
        started=clock.utc(),
        harness=__version__,
    )
    secrets = launch.secrets(scenario, os.environ, ())
    return Recorder(run, folder, Masker(secrets))


def _stages(
    recorder: Recorder, scenario: Scenario, *, build: Build, on_event: OnEvent, port: int | None, grace: float
) -> None:
    here = node.read()
    node.check_needs(
        here, gpus=scenario.needs.gpus, gpu_memory_gib=scenario.needs.gpu_memory_gib, fix=scenario.hint(here)
    )
    weights.present(scenario)
    with recorder.step("environment", on_event):
        provided = environment.provide(build, here, on_step=lambda text: on_event(Event(kind="notice", text=text)))
    scenario, applied = scenario.apply_when(provided.version)
    recorder.update(
        version=provided.version,
        packages=provided.packages,
        applied=applied,
        resolved=masking.redact(scenario.resolved()),
    )
    environment.write_lock(provided, recorder.folder / "packages.lock")
    given, _ = launch.scenario_env(scenario, os.environ)
    with recorder.step("weights", on_event):
        weights.fetch(scenario, provided, {**os.environ, **provided.env, **given}, seconds=scenario.budgets.download)
    gpus = _gpus(scenario, provided)
    with ExitStack() as stack:
        with recorder.step("lease", on_event):
            lease = stack.enter_context(
                node.lease(
                    here,
                    gpus=gpus,
                    wait=LEASE_SECONDS,
                    what=recorder.run.title,
                    on_wait=lambda t: on_event(Event(kind="notice", text=t)),
                )
            )
        _serve(recorder, scenario, provided, lease, on_event=on_event, port=port, grace=grace)


def _gpus(scenario: Scenario, provided: Environment) -> int:
    """GPUs that a launch takes: none for a CPU build, else what it needs, else the product of its parallel sizes."""
    if provided.accelerator == "cpu":
        return 0
    return scenario.needs.gpus or scenario.world_size


def _serve(
    recorder: Recorder,
    scenario: Scenario,
    provided: Environment,
    lease: Lease,
    *,
    on_event: OnEvent,
    port: int | None,
    grace: float,
) -> None:
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
    conduct = Conduct(
        scenario,
        planned,
        runtime=runtime,
        node_class=recorder.run.node_class,
        folder=recorder.folder,
        masker=recorder.masker,
        on_event=on_event,
    )
    before = node.gpu_used_mib(lease.gpus)
    budgets = scenario.budgets
    server = Server(
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
    with server:
        on_event(Event(kind="spawned", text="spawn", t=0.0, tail=lambda: next(iter(server.tail(1)), "")))
        try:
            finding = conduct.follow(server)
        except (Interrupted, KeyboardInterrupt) as error:
            recorder.update(**conduct.facts())
            recorder.interrupt(error)  # first the record, then the teardown: a CI agent kills after ten seconds
            recorder.update(teardown=server.stop(within=grace))
            raise
        lifetime = clock.now() - server.started
        conduct.stopping(lifetime)
        recorder.update(**conduct.facts(), lifetime=round(lifetime, 3))
        teardown = server.stop()
        conduct.stopped(clock.now() - server.started)
    recorder.update(timeline=conduct.timeline)
    _judge(recorder, scenario, finding, _with_gpus(teardown, before, lease))


def _with_gpus(teardown: Teardown, before: dict[str, int], lease: Lease) -> Teardown:
    """Wait until the memory of every leased GPU is back where it was, and say where it is not."""
    deadline = clock.Deadline.after(GPU_RETURN_SECONDS)
    while held := _held(before, node.gpu_used_mib(lease.gpus)):
        if deadline.expired:
            return replace(teardown, left=(*teardown.left, *held))
        clock.sleep(0.25)
    return teardown


def _held(before: dict[str, int], after: dict[str, int]) -> list[str]:
    return [
        f"GPU {uuid} holds {used - before[uuid]} MiB more than before the run"
        for uuid, used in after.items()
        if used > before[uuid] + GPU_SLACK_MIB
    ]


def _judge(recorder: Recorder, scenario: Scenario, finding: Finding, teardown: Teardown) -> None:
    """Turn what was found into a verdict. The product's failures are FAIL, everybody else's ERROR."""
    blame = triage.blame(finding.signature) if finding.signature else None
    verdict, reason, fix = _verdict(scenario, finding, blame, teardown)
    recorder.finish(
        state="finished",
        verdict=verdict,
        reason=reason,
        fix=fix,
        blame=None if verdict == "PASS" else blame or "node",
        signature=finding.signature,
        wrappers=finding.triage.wrappers,
        evidence=finding.triage.evidence,
        exit=finding.exit,
        quiet_seconds=finding.quiet_seconds,
        teardown=teardown,
    )


def _verdict(scenario: Scenario, finding: Finding, blame: Blame | None, teardown: Teardown) -> tuple[Verdict, str, str]:
    if scenario.expect:
        return _expected(scenario.expect.signature, finding)
    if finding.signature is None and (teardown.survivors or any(left.startswith("GPU") for left in teardown.left)):
        left = "; ".join((*teardown.survivors, *teardown.left))
        return "ERROR", f"passed, but was not taken down: {left}", "free the node before the next run"
    if finding.signature is None:
        return "PASS", finding.reason, ""
    if blame == "product":
        return "FAIL", finding.reason, ""
    return (
        "ERROR",
        finding.reason,
        triage.FIXES.get(finding.signature.kind, "repair the node or the scenario and run it again"),
    )


def _expected(word: str, finding: Finding) -> tuple[Verdict, str, str]:
    """A reproduction passes when it fails as foretold, and fails when it passes or fails otherwise."""
    if finding.signature is None:
        return "FAIL", f"expected signature {word}, but nothing failed: {finding.reason}", ""
    if finding.signature.id.startswith(word) or finding.signature.title == word:
        return "PASS", f"reproduced: {finding.signature.title}", ""
    return "FAIL", f"expected signature {word}, got {finding.signature.id}: {finding.reason}", ""
