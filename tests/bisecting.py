"""Histories of builds with bugs in them, in the place of real servers: `harness.run.execute` answered from a table."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

import runs

from harness import clock, environment, recorder, triage
from harness import run as running
from harness.build import Build, parse
from harness.environment import Environment
from harness.record import Run
from harness.scenario import load
from harness.signature import Signature
from harness.timeline import Phase, Timeline

ORDER = ("spawn#1", "config#1", "workers#1", "weights#1", "capture#1", "kv_cache#1", "capture#2")


def signature(
    message: str, *, kind: str = "python_exception", function: str = "f", exception: str = "RuntimeError"
) -> Signature:
    return replace(
        triage.check_failed("x", message), kind=kind, exception=exception, title=f"{exception}: {message}",
        frames=(runs.ATTRIBUTE_ERROR.frames[0].__class__(function=function, file="vllm/a.py", line=1),), phase=None,
    )  # fmt: skip


def timeline(died: str | None) -> Timeline:
    """Phases up to the one in which it died, which is not completed; all of them and ready for None."""
    labels = ORDER if died is None else ORDER[: ORDER.index(died) + 1]
    phases = [
        Phase(
            name=label.partition("#")[0],
            occurrence=int(label[-1]),
            start=float(at),
            end=at + 1.0,
            completed=label != died,
        )
        for at, label in enumerate(labels)
    ]
    return Timeline(phases=tuple(phases), ready=None if died else 7.0)


def run(died: str | None = None, found: Signature | None = None, **changes: object) -> Run:
    """One that passed, or died in a phase with a signature."""
    base = runs.passed(
        timeline=timeline(died), checks=() if died else (runs.WARMUP, runs.PERPLEXITY), signature=found,
        verdict="FAIL" if found else "PASS", resolved={"checks": {} if died else {"warmup": {}, "perplexity": {}}},
        reason=found.title if found else "ready after 7.0 s, 2 checks passed", subject={},
    )  # fmt: skip
    return replace(base, **changes)


def content(build: Build) -> str:
    """What is in a build; replaced where several have the same."""
    return build.ref


@dataclass
class Bug:
    """From build `first` to `last` (included) the server dies in `phase`; a change whose key holds `cure` helps."""

    message: str
    first: int
    last: int
    phase: str = "capture#1"
    kind: str = "python_exception"
    cure: str = ""

    def strikes(self, at: int, under: tuple[object, ...]) -> bool:
        cured = self.cure and any(self.cure in change.key for change in under)
        return self.first <= at <= self.last and not cured


@dataclass
class History:
    """`size` builds; bugs strike in the order of their phases. `broken`: builds that cannot be made."""

    size: int
    bugs: list[Bug]
    broken: set[int] = field(default_factory=set)
    passes: dict[int, list[bool]] = field(default_factory=dict)
    """Of flaky builds: whether the bugs stay away, run by run."""
    executed: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    dies_at: int | None = None
    """The harness is killed in this run, counted from 0."""

    @property
    def builds(self) -> tuple[Build, ...]:
        return tuple(parse(f"release:0.{at}.0") for at in range(self.size))

    def at(self, build: Build) -> int:
        return self.builds.index(build)

    def execute(self, scenario, *, build, out, sets, on_event, grace, handling, **rest):
        at, under = self.at(build), handling.under
        if self.dies_at is not None and len(self.executed) == self.dies_at:
            self.dies_at = None
            raise KeyboardInterrupt
        self.executed.append((at, tuple(change.words for change in under)))
        made = self.answer(at, under)
        folder = out / f"{len(list(out.glob('*'))):04}-{uuid.uuid4().hex[:6]}"
        folder.mkdir(parents=True)
        (folder / "server.log").touch()
        done = replace(
            made, id=folder.name, build=str(build), version=build.ref, scenario=scenario.name, variant=scenario.variant,
            meaning=recorder.asked(scenario, under), content=content(build), packages={}, node_class="cpu",
            started=clock.utc(), ended=clock.utc(), under=tuple(change.words for change in under), evidence=(),
            probe=handling.probe,
        )  # fmt: skip
        runs.write(done, out)
        return done

    def answer(self, at: int, under: tuple[object, ...]) -> Run:
        if at in self.broken:
            return run(verdict="ERROR", blame="harness", reason="no such wheel", state="finished")
        stays_away = self.passes.get(at, [])
        if stays_away and stays_away.pop(0):
            return run()
        struck = [bug for bug in self.bugs if bug.strikes(at, under)]
        if not struck:
            return run()
        first = min(struck, key=lambda bug: ORDER.index(bug.phase))
        return run(first.phase, signature(first.message, kind=first.kind, function=first.message[:5]))


def patched(monkeypatch, history: History) -> None:
    """Put a history in the place of the builds there are."""

    def provide(build, node, **rest):
        return Environment(
            build=build, version=build.ref, accelerator="cpu", command=(), python=Path(), content=content(build)
        )

    monkeypatch.setattr(running, "execute", history.execute)
    monkeypatch.setattr(environment, "provide", provide)


def scenario(folder: Path, *lines: str):
    (folder / "model").mkdir(parents=True, exist_ok=True)
    (folder / "model" / "config.json").touch()
    file = folder / "history.yaml"
    file.write_text("\n".join(["schema: 1", "name: history", "model: ./model", *lines]) + "\n")
    return load(file)


def known(folder: Path, *bugs: Bug) -> None:
    """A known_failures.yaml with an edit that cures each of these, its text being the bug's `cure`."""
    entries = [
        {
            "signature": f"RuntimeError: {bug.message}", "refs": ["vllm#1"], "builds": ">=0.0.0",
            "workaround": [
                {
                    "edit": {"file": "vllm/a.py", "function": "f", "replace": bug.cure, "with": "pass"},
                    "removes": ["nothing"],
                }
            ],
        }
        for bug in bugs
    ]  # fmt: skip
    (folder / "known_failures.yaml").write_text(json.dumps({"schema": 1, "known": entries}))
