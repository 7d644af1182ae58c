"""Real runs of the shipped tiny scenarios, whole or damaged."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness import run, scenario
from harness.build import Build
from harness.checks.base import CheckResult
from harness.events import Event
from harness.record import Run, load

SHIPPED = Path(__file__).parents[2] / "scenarios"
MODEL = SHIPPED / "models" / "tiny_lm"


def copy_model(folder: Path, **config: object) -> Path:
    """A copy of the model with changed values in its config.json, and no reference of its own."""
    model = folder / "model"
    model.mkdir(parents=True)
    for name in (
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ):
        shutil.copy(MODEL / name, model / name)
    changed = {**json.loads((MODEL / "config.json").read_text()), **config}
    (model / "config.json").write_text(json.dumps(changed))
    return model


@dataclass
class Watcher:
    """Collects the events of a run; on the first one that fits, sends a signal to a process of the server."""

    when: Callable[[Event], bool] = lambda _: False
    victim: str = ""
    number: signal.Signals = signal.SIGKILL
    events: list[Event] = field(default_factory=list)
    hit: list[int] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if not self.hit and self.when(event):
            (process,) = [p for p in psutil.Process().children(recursive=True) if self.victim in " ".join(p.cmdline())]
            os.kill(process.pid, self.number)
            self.hit.append(process.pid)


def execute(
    build: Build,
    out: Path,
    *sets: str,
    watcher: Watcher | None = None,
    port: int | None = None,
    variant: str = "eager",
    name: str = "tiny_lm",
) -> Run:
    """Run a shipped scenario and prove what every run must leave behind: a record that reads back, and no process."""
    before = set(psutil.Process().children(recursive=True))
    asked = scenario.load(SHIPPED / f"{name}.yaml", variant=variant, sets=sets)
    done = run.execute(asked, build=build, out=out, sets=sets, on_event=watcher or Watcher(), port=port)
    assert load(out / done.id) == done, "run.json reads back as what was returned"
    assert done.teardown is None or done.teardown.survivors == ()
    assert set(psutil.Process().children(recursive=True)) <= before
    return done


def only(check: str, params: str = "{}", **others: str) -> tuple[str, ...]:
    """Overrides under which tiny_lm has this check and `others` alone."""
    wanted = {check: params, **others}
    shipped = scenario.load(SHIPPED / "tiny_lm.yaml").checks
    gone = [f"checks.{name}=null" for name in shipped if name not in wanted]
    return (*gone, *(f"checks.{name}={given}" for name, given in wanted.items()))


def found(done: Run, name: str, launch: str | None = None) -> CheckResult:
    """The one result of a check, of one launch where several made it; printed, for the record."""
    (check,) = [each for each in done.checks if each.name == name and launch in (None, each.launch)]
    print(name, launch or "", check.outcome, check.message, numbers(check))
    return check


def numbers(check: CheckResult) -> dict[str, float | str | None]:
    return {measured.name: measured.value for measured in check.measurements}
