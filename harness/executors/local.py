"""Runs on this machine: the default. Leases keep those that go at once from each other's GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from harness import environment, node, run
from harness.build import Build
from harness.events import Event, OnEvent
from harness.executors.base import Ask, Facts, Pool
from harness.executors.pools import Inline, Processes
from harness.record import Run


@dataclass(frozen=True, slots=True)
class Local:
    remote = False

    def execute(self, ask: Ask, on_event: OnEvent) -> Run:
        return make(ask, on_event)

    def facts(self, build: Build, on_event: OnEvent) -> Facts:
        return look(build, on_event)

    def pool(self, jobs: int, on_event: OnEvent) -> Pool:
        return Processes(on_event) if jobs > 1 else Inline(on_event)


def make(ask: Ask, on_event: OnEvent, *, reproduce: str = "") -> Run:
    """`run.execute` of what is asked; `reproduce` is the command that makes the run again, where it is another one."""
    return run.execute(
        ask.scenario,
        build=ask.build,
        out=ask.out,
        sets=ask.sets,
        on_event=on_event,
        grace=ask.grace,
        skip_unmet=ask.skip_unmet,
        attempt=ask.attempt,
        handling=ask.handling,
        reproduce=reproduce,
    )


def look(build: Build, on_event: OnEvent) -> Facts:
    here = node.read()
    provided = environment.provide(build, here, on_step=lambda text: on_event(Event(kind="notice", text=text)))
    return Facts(content=provided.content, packages=provided.packages, node_class=provided.class_on(here))
