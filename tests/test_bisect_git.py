"""`git bisect run harness probe`: a real repository, whose commits are servers that start or die."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import standin_build

ROOT = Path(__file__).parents[1]
CULPRIT, COMMITS = 7, 12
CRASH = "AssertionError: declares 4 states, but copies 2 (validate)"


def git(folder, *words, check=True):
    argv = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
    return subprocess.run(argv, cwd=folder, check=check, capture_output=True, text=True)


@pytest.fixture
def repository(tmp_path):
    """Twelve commits of a package; the seventh brings a crash. The scenario lies outside."""
    folder = tmp_path / "repository"
    standin_build.make_package(folder, "0.1.0")
    core = folder / "vllm" / "core.py"
    broken = core.read_text()
    shutil.rmtree(folder / "vllm" / "__pycache__")
    git(folder.parent, "init", "-q", "repository")
    (folder / ".gitignore").write_text("__pycache__\n")
    for at in range(COMMITS):
        text = (
            broken
            if at >= CULPRIT
            else broken.replace("self.states, self.copied = 4, 2", "self.states, self.copied = 4, 4")
        )
        core.write_text(f"{text}\n# {at}\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"commit {at}")
    standin_build.make_scenario(tmp_path, [], "budgets: {startup: 30s, silence: 20s}")
    return folder


@pytest.fixture
def bisect(repository, tmp_path, monkeypatch):
    """Begin a bisection, run it with these words for `harness`; gives git's answer and the marks that it wrote down."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))

    def run(*words, program=("-m", "harness")):
        git(repository, "bisect", "start", "HEAD", f"HEAD~{COMMITS - 1}")
        before = git(repository, "bisect", "log").stdout
        done = git(repository, "bisect", "run", sys.executable, *program, *words, check=False)
        after = git(repository, "bisect", "log").stdout
        return done, after.removeprefix(before)

    return run


def words(tmp_path, *, scenario="stand-in.yaml"):
    return [
        "probe", str(tmp_path / scenario), "--build", "tree:.", "--signature", CRASH,
        "--out", str(tmp_path / "reports"),
    ]  # fmt: skip


def test_git_finds_the_commit(bisect, tmp_path):
    done, marks = bisect(*words(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"commit {CULPRIT}" in marks.splitlines()[-1]
    assert "first bad commit" in marks.splitlines()[-1]


def test_a_typo_in_a_flag_stops_git_and_marks_nothing(bisect, tmp_path):
    done, marks = bisect(*words(tmp_path), "--sginature", "x")
    assert done.returncode != 0
    assert marks == ""
    assert "unrecognized arguments: --sginature" in done.stdout + done.stderr


def test_a_missing_scenario_stops_git_and_marks_nothing(bisect, tmp_path):
    done, marks = bisect(*words(tmp_path, scenario="missing.yaml"))
    assert done.returncode != 0
    assert marks == ""
    assert "missing.yaml" in done.stdout + done.stderr


PROGRAM = """
import errno, os, sys
from harness import __main__, {module}

def broken(*args, **words):
    raise {error}

{module}.{name} = broken
sys.exit(__main__.main())
"""


@pytest.mark.parametrize(
    ("place", "error", "said"),
    [
        ("record.replace_text", "OSError(errno.ENOSPC, 'No space left on device')", "No space left on device"),
        ("launch.plan", "ZeroDivisionError('a bug of ours')", "ZeroDivisionError: a bug of ours"),
        ("leases.lease", "MemoryError()", "MemoryError"),
    ],
)
def test_a_full_disk_and_exceptions_of_our_own_stop_git_and_mark_nothing(bisect, tmp_path, place, error, said):
    module, _, name = place.partition(".")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(module=module, name=name, error=error))
    done, marks = bisect(*words(tmp_path), program=(str(program),))
    assert done.returncode != 0
    assert marks == ""
    assert said in done.stdout + done.stderr


def test_a_folder_for_reports_that_cannot_be_written_stops_git_and_marks_nothing(bisect, tmp_path):
    (tmp_path / "file").touch()
    done, marks = bisect(*words(tmp_path)[:-1], str(tmp_path / "file" / "reports"))
    assert done.returncode != 0
    assert marks == ""
    assert "cannot be written" in done.stdout + done.stderr


def test_no_program_at_all_stops_git_and_marks_nothing(bisect, tmp_path, monkeypatch):
    """A harness that cannot even be imported."""
    shutil.copytree(ROOT / "harness", tmp_path / "broken" / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "broken" / "harness" / "errors.py").write_text("raise ImportError('half installed')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    done, marks = bisect(*words(tmp_path))
    assert done.returncode != 0
    assert marks == ""
    assert "half installed" in done.stdout + done.stderr
