"""Known failures: the file, what matches, edits in a copy of a build, what is due, and the ladder behind a failure."""

import hashlib
import os
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import runs
from standin_build import HEALTHY, make_scenario, make_tree, make_venv

from harness import environment, known, node, run, scenario, triage, verdict, view, wanted
from harness.cli import main
from harness.errors import ScenarioError
from harness.known import Edit, edits, overlay
from harness.known.peel import peel
from harness.record import load
from harness.run import Handling

PROJECT = Path(__file__).parents[1]
SHIPPED = PROJECT / "scenarios" / "known_failures.yaml"
STATES, NAMES = (
    "AssertionError: declares 4 states, but copies 2 (validate)",
    "AttributeError: 'Engine' object has no attribute 'layer_names' (context)",
)
FILE = """\
schema: 1
known:
  - signature: "AssertionError: declares * states, but copies * (validate)"
    refs: [vllm#1]
    builds: ">=0.29.0,<0.30.0"
    fixed: 0.30.0
    scenarios: [stacked]
    workaround:
      - serve: {enable-prefix-caching: false}
        removes: prefix_cache
      - edit: {file: vllm/core.py, function: validate, replace: ==, with: ">="}
        removes: nothing
  - signature: ["0123456789ab", "AttributeError: 'Engine' object has no attribute 'layer_names'*"]
    refs: [vllm#2, "#3"]
    builds: ">=0.29.0,<0.30.0"
    workaround:
      - serve: {use-replayssm: null}
        removes: [replayssm]
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(folder, text=FILE):
    file = folder / "known_failures.yaml"
    file.write_text(text)
    return file


def stacked(folder, *lines):
    """A scenario of the package with two failures behind each other."""
    serve = "serve: {enable-prefix-caching: true, use-replayssm: true}"
    return make_scenario(folder, [], serve, "subject: [prefix_cache, replayssm]", *lines, name="stacked")


def read(title, message, function="f"):
    """A signature as triage makes it."""
    lines = ["Traceback (most recent call last):", f'  File "/x/vllm/a.py", line 3, in {function}', "    x"]
    return triage.read([*lines, f"{title}: {message}"]).signature


# --- the file


def test_the_shipped_file_knows_the_flagships_failures():
    found = known.load(SHIPPED)
    assert [entry.refs[0] for entry in found.entries] == ["vllm#54634", "vllm#54636", "vllm#55774", "vllm#54495"]
    signatures = {
        "vllm#54634": read(
            "AssertionError",
            "MambaAttentionBackendEnum.GDN_ATTN declares 4 states, but provides 2 state copy funcs",
            "validate_mamba_state_copy_funcs",
        ),
        "vllm#54636": read(
            "AttributeError",
            "'KimiK3KDAMetadataBuilder' object has no attribute 'layer_names'",
            "_get_recoverssm_context",
        ),
        "vllm#55774": read(
            "ValueError",
            "KDA RecoverSSM speculative decode query length exceeds its activation capacity (8)",
            "build",
        ),
        "vllm#54495": read(
            "UnboundLocalError",
            "cannot access local variable 'active_non_spec_mask_cpu' where it is not associated with a value",
            "build",
        ),
    }
    for ref, signature in signatures.items():
        for version in ("0.29.0", "0.29.1.dev12+gabcdef", "0.30.0rc1"):
            assert found.met(signature, version).refs == (ref,)
        for version in ("0.28.0", "0.30.0", "unknown", None):
            assert found.met(signature, version) is None
    assert found.met(None, "0.29.0") is None


def test_the_shipped_file_names_the_first_failure_of_each_scenario_only():
    found = known.load(SHIPPED)
    due = {}
    for path in scenario.available(cwd=PROJECT, extra=()):
        file = scenario.load_file(path)
        for variant in (None, *file.variants):
            one = file.scenario(variant)
            due[one.title] = [entry.refs[0] for entry in found.due(one, "0.29.0")]
            assert found.due(one, "0.30.0") == ()
            assert len(due[one.title]) <= 1
    assert due["kimi-k3-dspark[mini]"] == ["vllm#54634"]
    assert due["kimi-k3-dspark-no-prefix-cache"] == ["vllm#54636"]
    assert due["kimi-k3-no-spec"] == due["tiny-lm"] == []


def test_every_shipped_workaround_says_what_it_removes_and_edits_come_first():
    for entry in known.load(SHIPPED).entries:
        first, *rest = entry.stages()
        assert all(step.edit and not step.taken for step in first)
        assert rest
        assert all(step.taken for stage in rest for step in stage)


def test_the_file_beside_the_scenario_counts_else_the_projects(tmp_path):
    here = make_scenario(tmp_path, HEALTHY)
    assert known.beside(here) == known.load(SHIPPED)
    write(tmp_path)
    assert [entry.refs for entry in known.beside(here).entries] == [("vllm#1",), ("vllm#2", "#3")]


def test_none_where_there_is_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.known.catalogue.PROJECT", tmp_path)
    assert known.beside(tmp_path / "x.yaml") == known.KnownFailures()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema: 1", "schema: 2", "1:9: `schema` must be 1"),
        ("schema: 1\n", "", "`schema` is missing"),
        ("refs: [vllm#1]", "ref: [vllm#1]", "4:5: unknown key `ref` in `known[0]`; did you mean `refs`?"),
        ("refs: [vllm#1]", "refs: []", "4:11: `known[0].refs`"),
        ("    fixed: 0.30.0\n", "    fixed: 0.30\n", "6:12: `known[0].fixed` must be text, not the number 0.30"),
        ('builds: ">=0.29.0,<0.30.0"', "builds: 0.29.0", '5:13: `known[0].builds`: "0.29.0" is not a range'),
        ("AssertionError: declares * states, but copies * (validate)", "*", '3:16: `known[0].signature[0]`: "*" would'),
        ("removes: prefix_cache", "removes: nothing", "10:18: `known[0].workaround[0].removes`: overrides always take"),
        ("removes: prefix_cache", "removes: [[a]]", "10:19: `known[0].workaround[0].removes[0]` must be text"),
        ("        removes: nothing\n", "", "`removes` is missing in `known[0].workaround[1]`"),
        ("serve: {enable-prefix-caching: false}", "serve: {}", "9:9: `known[0].workaround[0]` changes nothing"),
        ("enable-prefix-caching: false", "enable_prefix_caching: false", "did you mean `enable-prefix-caching`?"),
        ("enable-prefix-caching: false", "port: 1", "belongs to the harness"),
        ("vllm/core.py", "/vllm/core.py", "is not a Python file as seen from site-packages"),
        ("vllm/core.py", "vllm/../core.py", "is not a Python file as seen from site-packages"),
        ("function: validate", "function: a-b", "is not the name of a function"),
        ('with: ">="', "with: ==", "is what was there before"),
        ("- edit: {", "- serve: {x: 1}\n        edit: {", "has both an edit and overrides"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_said_with_its_place(tmp_path, capsys, old, new, said):
    assert FILE.count(old) >= 1
    write(tmp_path, FILE.replace(old, new, 1))
    assert main(["run", str(make_scenario(tmp_path, HEALTHY)), "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert f"{tmp_path / 'known_failures.yaml'}:" in err
    assert not (tmp_path / "out").exists()


def test_the_file_is_no_scenario_and_can_be_validated(tmp_path, capsys):
    assert SHIPPED.name not in {path.name for path in scenario.available(cwd=PROJECT)}
    assert main(["validate", str(SHIPPED), str(write(tmp_path))]) == 0
    out = capsys.readouterr().out
    assert "scenarios/known_failures.yaml: ok, 4 known failures" in out
    assert f"{tmp_path / 'known_failures.yaml'}: ok, 2 known failures" in out
    assert main(["run", str(SHIPPED)]) == 2


def test_patterns_are_ids_prefixes_titles_and_stars(tmp_path):
    found = read("ValueError", "a[b] c? d*")
    (entry, *_) = known.load(write(tmp_path)).entries
    for word, seen in {
        found.id: True, found.id[:6]: True, found.id[:3]: False, found.title: True, "ValueError: a[b] *": True,
        "ValueError: ?[b] *": False, "ValueError": False, "*(f)": True, "*[b]*c?*": True, "KeyError*": False,
    }.items():  # fmt: skip
        assert replace(entry, signatures=("nothing like it", word)).is_seen_in(found) is seen, word


# --- words for a signature


def test_a_signature_is_named_by_a_record_too(tmp_path):
    folder = runs.write(runs.failed_at_startup(), tmp_path)
    for word in (f"@{folder}", f"@{folder / 'run.json'}"):
        assert wanted.resolve(word) == "3f2a9c0d1e4b"
    assert wanted.resolve("a title") == "a title"
    passed = runs.write(runs.passed(), tmp_path)
    with pytest.raises(ScenarioError, match="has no signature: nothing failed in it"):
        wanted.resolve(f"@{passed}")
    with pytest.raises(ScenarioError, match="not a readable run record"):
        wanted.resolve(f"@{tmp_path / 'gone.json'}")


# --- edits

SOURCE = '''\
import functools


class A:
    @functools.cache  # assert x == 1
    def go(self):
        assert x == 2
        assert x == 3

    if True:
        def hidden(self):
            pass


def go():
    """\x0c assert x == 4"""
    assert y == 5
'''


def edit(function, old, new="pass"):
    return Edit.model_validate({"file": "vllm/a.py", "function": function, "replace": old, "with": new})


@pytest.mark.parametrize(
    ("function", "old"),
    [
        ("A.go", "assert x == 2"),
        ("A.go", "assert x == 1"),
        ("go", "assert y == 5"),
        ("go", "assert x == 4"),
        ("A.hidden", "pass"),
    ],
)
def test_an_edit_is_made_inside_its_function(function, old):
    new = "return 42"
    assert edits.apply(SOURCE, edit(function, old, new)) == SOURCE.replace(old, new)


@pytest.mark.parametrize(
    ("function", "old", "new", "said"),
    [
        ("A.go", "assert x", "pass", "the text to replace is there 3 times, not once"),
        ("A.go", "assert y == 5", "pass", "the text to replace is not there, not once: assert y == 5"),
        ("go", "assert x == 2", "pass", "is not there"),
        ("A", "assert x == 2", "pass", "there is no such function in the file"),
        ("B.go", "x", "y", "there is no such function"),
        ("go", "assert y == 5", "(", "this is no Python"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(function, old, new, said):
    with pytest.raises(ScenarioError, match=said) as caught:
        edits.apply(SOURCE, edit(function, old, new))
    assert str(caught.value).startswith(f"edit of {function} in vllm/a.py: ")


def test_two_functions_of_one_name_are_refused():
    with pytest.raises(ScenarioError, match="there is 2 functions of that name"):
        edits.apply("if a:\n    def f(): return 1\nelse:\n    def f(): return 2\n", edit("f", "return 1"))


def test_line_ends_stay_as_they_are():
    assert edits.apply("def f():\r\n    return 1\r\n", edit("f", "1", "2")) == "def f():\r\n    return 2\r\n"


def digest(folder):
    """Of every byte, name, time and inode below a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        found.update(f"{path} {status.st_ino} {status.st_nlink} {status.st_mtime_ns} {status.st_mode}\n".encode())
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


@pytest.mark.parametrize("make", [make_tree, make_venv])
def test_the_build_itself_is_never_touched(tmp_path, cache, make):
    build = make(tmp_path)
    root = Path(build.ref)
    (core,) = root.rglob("vllm/core.py")
    (tmp_path / "shared").hardlink_to(core)  # as the cache shares files between environments
    provided = environment.provide(build, node.read())
    before = digest(root)
    change = Edit.model_validate({"file": "vllm/core.py", "function": "validate", "replace": "==", "with": ">="})
    with overlay.edited(provided, [change], folder=tmp_path) as edited:
        site = Path(edited.env["PYTHONPATH"].split(os.pathsep)[0])
        assert "engine.states >= engine.copied" in (site / "vllm" / "core.py").read_text()
        assert "engine.states == engine.copied\n" in (site / "vllm" / "core.py").read_text(), "the other function"
        assert list((site / "vllm" / "__pycache__").glob("core.*")) == [], "stale byte code would be run"
        assert list((site / "vllm" / "__pycache__").glob("__init__.*"))
        assert (site / "vllm" / "_C.abi3.so").resolve() == core.with_name("_C.abi3.so")
        (site / "vllm" / "core.py").write_text("broken")
        (site / "vllm" / "__init__.py").write_text("broken")
    assert digest(root) == before
    assert "-    assert engine.states == engine.copied, " in (tmp_path / "edits.diff").read_text()
    assert list((cache / "overlays").iterdir()) == []


def test_without_edits_the_environment_is_itself(tmp_path):
    provided = environment.provide(make_tree(tmp_path), node.read())
    with overlay.edited(provided, [], folder=tmp_path) as same:
        assert same is provided


def test_copies_of_a_killed_harness_are_swept_and_those_in_use_are_not(tmp_path, cache):
    provided = environment.provide(make_tree(tmp_path), node.read())
    change = Edit.model_validate({"file": "vllm/core.py", "function": "validate", "replace": "==", "with": ">="})
    (cache / "overlays" / "dead" / "site-packages").mkdir(parents=True)
    (cache / "overlays" / "dead.lock").touch()
    with overlay.edited(provided, [change], folder=tmp_path) as one:
        with overlay.edited(provided, [change], folder=tmp_path):
            assert not (cache / "overlays" / "dead").exists()
            assert len(list((cache / "overlays").glob("*.lock"))) == 2
        assert Path(one.env["PYTHONPATH"].split(os.pathsep)[0], "vllm", "core.py").is_file()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"file": "vllm/none.py"}, "vllm/none.py cannot be read in the build"),
        ({"file": "other/core.py"}, "the build has no package other to edit"),
        ({"function": "none"}, "there is no such function"),
    ],
)
def test_an_edit_of_what_the_build_has_not_is_refused(tmp_path, cache, changes, said):
    provided = environment.provide(make_tree(tmp_path), node.read())
    words = {"file": "vllm/core.py", "function": "validate", "replace": "==", "with": ">=", **changes}
    with (
        pytest.raises(ScenarioError, match=said),
        overlay.edited(provided, [Edit.model_validate(words)], folder=tmp_path),
    ):
        pass
    assert not list(cache.glob("overlays/*"))


# --- runs


@pytest.mark.parametrize("make", [make_tree, make_venv])
def test_peel_climbs_past_both_failures(tmp_path, capsys, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    build = make(tmp_path)
    assert main(["run", str(stacked(tmp_path)), "--build", str(build), "--peel"]) == 1
    out = capsys.readouterr().out
    first, second, third = sorted(
        (load(folder) for folder in (tmp_path / "reports").iterdir()), key=lambda r: r.started
    )
    assert [r.verdict for r in (first, second, third)] == ["FAIL", "FAIL", "PASS"]
    assert [r.signature and r.signature.title for r in (first, second, third)] == [STATES, NAMES, None]
    assert (first.known.refs, first.known.fixed, first.under) == (("vllm#1",), "0.30.0", ())
    around = "edit of validate in vllm/core.py, removes nothing"
    assert (second.known.refs, second.known.fixed, second.under) == (("vllm#2", "#3"), None, (around,))
    dropped = "serve.use-replayssm removed, removes replayssm"
    assert (third.known, third.under) == (None, (around, dropped))
    assert "edits.diff" not in first.artifacts
    assert "edits.diff" in second.artifacts
    assert "--use-replayssm" in second.argv
    assert "--use-replayssm" not in third.argv
    assert third.subject == {"prefix_cache": False}, "what a workaround takes away is not asked for"
    assert len({r.fingerprint for r in (first, second, third)}) == 3
    assert first.reproduce.endswith(f"--build {build}")
    assert third.reproduce.endswith(f"--build {build} --peel")
    assert second.signature.frames[0].file == "vllm/core.py"
    phase = first.signature.phase
    assert out.splitlines()[-4:] == [
        "stacked:",
        f"1. {STATES} in {phase} ({first.signature.id}), known: vllm#1, fixed in 0.30.0",
        f"2. under {around}: {NAMES} in {phase} ({second.signature.id}), known: vllm#2, #3, no fix known",
        f"3. under {around} and {dropped}: PASS {third.reason}",
    ]


def test_what_a_workaround_removes_is_not_checked(tmp_path):
    step = known.load(write(tmp_path)).entries[1].workaround[0]
    asked = scenario.load(stacked(tmp_path, "checks: {warmup: {}}"))
    changed = run._around(replace(asked, checks={**asked.checks, "replayssm": None}), step)
    assert (list(changed.checks), changed.subject) == (["warmup"], ("prefix_cache",))
    assert changed.serve == {"enable-prefix-caching": True}


def test_edits_need_the_python_path_for_themselves(tmp_path):
    write(tmp_path)
    file = stacked(tmp_path)
    file.write_text(file.read_text().replace("env: {", "env: {PYTHONPATH: /x, "))
    steps = known.beside(file).entries[0].stages()[0]
    done = run.execute(
        scenario.load(file), build=make_tree(tmp_path), out=tmp_path / "out", handling=Handling(under=steps)
    )
    assert (done.verdict, done.blame) == ("ERROR", "scenario")
    assert "`env.PYTHONPATH` would hide the edited sources" in done.reason


def test_an_edit_that_does_not_fit_ends_the_ladder_as_an_error(tmp_path, capsys):
    write(tmp_path, FILE.replace("replace: ==", "replace: ="))
    words = ["run", str(stacked(tmp_path)), "--build", str(make_tree(tmp_path)), "--peel", "--out", str(tmp_path / "o")]
    assert main(words) == 1, "the first run's"
    assert (
        "2. under edit of validate in vllm/core.py, removes nothing: ERROR edit of validate" in capsys.readouterr().out
    )


def test_another_build_has_no_known_failure(tmp_path):
    write(tmp_path)
    asked = scenario.load(stacked(tmp_path))
    done = run.execute(
        asked, build=make_tree(tmp_path, "0.30.0"), out=tmp_path / "out", handling=Handling(expected=True)
    )
    assert (done.verdict, done.signature.title, done.known, done.expected) == ("FAIL", STATES, None, False)


def test_a_known_failure_is_still_a_failure_unless_it_is_expected(tmp_path, capsys):
    write(tmp_path)
    words = ["run", str(stacked(tmp_path)), "--build", str(make_tree(tmp_path)), "--out", str(tmp_path / "out")]
    assert main(words) == 1
    assert "  known        vllm#1, fixed in 0.30.0\n" in capsys.readouterr().out
    assert main([*words, "--known", "expected"]) == 0
    out = capsys.readouterr().out
    assert "  known        vllm#1, fixed in 0.30.0 (expected)\n" in out
    assert "--known expected\n" in out
    one, two = sorted((load(folder) for folder in (tmp_path / "out").iterdir()), key=lambda r: r.started)
    assert [(r.verdict, r.expected) for r in (one, two)] == [("FAIL", False), ("FAIL", True)]
    assert one.fingerprint == two.fingerprint


def test_red_when_it_fails_otherwise(tmp_path, capsys):
    write(tmp_path, FILE.replace("AssertionError: declares", "KeyError: declares"))
    words = ["--build", str(make_tree(tmp_path)), "--known", "expected", "--out", str(tmp_path / "out")]
    assert main(["run", str(stacked(tmp_path)), *words]) == 1
    out = capsys.readouterr().out
    assert "FAIL stacked: the known failure vllm#1 did not show, it failed otherwise: died in spawn" in out
    assert f"take the scenario out: {tmp_path / 'known_failures.yaml'}:3:5" in out


def test_red_when_it_stops_failing(tmp_path, capsys):
    write(tmp_path)
    build = make_tree(tmp_path)
    core = tmp_path / "tree" / "vllm" / "core.py"
    core.write_text(core.read_text().replace("= 4, 2", "= 4, 4").replace("self.context()", "pass"))
    shutil.rmtree(core.with_name("__pycache__"))
    words = ["run", str(stacked(tmp_path)), "--build", str(build), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    assert main([*words, "--known", "expected"]) == 1
    assert "FAIL stacked: the known failure vllm#1 did not show, it passed: ready after" in capsys.readouterr().out
    _, red = sorted((load(folder) for folder in (tmp_path / "out").iterdir()), key=lambda r: r.started)
    cases = ET.parse(tmp_path / "out" / red.id / "junit.xml").getroot().iter("testcase")
    assert [(case.attrib["name"], [child.tag for child in case][:1]) for case in cases] == [
        ("startup", []), ("run", ["failure"]),
    ]  # fmt: skip


# --- judging


def entries(folder):
    return known.load(write(folder)).entries


def test_what_is_expected_and_what_is_missed(tmp_path):
    named, anywhere = entries(tmp_path)
    failed = verdict.Judgement(verdict="FAIL", reason="died", blame="product")
    passed = verdict.Judgement(verdict="PASS", reason="ready")
    error = verdict.Judgement(verdict="ERROR", reason="busy", blame="node")
    assert verdict.is_expected(failed, named, (named,))
    assert not verdict.is_expected(failed, named, ()), "it has its scenarios, and this is none of them"
    assert verdict.is_expected(failed, anywhere, ())
    assert not verdict.is_expected(failed, anywhere, (named,)), "another one was due"
    assert not verdict.is_expected(failed, None, (named,))
    assert not verdict.is_expected(error, named, (named,))
    assert not verdict.is_expected(passed, None, ())
    assert verdict.missed(failed, named, (named,)) == failed
    assert verdict.missed(error, None, (named,)) == error
    assert verdict.missed(passed, None, ()) == passed
    stopped = verdict.missed(passed, None, (named,))
    assert (stopped.verdict, stopped.blame) == ("FAIL", "product")
    assert stopped.reason == "the known failure vllm#1 did not show, it passed: ready"
    otherwise = verdict.missed(failed, anywhere, (named,))
    assert otherwise.reason == "the known failure vllm#1 did not show, it failed otherwise: died"


# --- the ladder, without servers


def climb(folder, *found):
    """Peel with a launch that answers with these runs; what each was launched under."""
    answers, asked = list(found), []

    def launch(under):
        asked.append([step.words.split(",")[0] for step in under])
        return answers.pop(0)

    made = list(peel(launch, known.load(folder / "known_failures.yaml")))
    assert answers == []
    assert len(made) == len(found)
    return asked


def test_edits_come_before_overrides_and_each_is_tried_once(tmp_path):
    write(tmp_path)
    bad = runs.failed_at_startup(signature=read("AssertionError", "declares 4 states, but copies 2", "validate"))
    bad = replace(bad, version="0.29.0")
    edited, override = "edit of validate in vllm/core.py", "serve.enable-prefix-caching = false"
    assert climb(tmp_path, bad, bad, bad) == [[], [edited], [edited, override]]
    other = replace(bad, signature=read("AttributeError", "'Engine' object has no attribute 'layer_names'"))
    assert climb(tmp_path, other, bad, runs.passed()) == [
        [], ["serve.use-replayssm removed"], [edited, "serve.use-replayssm removed"],
    ]  # fmt: skip


def test_the_ladder_ends_where_nothing_is_known(tmp_path):
    write(tmp_path)
    met = replace(runs.failed_at_startup(), version="0.29.0")
    assert climb(tmp_path, met) == [[]]
    assert climb(tmp_path, runs.unmet()) == [[]]
    bad = replace(met, signature=read("AssertionError", "declares 4 states, but copies 2", "validate"))
    assert climb(tmp_path, replace(bad, verdict="ERROR")) == [[]]
    assert climb(tmp_path, bad, runs.unmet()) == [[], ["edit of validate in vllm/core.py"]]
    reproduced = replace(bad, verdict="PASS")
    assert len(climb(tmp_path, reproduced, runs.passed())) == 2


def test_ladder_lines():
    lines = list(view.ladder([runs.failed_at_startup(), runs.passed(under=("a, removes x", "b, removes nothing"))]))
    assert lines == [
        f"1. {runs.LAYER_NAMES} in capture (3f2a9c0d1e4b), not known",
        "2. under a, removes x and b, removes nothing: PASS ready after 20.1 s, 2 checks passed",
    ]
