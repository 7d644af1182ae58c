"""One server of a run: plan it, start it, follow it, take it down, prove that nothing of it is left."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import clock, gpu_memory, launch, node
from harness.checks.base import AfterStop, CheckResult
from harness.conduct import Assignment, Conduct, Finding, Half, Work
from harness.environment import Environment
from harness.errors import Interrupted, NodeError
from harness.events import Event, OnEvent
from harness.leases import Lease
from harness.masking import Masker
from harness.record import Teardown
from harness.recorder import Recorder
from harness.runtimes import RUNTIMES
from harness.scenario import Scenario
from harness.server import footprint
from harness.server.footprint import Footprint
from harness.server.living import Server

GPU_RETURN_SECONDS = 30.0
"""After the last process of a server is gone, the driver needs a moment to give its memory back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One server to launch, and what for."""

    scenario: Scenario
    environment: Environment
    work: Mapping[str, Work]
    """What it is asked, by the name of the check, in order."""
    caches: Path
    """Folder of what it compiles."""
    name: str = ""
    """Where the scenario has several: `cold`."""
    folder: str = ""
    """Where its log goes, below the run's folder."""
    other_build: str | None = None
    """Where it is not of the run's own build."""
    differing: tuple[str, ...] = ()
    """Packages of which it then has other versions."""
    cold: float | None = None
    """Seconds to ready of the cold start before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What is known of a server that is gone."""

    finding: Finding
    teardown: Teardown
    ready: float | None
    """Seconds that it took to be ready."""
    halves: Mapping[str, Half]
    """What its checks left to be judged later, by name."""

    @property
    def good(self) -> bool:
        """Whether nothing was wrong with it, and nothing of it is left."""
        return self.finding.signature is None and not self.teardown.held


class Serving:
    """Launches the servers of one run, one at a time, on one lease."""

    def __init__(self, recorder: Recorder, lease: Lease, *, port: int | None, grace: float, on_event: OnEvent) -> None:
        self.recorder, self.on_event = recorder, on_event
        self._lease, self._port, self._grace = lease, port, grace

    def serve(self, job: Job) -> Served:
        """Launch one server, do its work, take it down; everything stands in the record.

        Raises:
            HarnessError, Interrupted, KeyboardInterrupt: after the server was taken down.
        """
        log = Path(job.folder, "server.log").as_posix()
        self.recorder.begin(job.name, log=log, other_build=job.other_build, differing=job.differing)
        conduct, server = self._prepared(job)
        before = self._footprint(None)
        with server:
            finding, teardown = self._conducted(conduct, server, job.name)
        teardown = self._with_gpus(teardown, before.gpus)
        after = footprint.take(None, {}) if teardown.gpus_lost else self._footprint(None)
        memory = {"before": before, **conduct.memory, "after": after}
        self.recorder.update(timeline=conduct.timeline, teardown=teardown, exit=finding.exit, memory=memory)
        return Served(finding=finding, teardown=teardown, ready=conduct.timeline.ready, halves=conduct.halves)

    def _prepared(self, job: Job) -> tuple[Conduct, Server]:
        recorder, scenario = self.recorder, job.scenario
        runtime, budgets = RUNTIMES[scenario.runtime], scenario.budgets
        planned = launch.plan(
            scenario,
            runtime=runtime,
            environment=job.environment,
            lease=self._lease,
            inherited=os.environ,
            caches=job.caches,
            port=self._port or node.free_port(),
            # As long as triage's `<hash>`, and without the scenario's name: a message that repeats it keeps its id.
            name=f"harness-{uuid.uuid4().hex}",
        )
        recorder.masker = Masker((*recorder.masker.secrets, *planned.secrets))
        recorder.update(argv=planned.argv, env=planned.recorded_env)
        folder = recorder.folder / job.folder
        folder.mkdir(exist_ok=True)
        conduct = Conduct(
            Assignment(
                scenario=scenario,
                launch=planned,
                runtime=runtime,
                work=job.work,
                node_class=recorder.run.node_class,
                name=job.name,
                cold=job.cold,
            ),
            folder=folder,
            masker=recorder.masker,
            on_event=lambda event: self._record_phase(event, conduct),
            footprint=self._footprint,
        )
        server = Server(
            planned,
            folder=folder,
            health_path=runtime.health_path,
            literals=runtime.literals,
            startup=budgets.startup,
            silence=budgets.silence,
            stop=budgets.stop,
            masker=recorder.masker,
            on_line=conduct.on_line,
        )
        return conduct, server

    def _footprint(self, root: int | None) -> Footprint:
        return footprint.take(root, gpu_memory.used_mib(self._lease.gpus))

    def _record_phase(self, event: Event, conduct: Conduct) -> None:
        if event.kind == "phase":
            self.recorder.update(timeline=conduct.timeline)  # a killed node leaves how far it came
        self.on_event(event)

    def _conducted(self, conduct: Conduct, server: Server, name: str) -> tuple[Finding, Teardown]:
        recorder = self.recorder
        spawn = f"spawn, {name}" if name else "spawn"
        earlier, shown = recorder.run.checks, recorder.run.subject
        try:
            # Who hears of the server may interrupt at once: from here on the teardown is proved and written.
            self.on_event(Event(kind="spawned", text=spawn, t=0.0, tail=lambda: next(iter(server.tail(1)), "")))
            finding = conduct.follow(server)
        except (Interrupted, KeyboardInterrupt) as error:
            recorder.update(**_facts(conduct, earlier, shown, broken_off=_words(error)))
            recorder.interrupt(error)  # first the record, then the teardown: a CI agent kills after ten seconds
            recorder.finish(teardown=server.stop(within=self._grace))
            raise
        except BaseException as error:
            # A bug of ours too: without these facts its report would blame what passed before it.
            recorder.update(**_facts(conduct, earlier, shown, broken_off=_words(error)), teardown=server.stop())
            raise
        lifetime = clock.now() - server.started
        conduct.stopping(lifetime)
        recorder.update(**_facts(conduct, earlier, shown), lifetime=round(lifetime, 3))
        teardown = server.stop()
        conduct.stopped(clock.now() - server.started)
        return finding, teardown

    def _with_gpus(self, teardown: Teardown, before: Mapping[str, int]) -> Teardown:
        """Wait until the memory of every leased GPU is back where it was, and say where it is not, and who holds it.

        A GPU that can no longer be asked is told too, and is no reason to lose what was found before it.
        """
        deadline = clock.Deadline.after(GPU_RETURN_SECONDS)
        try:
            while more := gpu_memory.more_than_before(before, gpu_memory.used_mib(self._lease.gpus)):
                if deadline.expired:
                    return replace(teardown, left=(*teardown.left, *gpu_memory.kept(more)))
                clock.sleep(0.25)
        except NodeError as error:
            return replace(teardown, gpus_lost=error.what)
        return teardown


def _facts(
    conduct: Conduct, earlier: tuple[CheckResult, ...], shown: Mapping[str, bool], broken_off: str = ""
) -> dict[str, Any]:
    """What this server adds to the record, beside what the servers before it left there.

    A word of the subject may be shown by a check that ends only here: what it says is of the first server too.
    `broken_off` says why its checks came to no end; what they had left for later is then judged by nobody.
    """
    checks = (*earlier, *conduct.checks, *(_not_judged(conduct, broken_off) if broken_off else ()))
    by_answers = {word for check in checks for word in check.shows}
    words = {**shown, **conduct.subject}
    return {
        "timeline": conduct.timeline,
        "choices": conduct.choices,
        "uneven": conduct.uneven,
        "subject": {word: on or shown.get(word, False) or word in by_answers for word, on in words.items()},
        "checks": checks,
    }


def _not_judged(conduct: Conduct, why: str) -> Iterator[CheckResult]:
    """Without a result, a check that waits for the stop would stand in the report as the one that was broken off."""
    for name, half in conduct.halves.items():
        if isinstance(half.rest, AfterStop):
            yield CheckResult(
                name=name, outcome="not_tested", message=f"not judged: {why}", launch=conduct.name, asking=half.asking
            )


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")
