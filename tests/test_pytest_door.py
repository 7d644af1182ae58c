"""`pytest scenarios/`, as people call it.

Most tests put a fake in the place of `execute`, which answers at once with a record of the wanted kind: what is tested
is the door. The last ones go through the real `execute`, with a server that is a small program.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import fake_execute
import pytest
import runs

from harness import run

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
# The plugin of hypothesis would cost a second a session.
INI = """[pytest]
testpaths = tests
addopts = --strict-markers --strict-config -p no:cacheprovider -p no:hypothesispytest
"""
ALONE = (
    "import sys\n\ndef test_own():\n    assert not {'harness.scenario', 'harness.run', 'pydantic'} & set(sys.modules)\n"
)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run, "execute", fake_execute.execute)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    pytester.makeini(INI)
    path = pytester.path
    shutil.copy(ROOT / "conftest.py", path)
    (path / "tests").mkdir()
    (path / "tests" / "data.yaml").write_text("not: a scenario\n")
    (path / "tests" / "test_own.py").write_text(ALONE)
    (path / "scenarios" / "model").mkdir(parents=True)
    return path


def add(project: Path, name: str, *variants: str, more: str = "") -> Path:
    file = project / "scenarios" / f"{name.replace('-', '_')}.yaml"
    lines = ["schema: 1", f"name: {name}", "model: ./model", "serve: {max-model-len: 512}", more]
    if variants:
        lines += ["variants:", *(f"  {variant}: {{serve: {{enforce-eager: true}}}}" for variant in variants)]
    file.write_text("\n".join(line for line in lines if line) + "\n")
    return file


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def call(project: Path, pytester: pytest.Pytester):
    """Run pytest in the project; here it costs a tenth of what a process of its own does."""

    def here(*words: str) -> Done:
        done = pytester.runpytest_inprocess(*words)
        return Done(int(done.ret), done.stdout.str(), done.stderr.str())

    return here


def command(*words: str, fake: bool = True) -> list[str]:
    return [sys.executable, "-m", "pytest", *(("-p", "fake_execute") if fake else ()), *words]


def environment() -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    paths = [str(ROOT), str(ROOT / "tests"), *filter(None, [inherited.get("PYTHONPATH")])]
    return inherited | {"PYTHONPATH": os.pathsep.join(paths)}


def call_apart(project: Path, *words: str, fake: bool = True) -> Done:
    """Run pytest in a process of its own: for workers, signals, and what is imported."""
    done = subprocess.run(
        command(*words, fake=fake),
        cwd=project, env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def ids(done: Done) -> list[str]:
    return [line for line in done.stdout.splitlines() if "::" in line and " " not in line]


def test_every_variant_is_an_item_with_a_stable_id(project, call):
    add(project, "passes-tiny", "eager", "fp32")
    add(project, "fails-tiny")
    done = call("scenarios/", "--collect-only", "-q")
    assert ids(done) == [
        "scenarios/fails_tiny.yaml::fails-tiny",
        "scenarios/passes_tiny.yaml::passes-tiny",
        "scenarios/passes_tiny.yaml::passes-tiny[eager]",
        "scenarios/passes_tiny.yaml::passes-tiny[fp32]",
    ]
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["scenarios/passes_tiny.yaml"], ["passes-tiny", "passes-tiny[eager]"]),
        (["scenarios/passes_tiny.yaml::passes-tiny[eager]"], ["passes-tiny[eager]"]),
        (["scenarios", "-k", "eager"], ["passes-tiny[eager]"]),
        (["scenarios", "-k", "tiny and not eager"], ["passes-tiny"]),
        (["scenarios", "--deselect", "scenarios/passes_tiny.yaml::passes-tiny[eager]"], ["passes-tiny"]),
    ],
)
def test_items_are_chosen_as_usual(project, words, chosen, call):
    add(project, "passes-tiny", "eager")
    done = call(*words, "--collect-only", "-q")
    assert [item.partition("::")[2] for item in ids(done)] == chosen


def test_bare_pytest_runs_tests_alone_and_imports_nothing_of_the_harness(project):
    add(project, "fails-tiny")
    done = call_apart(project, fake=False)
    assert done.returncode == 0
    assert "1 passed" in done.stdout


def test_data_of_tests_is_no_scenario(project, call):
    done = call("tests/", "--collect-only", "-q")
    assert ids(done) == ["tests/test_own.py::test_own"]


def test_failure_is_its_title_what_to_do_and_where_the_report_is_without_a_traceback(project, call):
    add(project, "fails-tiny")
    add(project, "errors-tiny")
    add(project, "passes-tiny")
    done = call("scenarios/")
    assert done.returncode == 1
    assert "2 failed, 1 passed" in done.stdout
    assert f"FAIL: {runs.LAYER_NAMES}\ndied while starting (exit 1 at 14.0 s, in capture)" in done.stdout
    assert "ERROR: kimi-k3-dspark needs 8 GPUs of 130 GiB, this node has none\ntry `--variant mini`" in done.stdout
    assert f"report: {project}/reports/fails-tiny/summary.md\n" in done.stdout
    assert "harness run scenarios/fails_tiny.yaml --build current" in done.stdout
    assert "a line of progress" in done.stdout
    assert "Traceback" not in done.stdout
    assert "conftest.py:" not in done.stdout
    assert f"PASS passes-tiny: {project}/reports/passes-tiny" in done.stdout


def test_text_of_a_hostile_server_is_bounded_and_visible(project, call):
    add(project, "hostile")
    done = call("scenarios/")
    assert done.returncode == 1
    size, odd = len(done.stdout), {"\x1b", "\x00", "\r"} & set(done.stdout)
    assert size < 100_000  # not in one expression with the text: its explanation would be as long
    assert not odd


def test_a_bug_of_ours_has_its_traceback(project, call):
    add(project, "crashes")
    done = call("scenarios/")
    assert done.returncode == 1
    assert "ZeroDivisionError: a bug of ours" in done.stdout
    assert "fake_execute.py:" in done.stdout


def test_unmet_needs_are_skipped_and_a_session_that_ran_nothing_exits_3(project, call):
    add(project, "unmet-needs")
    done = call("scenarios/", "-rs")
    assert done.returncode == 3
    assert "1 skipped" in done.stdout
    assert "needs 8 GPUs of 130 GiB, this node has none; try `--variant mini`" in done.stdout
    assert "no scenario ran: exit 3" in done.stdout
    add(project, "passes-tiny")
    assert call("scenarios/").returncode == 0


def test_a_known_failure_fails_or_is_a_skip_that_ran(project, call):
    add(project, "known-crash")
    (project / "scenarios" / "known_failures.yaml").write_text("schema: 1\nknown: []\n")
    done = call("scenarios/")
    assert done.returncode == 1
    assert "\nknown: vllm#54636, fixed in 0.30.0\n" in done.stdout
    done = call("scenarios/", "--known", "expected", "-rs")
    assert done.returncode == 0
    assert "1 skipped" in done.stdout
    assert f"known: vllm#54636, fixed in 0.30.0: {runs.LAYER_NAMES}" in done.stdout
    assert call_apart(project, "scenarios/", "--known", "expected", "-n", "2").returncode == 0


def test_nothing_chosen_exits_3(project, call):
    add(project, "passes-tiny")
    assert call("scenarios/", "-k", "nothing").returncode == 3


def test_nothing_ran_in_any_worker_exits_3(project):
    add(project, "unmet-needs")
    assert call_apart(project, "scenarios/", "-n", "2").returncode == 3


def test_collecting_only_is_not_running_nothing(project, call):
    add(project, "unmet-needs")
    assert call("scenarios/", "--collect-only").returncode == 0


def test_invalid_scenario_is_a_collection_error_with_its_place(project, call):
    file = add(project, "passes-tiny")
    file.write_text(file.read_text() + "budgetz: {startup: 1m}\n")
    add(project, "passes-other")
    done = call("scenarios/")
    assert done.returncode == 2
    assert "ERROR collecting scenarios/passes_tiny.yaml" in done.stdout
    assert "scenarios/passes_tiny.yaml:5:1: " in done.stdout
    assert "budgets" in done.stdout  # did you mean
    assert "Traceback" not in done.stdout


def test_options_reach_the_run(project, call):
    add(project, "fails-tiny", "eager")
    words = ["--build", "release:0.32.0", "--out", "elsewhere", "--set", "serve.max-model-len=128"]
    done = call("scenarios/fails_tiny.yaml::fails-tiny[eager]", *words)
    reproduce = (
        "harness run scenarios/fails_tiny.yaml --variant eager --build release:0.32.0 --set serve.max-model-len=128"
    )
    assert reproduce in done.stdout
    record = json.loads((project / "elsewhere" / "fails-tiny[eager]" / "run.json").read_text())
    assert record["reproduce"] == reproduce


def test_unknown_build_is_a_usage_error_before_anything_is_collected(project, call):
    add(project, "passes-tiny")
    done = call("scenarios/", "--build", "relase:0.32.0")
    assert done.returncode == 4
    assert "--build" in done.stderr
    assert "release" in done.stderr
    assert "Traceback" not in done.stderr


def test_workers_report_to_the_process_that_prints_and_writes_junit_xml(project):
    add(project, "fails-tiny", "eager")
    add(project, "unmet-needs")
    add(project, "passes-tiny")
    done = call_apart(project, "scenarios/", "-n", "2", "--junitxml", "all.xml")
    assert done.returncode == 1
    assert "2 failed, 1 passed, 1 skipped" in done.stdout
    for words in ("PASS passes-tiny", "FAIL fails-tiny", "FAIL fails-tiny[eager]", "SKIP unmet-needs"):
        assert f"{words}: {project}/reports/" in done.stdout
    suite = ET.parse(project / "all.xml").getroot()[0]
    assert [suite.attrib[k] for k in ("tests", "failures", "errors", "skipped")] == ["4", "2", "0", "1"]
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    assert set(cases) == {"fails-tiny", "fails-tiny[eager]", "unmet-needs", "passes-tiny"}
    failure = cases["fails-tiny"].find("failure")
    assert failure is not None
    assert failure.text.startswith(f"FAIL: {runs.LAYER_NAMES}\n")
    found = {p.attrib["name"]: p.attrib["value"] for p in cases["fails-tiny"].iter("property")}
    assert found["signature"] == "3f2a9c0d1e4b"


def test_sigterm_ends_the_session_like_ctrl_c(project):
    add(project, "interrupted")
    add(project, "passes-later")
    done = call_apart(project, "scenarios/")
    assert done.returncode == 2
    assert "KeyboardInterrupt" in done.stdout
    assert not (project / "reports" / "passes-later").exists()


# --- through the real execute

SERVER = """#!{python}
import json, os, signal, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def note(word):
    with open(os.environ["STAND_IN_JOURNAL"], "a") as journal:
        journal.write(json.dumps([word, os.getpid(), time.monotonic()]) + "\\n")

words = sys.argv[1:]

def value(flag):
    at = next(i for i, word in enumerate(words) if word.partition("=")[0] == flag)
    return words[at].partition("=")[2] or words[at + 1]

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        model = {{"id": value("--served-model-name"), "object": "model"}}
        body = json.dumps({{"object": "list", "data": [model]}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

def stop(*_):
    note("end")
    os._exit(0)

note("begin")
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
time.sleep(1.5)
server = ThreadingHTTPServer(("127.0.0.1", int(value("--port"))), Handler)
print("INFO: Application startup complete.", flush=True)
server.serve_forever()
"""


@pytest.fixture
def stand_in(project: Path) -> str:
    """A virtual environment whose `vllm` is a small program; named as a build."""
    folder = project / "stand_in" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    (folder / "vllm").write_text(SERVER.format(python=folder / "python"))
    (folder / "vllm").chmod(0o755)
    return f"venv:{project / 'stand_in'}"


def real_scenario(project: Path, name: str) -> None:
    model = project / "scenarios" / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").touch()
    add(project, name, more=f"env: {{STAND_IN_JOURNAL: {project / 'journal'}}}")


def journal(project: Path) -> list[tuple[str, int, float]]:
    lines = (project / "journal").read_text().splitlines()
    return sorted(((word, pid, t) for word, pid, t in map(json.loads, lines)), key=lambda row: row[2])


def test_parallel_runs_on_one_cpu_never_overlap(project, stand_in):
    """Two workers, three scenarios, one CPU to lease: each server's life ends before the next one begins."""
    for name in ("one", "two", "three"):
        real_scenario(project, name)
    done = call_apart(project, "scenarios/", "-n", "2", "--build", stand_in, fake=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    rows = journal(project)
    assert [word for word, _, _ in rows] == ["begin", "end"] * 3
    assert all(rows[i][1] == rows[i + 1][1] for i in (0, 2, 4))
    assert len({pid for _, pid, _ in rows}) == 3
    for folder in (project / "reports").iterdir():
        assert {"run.json", "junit.xml", "summary.md", "server.log"} <= {file.name for file in folder.iterdir()}


def test_ctrl_c_in_a_real_run_leaves_its_report_and_no_server(project, stand_in):
    real_scenario(project, "one")
    words = command("scenarios/", "--build", stand_in, fake=False)
    with subprocess.Popen(
        words, cwd=project, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as session:
        end = time.monotonic() + 30
        while not (project / "journal").exists():
            assert time.monotonic() < end, "the server never began"
            time.sleep(0.02)
        session.send_signal(signal.SIGINT)
        assert session.wait(timeout=30) == 2
    ((_, pid, _), *_) = journal(project)
    assert not Path(f"/proc/{pid}").exists()
    (folder,) = (project / "reports").iterdir()
    assert json.loads((folder / "run.json").read_text())["state"] == "interrupted"
    assert 'type="interrupted"' in (folder / "junit.xml").read_text()
