"""One living server, from its spawn to its end: follow it to health, run the checks, say what failed.

`Conduct` is what a run knows while the server lives. It listens to the log (phases, choices, the subject), asks the
checks, and ends with a `Finding`: nothing wrong, or the signature of the first thing that was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from harness import clock, kernels, launches, loglines, triage
from harness.checks import CORPORA, fitting
from harness.checks.base import AfterStop, CheckContext, CheckResult, Unfinished
from harness.choices import Listener
from harness.client.answers import BadAnswer, RequestFailed, RequestTimedOut
from harness.events import Event, OnEvent
from harness.launch import Launch
from harness.masking import Masker
from harness.runtimes.base import Runtime
from harness.scenario import Scenario
from harness.server.footprint import Footprint
from harness.server.living import Exited, Hung, Ready, Server
from harness.server.logpump import Line
from harness.signature import Signature
from harness.timeline import Builder, Timeline
from harness.triage import Triage

if TYPE_CHECKING:
    from harness.client.server_client import ServerClient

LAST_WORDS = 8.0
"""Seconds that a server gets to die on its own after a request crashed in it: vLLM takes 0.5 s after an exception in
its engine, 5.2 s after a kill -9 of it (0.29 to 0.32)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What the run found. `signature` None: nothing was wrong."""

    reason: str
    signature: Signature | None = None
    triage: Triage = field(default_factory=Triage)
    exit: str | None = None
    quiet_seconds: float | None = None
    judged: bool = False
    """The server did all that it was asked; a check found its answers wrong."""


Work = Callable[[CheckContext], "CheckResult | Unfinished | AfterStop"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Half:
    """What a check left to be judged when this server is gone."""

    rest: Unfinished | AfterStop
    seconds: float
    asking: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """What one server is launched for."""

    scenario: Scenario
    launch: Launch
    runtime: Runtime
    work: Mapping[str, Work]
    """What it is asked, by the name of the check, in order."""
    node_class: str
    name: str = ""
    """Of this launch, where the scenario has several: `cold`."""
    cold: float | None = None
    """Seconds to ready of the cold start before it."""


class Conduct:
    def __init__(
        self,
        assigned: Assignment,
        *,
        folder: Path,
        masker: Masker,
        on_event: OnEvent,
        footprint: Callable[[int], Footprint],
    ) -> None:
        self._assigned, self._scenario, self._runtime = assigned, assigned.scenario, assigned.runtime
        self._folder, self._masker, self._on_event, self._footprint = folder, masker, on_event, footprint
        self._lock = threading.Lock()
        self._builder = Builder(self._runtime.marks)
        self._watched: list[str] = []
        self._ready: float | None = None
        self._phase = ""
        self._chosen = Listener(self._runtime, masked=masker.text)
        self.subject = dict.fromkeys(self._scenario.subject, False)
        self.checks: tuple[CheckResult, ...] = ()
        self.halves: dict[str, Half] = {}
        self.memory: dict[str, Footprint] = {}

    @property
    def name(self) -> str:
        """Of this launch, where the scenario has several."""
        return self._assigned.name

    @property
    def timeline(self) -> Timeline:
        with self._lock:
            return self._builder.timeline()

    @property
    def choices(self) -> dict[str, tuple[str, ...]]:
        with self._lock:
            return self._chosen.choices

    @property
    def uneven(self) -> dict[str, dict[str, tuple[str, ...]]]:
        with self._lock:
            return self._chosen.uneven

    def on_line(self, line: Line) -> None:
        """Called by the log pump's threads, for lines that hold one of the runtime's literals."""
        mark = None
        with self._lock:
            for piece in loglines.read((line.text,)):
                mark = self._builder.look(piece, t=line.t) or mark
                self._chosen.look(piece)
            self._read_facts(line.text)
        if mark and mark.edge == "begin" and mark.phase != self._phase:
            self._phase = mark.phase
            self._on_event(Event(kind="phase", text=mark.phase, t=line.t))

    def _read_facts(self, text: str) -> None:
        for word in self.subject:
            self.subject[word] = self.subject[word] or self._runtime.subjects[word].shows(text)
        if self._ready is not None and any(rule.matches(text) for rule in self._runtime.watch):
            self._watched.append(text)

    def follow(self, server: Server) -> Finding:
        """Wait for health, then run every check of the scenario; stop at the first that fails."""
        match server.wait_ready():
            case Exited() as exited:
                return self._ended(exited, f"died in {self._last_phase()} after {exited.t:.1f} s")
            case Hung() as hung:
                return self._hung(hung)
            case Ready(t=at):
                with self._lock:
                    self._ready = at
                    self._builder.ready(at)
                self._on_event(Event(kind="notice", text="health answers, and the listening socket is ours", t=at))
        self.memory["ready"] = self._footprint(server.pid)
        finding = self._check_all(server)
        self.memory["last"] = self._footprint(server.pid)
        with self._lock:
            self._builder.checks_done(_age(server), completed=finding.signature is None)
        return finding

    def stopping(self, t: float) -> None:
        with self._lock:
            self._builder.stopping(t)
            self._phase = "stop"
        self._on_event(Event(kind="phase", text="stop", t=t))

    def stopped(self, t: float) -> None:
        with self._lock:
            self._builder.stopped(t)

    # --- failures while starting

    def _ended(self, exited: Exited, words: str) -> Finding:
        """The leader ended by itself: what the log says of it, else the bare fact."""
        read = self._read_log(exited.how)
        signature = read.signature or triage.killed(exited.how, self._last_phase())
        reason = f"{words} ({exited.how}): {signature.title}"
        return Finding(reason=reason, signature=signature, triage=read, exit=exited.how)

    def _hung(self, hung: Hung) -> Finding:
        # A worker's error beats the hang that follows from it: the survivors wait for a dead peer.
        read = self._read_log(None)
        signature = read.signature or triage.hang(self._last_phase(), hung.reason)
        return Finding(
            reason=f"not ready after {hung.t:.0f} s, {hung.quiet_seconds:.0f} s without output: {signature.title}",
            signature=signature,
            triage=read,
            quiet_seconds=hung.quiet_seconds,
        )

    def _last_phase(self) -> str:
        with self._lock:
            return self._builder.current

    def _read_log(self, how: str | None) -> Triage:
        with (self._folder / "server.log").open("rb") as log:
            return triage.read(log, exit=how, phase=self._last_phase())

    # --- checks

    def _check_all(self, server: Server) -> Finding:
        from harness.client.server_client import ServerClient  # noqa: PLC0415 - as in server/probe.py

        launch = self._assigned.launch
        client = ServerClient(launch.url, launch.served_model_name, request_seconds=self._scenario.budgets.request)
        server.on_exit(client.abort)
        compiled = kernels.Watch(launch.caches)
        finding: Finding | None = None
        for name in self._assigned.work:
            if finding:
                self._add(CheckResult(name=name, outcome="not_tested", message=f"not run: {finding.reason}"))
                continue
            finding = self._check(name, server, client, compiled)
        return finding or self._still_alive(server)

    def _add(self, result: CheckResult) -> None:
        result = replace(result, launch=self._assigned.name)
        self.checks = (*self.checks, result)
        self._on_event(launches.told(result))

    def _check(self, name: str, server: Server, client: ServerClient, compiled: kernels.Watch) -> Finding | None:
        self._on_event(Event(kind="phase", text=f"check {name}", t=_age(server)))
        begun, asked = clock.now(), client.asking
        finding: Finding | None = None
        try:
            result = self._assigned.work[name](self._context(name, client, compiled))
        except RequestFailed as error:
            second = "" if self._assigned.name in ("", *self._scenario.starts) else self._assigned.name
            fitting.too_long(error, name, self._scenario.checks[name], client, launch=second)
            finding = self._broken(name, error, server, client)
            result = CheckResult(name=name, outcome="fail", message=finding.reason, request=error.request)
        seconds, asking = round(clock.now() - begun, 3), round(client.asking - asked, 3)
        if not isinstance(result, CheckResult):
            self.halves[name] = Half(rest=result, seconds=seconds, asking=asking)
            return None
        self._add(replace(result, seconds=result.seconds + seconds, asking=result.asking + asking))
        return failed(result) if finding is None and result.outcome == "fail" else finding

    def _context(self, name: str, client: ServerClient, compiled: kernels.Watch) -> CheckContext:
        return CheckContext(
            client=client,
            params=self._scenario.checks[name],
            node_class=self._assigned.node_class,
            lines=self._lines,
            corpora=CORPORA,
            names=self._runtime.counters,
            block_tokens=lambda: self._block_tokens(client),
            log=self._folder / "server.log",
            health_path=self._runtime.health_path,
            ready=self._ready or 0.0,
            cold=self._assigned.cold,
            compiled=compiled.names,
        )

    def _block_tokens(self, client: ServerClient) -> int | None:
        metrics = client.metrics()
        return self._runtime.block_tokens(choices=self.choices, metrics=metrics, serve=self._scenario.serve)

    def _lines(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._watched)

    def _broken(self, name: str, error: RequestFailed, server: Server, client: ServerClient) -> Finding:
        """A request was not answered as asked: the server died of it, crashed in it, hangs in it, or refused it."""
        where = f"check {name}{_place(error.request, client.requests)}"
        exited = server.exited() or (_wait_exit(server, LAST_WORDS) if _may_be_fatal(error) else None)
        if isinstance(error, RequestTimedOut) and not exited:
            server.collect_hang()
            read = self._read_log(None)
            signature = read.signature or triage.hang(self._last_phase(), "request")
            return Finding(reason=f"{where}: {error}", signature=signature, triage=read)
        how = exited.how if exited else None
        read = self._read_log(how)
        cause = read.signature or (triage.killed(how, self._last_phase()) if how else None)
        words = [
            f"{where}: {error}",
            *([f"the server ended ({how})"] if how else []),
            *([cause.title] if cause else []),
        ]
        signature = cause or triage.check_failed(name, str(error))
        return Finding(reason="; ".join(words), signature=signature, triage=read, exit=how)

    def _still_alive(self, server: Server) -> Finding:
        exited = server.exited()
        return self._ended(exited, "ended by itself after ready") if exited else Finding(reason="")


def _place(request: int | None, last: int) -> str:
    """Which request it was, or which one the model was asked last."""
    if request is not None:
        return f", request {request}"
    return f", after request {last}" if last else ""


def failed(result: CheckResult) -> Finding:
    """What a check found that judged answers, and found them wrong."""
    signature = triage.check_failed(result.name, result.message)
    return Finding(reason=f"check {result.name}: {result.message}", signature=signature, judged=True)


def _may_be_fatal(error: Exception) -> bool:
    """Whether a server may be dying of it. A stream that breaks off began with a 200; only a 4xx is a mere refusal."""
    if isinstance(error, BadAnswer):
        return not HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    return not isinstance(error, RequestTimedOut)


def _age(server: Server) -> float:
    return clock.now() - server.started


def _wait_exit(server: Server, seconds: float) -> Exited | None:
    deadline = clock.Deadline.after(seconds)
    while not (exited := server.exited()) and not deadline.expired:
        clock.sleep(0.02)
    return exited
