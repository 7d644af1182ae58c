"""What the two executors have in common: local.py makes runs here, ray.py on the nodes of a cluster.

    command ─▶ Pool.submit(job) ─▶ job ─▶ Executor.execute(Ask) ─▶ Run
               several at once     search, ladder      one run, wherever it is made

A job decides which runs it wants, one after the other, and stays with the driver where runs are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from harness import run
from harness.build import Build
from harness.events import OnEvent
from harness.record import Run
from harness.run import Handling
from harness.scenario import Scenario

Job = Callable[[OnEvent], Any]
"""What is to be done; told whom to tell of it. For child processes it must pickle."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One run, by value: the words of `run.execute`."""

    scenario: Scenario
    build: Build
    out: Path
    sets: tuple[str, ...] = ()
    grace: float = 8.0
    skip_unmet: bool = False
    attempt: str | None = None
    handling: Handling = run.AS_THEY_ARE


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a run of a build would record where runs are made; by them a run on disk answers for another."""

    content: str
    packages: Mapping[str, str]
    node_class: str


class Executor(Protocol):
    @property
    def remote(self) -> bool:
        """Whether runs are made on other nodes, so that nothing of this one counts."""

    def execute(self, ask: Ask, on_event: OnEvent) -> Run:
        """Make one run and wait for it; its folder is under `ask.out` here, and grows while it goes.

        Raises:
            Interrupted, KeyboardInterrupt: after the record was written and the server taken down.
        """

    def facts(self, build: Build, on_event: OnEvent) -> Facts:
        """Make a build ready and say what it is.

        Raises:
            HarnessError: it cannot be made.
        """

    def pool(self, jobs: int, on_event: OnEvent) -> Pool:
        """For jobs that call this executor, `jobs` at once; a cluster takes all of them and lets them wait."""


class Pool(Protocol):
    """Runs jobs by their position, in a range of builds or on the command line."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    @property
    def running(self) -> tuple[int, ...]: ...
    def submit(self, position: int, job: Job, *, label: str | None = None) -> None:
        """`label` goes in front of what is told of it among others; None: its position, empty: nothing."""

    def wait(self) -> tuple[int, Any]:
        """The next that is done, and its result."""

    def cancel(self, position: int) -> None: ...
