"""pytest's door: `pytest scenarios/` runs every scenario and every variant of it as one test item each.

    pytest scenarios/                                   all of them
    pytest scenarios/tiny_lm.yaml::tiny_lm[eager]       one variant; `::tiny_lm` is the scenario with all its variants
    pytest scenarios/ --known expected                  a known failure is a skip, and its absence a failure
    pytest scenarios/ -k eager -n 4 --junitxml all.xml  as with any test; each run leases its own GPUs, or the CPU

Files count only where they, or their folder, are named on the command line: bare `pytest` runs tests/ alone. A need
that this node cannot meet is a skip; FAIL and ERROR are failures; a session in which nothing ran exits 3, never 0.
"""

# ruff: noqa: PLC0415 - the harness is imported when the first scenario is collected: tests/ must not wait for it

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.errors import HarnessError, Interrupted, UsageError

if TYPE_CHECKING:
    from types import FrameType

    from harness.build import Build
    from harness.record import Run
    from harness.scenario import Scenario

NOTHING_RAN = 3
"""As `harness run` exits: an error of the harness, the node or the scenario."""
REPORTED = "harness"
"""Key of the user property that carries a run's line from a worker to the process that prints it."""
EXPECTED = "known"
"""Key of the user property of a run that met a known failure: pytest skips it, but it ran."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("harness", "scenarios")
    group.addoption("--build", default="current", metavar="BUILD", help="build to run scenarios on (default: current)")
    group.addoption("--out", default="reports", metavar="DIR", help="folder for the reports of scenarios")
    group.addoption("--known", choices=["expected"], help="a known failure is a skip, and its absence a failure")
    group.addoption("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE", help="scenario override")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("build") != "current":
        _build(config)  # a word that names no build costs no collection
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Tally(config), "harness-tally")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not _is_scenario(file_path) or not _named(file_path, parent.config):
        return None
    return ScenarioCollector.from_parent(parent, path=file_path)


class ScenarioCollector(pytest.File):
    """One scenario file."""

    def collect(self) -> Iterable[pytest.Item]:
        from harness import scenario

        path = self.path.relative_to(Path.cwd()) if self.path.is_relative_to(Path.cwd()) else self.path
        sets = tuple(self.config.getoption("sets"))
        try:
            file = scenario.load_file(path)
            loaded = [file.scenario(variant, sets) for variant in (None, *file.variants)]
        except HarnessError as error:
            raise self.CollectError(str(error)) from None
        return [ScenarioItem.from_parent(self, name=one.title, scenario=one) for one in loaded]


class NotPassed(Exception):  # noqa: N818 - a verdict, not an error
    """Carries the verdict of a run to pytest; its text is all that is shown."""


class ScenarioItem(pytest.Item):
    """One scenario, or one variant of it, on one build."""

    def __init__(self, *, scenario: Scenario, **rest: Any) -> None:
        super().__init__(**rest)
        self.scenario = scenario

    def runtest(self) -> None:
        from harness import run as runs
        from harness import view

        build = _build(self.config)
        out = self.config.invocation_params.dir / self.config.getoption("out")
        try:
            with _terminable():
                run = runs.execute(
                    self.scenario,
                    build=build,
                    out=out,
                    sets=tuple(self.config.getoption("sets")),
                    on_event=view.PlainView(sys.stdout),
                    skip_unmet=True,
                    handling=runs.Handling(expected=self.config.getoption("known") == "expected"),
                )
        except Interrupted as error:
            raise KeyboardInterrupt(str(error)) from None
        self.user_properties.append((REPORTED, f"{run.verdict} {run.title}: {out / run.id}"))
        if run.expected:
            self.user_properties.append((EXPECTED, True))
        if run.signature:
            self.user_properties.append(("signature", run.signature.id))
        _tell(run, out / run.id)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, NotPassed | HarnessError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self.path, None, self.name


class Tally:
    """In the process that prints: counts what ran, says where the reports are, lets no empty session pass."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._ran = 0
        self._lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._ran += not report.skipped or any(name == EXPECTED for name, _ in report.user_properties)
            self._lines += [str(value) for name, value in report.user_properties if name == REPORTED]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        if self._lines:
            terminalreporter.section("scenarios")
            terminalreporter.write_line("\n".join(self._lines))
        if self._empty(exitstatus):
            terminalreporter.write_line(
                f"no scenario ran: exit {NOTHING_RAN}; -rs shows why they were skipped", red=True
            )

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._empty(exitstatus):
            session.exitstatus = NOTHING_RAN

    def _empty(self, exitstatus: int) -> bool:
        passed = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED, NOTHING_RAN)
        return passed and not self._ran and not self._config.option.collectonly and _asks_for_scenarios(self._config)


def _arguments(config: pytest.Config) -> list[Path]:
    """Files and folders that the command line names; none where pytest took them from its configuration."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return []
    return [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]


def _is_scenario(file: Path) -> bool:
    return file.suffix == ".yaml" and file.name != "known_failures.yaml"


def _named(file: Path, config: pytest.Config) -> bool:
    tests = [config.rootpath / folder for folder in config.getini("testpaths")]
    if any(file.is_relative_to(folder) for folder in tests):
        return False  # data of tests
    return bool({file.resolve(), file.resolve().parent} & set(_arguments(config)))


def _asks_for_scenarios(config: pytest.Config) -> bool:
    files = [file for named in _arguments(config) for file in (named, *named.glob("*.yaml")) if _is_scenario(file)]
    return any(_named(file, config) for file in files)


def _build(config: pytest.Config) -> Build:
    from harness.build import parse

    try:
        return parse(config.getoption("build"))
    except UsageError as error:
        raise pytest.UsageError(f"--build: {error}") from None


def _tell(run: Run, folder: Path) -> None:
    from harness.report.cases import headline, known_words, verdict
    from harness.report.text import one_line

    reason, fix = one_line(run.reason), one_line(run.fix)
    if verdict(run) == "SKIP":
        pytest.skip("; ".join(filter(None, (reason, fix))))
    if run.expected:
        pytest.skip(f"{known_words(run)}: {headline(run)}")
    if verdict(run) != "PASS":
        title = headline(run)
        more = (
            reason if reason != title else "",
            known_words(run),
            fix,
            f"report: {folder / 'summary.md'}",
            one_line(run.reproduce),
        )
        raise NotPassed("\n".join([f"{verdict(run)}: {title}", *filter(None, more)]))


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM stops a run as Ctrl-C does: with its record on disk and its server taken down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        raise Interrupted(signal.Signals(number).name)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
