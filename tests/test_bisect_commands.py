"""`bisect`, `sweep` and `probe` as they are typed: words, exit codes, what is printed; the servers are stand-ins."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import bisecting
import pytest
import runs
import standin_build
from bisecting import Bug, History

from harness import cli, environment, known, node, record, report
from harness.bisect import beginning, from_junit, outcome, releases
from harness.bisect.memory import Memory, rejudged
from harness.errors import BuildError, HarnessError, Interrupted, NodeError, ScenarioError, UsageError
from harness.events import Event
from harness.executors import pools
from harness.known import patches

CHASED = "the one that is chased"


@pytest.fixture
def history(monkeypatch, tmp_path):
    """Eight builds in a list, the fourth of which began to die."""
    made = History(8, [Bug(CHASED, 3, 7)])
    bisecting.patched(monkeypatch, made)
    bisecting.scenario(tmp_path)
    (tmp_path / "builds").write_text("\n".join(map(str, made.builds)))
    monkeypatch.chdir(tmp_path)
    return made


def test_bisect_says_what_it_found_and_where_that_stands(history, capsys):
    assert cli.main(["bisect", "history.yaml", "--builds", "builds"]) == 0
    said = capsys.readouterr().out
    assert f"FOUND release:0.3.0 is the first build with RuntimeError: {CHASED}" in said
    assert "8 builds, 7 of them possible: 3 probes and 2 more to confirm, about 0.0 minutes" in said
    (file,) = Path("reports").glob("bisect-history-*/bisection.json")
    told = outcome.load(file)
    assert told.command == "harness bisect history.yaml --builds builds"
    assert (told.ending, told.culprits) == ("found", ("release:0.3.0",))


def test_a_part_of_the_list_and_the_other_direction(history, capsys):
    assert cli.main(["bisect", "history.yaml", "--builds", "builds", "--good", "0.2.0", "--bad", "0.6.0"]) == 0
    history.bugs[0] = Bug(CHASED, 0, 4)
    assert cli.main(["bisect", "history.yaml", "--builds", "builds", "--fix", "--fresh"]) == 0
    assert "FOUND release:0.5.0 is the first build without" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("bugs", "code", "said"),
    [
        ([], 1, "NOT REPRODUCED the bad end release:0.7.0 passes"),
        ([Bug(CHASED, 0, 7)], 1, "NO CULPRIT the good end release:0.0.0 fails the same way"),
        ([Bug(CHASED, 3, 7, phase="capture#2"), Bug("another", 2, 4)], 1, "RANGE the first build with"),
    ],
)
def test_exit_1_where_no_single_build_was_found(history, capsys, bugs, code, said):
    history.bugs[:] = bugs
    assert cli.main(["bisect", "history.yaml", "--builds", "builds"]) == code
    assert said in capsys.readouterr().out


def test_exit_3_where_an_end_could_not_be_judged(history, capsys):
    history.broken.add(7)
    assert cli.main(["bisect", "history.yaml", "--builds", "builds"]) == 3
    assert "ERROR the bad end release:0.7.0 could not be judged: no such wheel" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bisect"], "which scenario?"),
        (["bisect", "history.yaml"], "both ends are needed"),
        (["bisect", "history.yaml", "--good", "0.1.0"], "both ends are needed"),
        (["bisect", "nowhere.yaml", "--builds", "builds"], "nowhere.yaml"),
        (["bisect", "history.yaml", "--builds", "nothing"], "nothing cannot be read"),
        (["bisect", "history.yaml", "--builds", "builds", "--patch", "no.diff"], "no.diff cannot be read"),
        (["bisect", "history.yaml", "--builds", "builds", "--patch", "builds"], "builds is no unified diff"),
        (["bisect", "history.yaml", "--builds", "builds", "--signature", "@none"], "none"),
        (["bisect", "history.yaml", "--builds", "builds", "--last-green", "x"], "--last-green goes with --from-junit"),
        (["bisect", "history.yaml", "--from-junit", "red.xml"], "--from-junit says which scenario"),
        (["sweep", "history.yaml", "--builds", "0.1.0,nonsense:x"], "nonsense"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_runs(history, capsys, words, said):
    assert cli.main(words) == 2
    assert said in capsys.readouterr().err
    assert not history.executed


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--confidence", "1"], ["--confidence", "0.2"], ["--nonsense"]])
def test_words_that_the_parser_refuses(history, words):
    with pytest.raises(SystemExit) as error:
        cli.main(["bisect", "history.yaml", "--builds", "builds", *words])
    assert error.value.code == 2


def test_interrupted_it_prints_how_to_go_on(history, capsys):
    history.dies_at = 3
    assert cli.main(["bisect", "history.yaml", "--builds", "builds"]) == 130
    assert "interrupted; to go on: harness bisect history.yaml --builds builds" in capsys.readouterr().err
    (folder,) = Path("reports").glob("bisect-*")
    assert outcome.load(folder).state == "interrupted"
    assert (folder / "bisection.md").is_file()
    assert cli.main(["bisect", "history.yaml", "--builds", "builds"]) == 0


def test_sweep_is_a_table_of_builds_and_how_far_each_came(history, capsys):
    assert cli.main(["sweep", "history.yaml", "--builds", "builds"]) == 1
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("release:")]
    assert [row[:3] for row in rows[2:4]] == [
        ["release:0.2.0", "PASS", "perplexity"], ["release:0.3.0", "FAIL", "weights#1"],
    ]  # fmt: skip
    history.bugs.clear()
    assert cli.main(["sweep", "history.yaml", "--builds", "0.0.0,0.1.0"]) == 0
    history.broken.add(1)
    assert cli.main(["sweep", "history.yaml", "--builds", "0.0.0,0.1.0", "--fresh"]) == 3


# --- probe


def probe(*words):
    return cli.main(["probe", "history.yaml", *words])


def test_probe_has_the_exit_codes_of_git_bisect_run(history, capsys):
    signature = ["--signature", f"RuntimeError: {CHASED}"]
    assert probe("--build", "0.7.0", *signature) == 1
    assert probe("--build", "0.1.0", *signature) == 0
    history.bugs.append(Bug("another", 2, 2))
    assert probe("--build", "0.2.0", *signature) == 125
    assert "MASKED release:0.2.0: covered by RuntimeError: another" in capsys.readouterr().out


def test_probe_knows_the_place_from_a_run_on_disk(history):
    """Only with it can another failure be seen to strike later, and the build be good."""
    history.bugs[0] = Bug(CHASED, 3, 7, phase="capture#1")
    history.bugs.append(Bug("later", 0, 1, phase="capture#2"))
    named = f"RuntimeError: {CHASED}"
    assert probe("--build", "0.1.0", "--signature", named) == 125
    assert probe("--build", "0.7.0", "--signature", named) == 1
    assert probe("--build", "0.1.0", "--signature", named) == 0
    (bad,) = [run for run in Memory(Path("reports")).runs() if run.build == "release:0.7.0"]
    assert probe("--build", "0.1.0", "--signature", f"@reports/{bad.id}/run.json") == 0


def test_a_build_that_cannot_be_made_is_skipped_and_trouble_of_the_node_aborts(history, monkeypatch):
    def failing(error):
        def provide(build, node, **rest):
            raise error

        monkeypatch.setattr(environment, "provide", provide)

    failing(BuildError("no such wheel"))
    assert probe("--build", "0.1.0", "--signature", "abcd") == 125
    failing(NodeError("the disk is full"))
    assert probe("--build", "0.1.0", "--signature", "abcd") == 128


@pytest.mark.parametrize(
    "words",
    [
        ["history.yaml", "--build", "0.1.0", "--signature", "abcd", "--no-such-flag"],
        ["history.yaml", "--signature", "abcd"],
        ["history.yaml", "--build", "nonsense:x", "--signature", "abcd"],
        ["nowhere.yaml", "--build", "0.1.0", "--signature", "abcd"],
        ["history.yaml", "--build", "0.1.0", "--signature", "@nowhere"],
    ],
)
def test_probe_aborts_where_it_judged_nothing(history, words):
    try:
        code = cli.main(["probe", *words])
    except SystemExit as error:
        code = error.code
    assert code == 128


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug of ours"), MemoryError(), OSError(28, "No space left")])
def test_probe_aborts_at_an_exception_of_our_own(history, monkeypatch, error):
    def execute(*args, **words):
        raise error

    monkeypatch.setattr("harness.run.execute", execute)
    assert probe("--build", "0.1.0", "--signature", "abcd") == 128


def test_probe_aborts_where_harness_itself_cannot_be_imported(tmp_path):
    broken = tmp_path / "harness"
    shutil.copytree(Path(cli.__file__).parent, broken, ignore=shutil.ignore_patterns("__pycache__"))
    (broken / "cli.py").write_text("import a_module_that_is_not_there\n")
    argv = [sys.executable, "-m", "harness", "probe", "x", "--build", "0.1.0", "--signature", "abcd"]
    assert subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False).returncode == 128
    argv[3] = "list"
    assert subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_probe_help_is_no_judgement():
    with pytest.raises(SystemExit) as error:
        cli.main(["probe", "--help"])
    assert error.value.code == 0


# --- from a nightly


def nightly(folder, *made):
    file = folder / "red.xml"
    report.write_junit([runs.write(each, folder / "nightly") for each in made], file)
    return file


def red(**changes):
    found = bisecting.run("capture#1", bisecting.signature(CHASED, function=CHASED[:5]))
    return bisecting.replace(
        found, id="red", scenario="history", variant=None, build="release:0.7.0", version="0.7.0",
        reproduce="harness run history.yaml --build release:0.7.0 --set serve.seed=1", **changes,
    )  # fmt: skip


def green(**changes):
    return runs.passed(id="green", scenario="history", build="release:0.1.0", version="0.1.0", **changes)


def test_a_red_nightly_is_bisected_from_its_report(history, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        releases, "available", lambda _: tuple(releases.Release(version=b.version) for b in history.builds)
    )
    file = nightly(tmp_path, red())
    last = tmp_path / "green.xml"
    (tmp_path / "before").mkdir()
    nightly(tmp_path / "before", green()).rename(last)
    assert cli.main(["bisect", "--from-junit", str(file), "--last-green", str(last)]) == 0
    said = capsys.readouterr().out
    assert "harness bisect history.yaml --set serve.seed=1 --good release:0.1.0 --bad release:0.7.0 --signature" in said
    assert "FOUND release:0.3.0 is the first build with" in said


def test_two_failures_of_one_nightly_are_two_bisections_that_share_their_probes(history, tmp_path, monkeypatch):
    monkeypatch.setattr(
        releases, "available", lambda _: tuple(releases.Release(version=b.version) for b in history.builds)
    )
    both = nightly(tmp_path, red(attempt="1/2"), bisecting.replace(red(attempt="2/2"), id="second"))
    text = both.read_text()
    found = from_junit.read(both)
    assert [one.signature for one in found.red] == [red().signature.id]
    assert cli.main(["bisect", "--from-junit", str(both), "--good", "0.1.0"]) == 0
    count = len(history.executed)
    other = text.replace(f'value="{red().signature.id}"', f'value="{red().signature.id}, abcdabcdabcd"')
    both.write_text(other)
    assert [one.signature for one in from_junit.read(both).red] == [red().signature.id, "abcdabcdabcd"]
    assert cli.main(["bisect", "--from-junit", str(both), "--good", "0.1.0"]) == 1
    assert len(history.executed) == count


def test_what_a_report_cannot_say_must_be_said(history, tmp_path, capsys):
    file = nightly(tmp_path, red())
    assert cli.main(["bisect", "--from-junit", str(file)]) == 2
    assert "no build is known to be good" in capsys.readouterr().err
    file = nightly(tmp_path, red(node_class="h200"))
    assert cli.main(["bisect", "--from-junit", str(file), "--good", "0.1.0"]) == 3
    assert "was red on h200" in capsys.readouterr().err
    file = nightly(tmp_path, green())
    assert cli.main(["bisect", "--from-junit", str(file)]) == 0
    assert "is red" in capsys.readouterr().out
    file = nightly(tmp_path, runs.unmet(id="unmet"))
    assert cli.main(["bisect", "--from-junit", str(file), "--good", "0.1.0"]) == 0
    assert "no verdict on the product" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "<a", "<testsuites/>", '<testsuites><testsuite name="x"/></testsuites>'])
def test_a_report_that_is_none_of_ours(tmp_path, text):
    file = tmp_path / "red.xml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"red\.xml"):
        from_junit.read(file)


# --- runs on disk


def test_a_stored_run_is_judged_by_the_present_rules(tmp_path):
    log = b"".join(
        [
            *(b"INFO line\n" for _ in range(5)),
            b"Traceback (most recent call last):\n",
            b'  File "vllm/a.py", line 1, in f\n    x\n',
            b"RuntimeError: as it is read today\n",
        ]
    )
    stored = bisecting.run("capture#1", bisecting.signature("as it was read once"), evidence=((6, 8),), exit="exit 1")
    folder = runs.write(stored, tmp_path, log=log)
    again = rejudged(record.load(folder), folder)
    assert again.signature.title.startswith("RuntimeError: as it is read today")
    (folder / "server.log").unlink()
    assert rejudged(record.load(folder), folder) is None


def test_what_was_read_by_other_rules_and_cannot_be_read_again_is_not_used(tmp_path):
    hang = bisecting.replace(bisecting.signature("no output", kind="hang"), grouping=0)
    folder = runs.write(bisecting.run("capture#1", hang), tmp_path)
    assert rejudged(record.load(folder), folder) is None
    failed = runs.failed_in_check()
    again = rejudged(failed, folder)
    assert again.signature.title.startswith("check perplexity: perplexity <n> is above its limit")


def test_a_reproduction_that_was_stored_as_a_pass_is_a_failure_here(tmp_path):
    stored = bisecting.run("capture#1", bisecting.signature("x"), verdict="PASS", reason="reproduced: x")
    folder = runs.write(stored, tmp_path)
    assert rejudged(stored, folder).verdict == "FAIL"


def test_unreadable_records_are_named(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "run.json").write_text("{")
    memory = Memory(tmp_path)
    assert memory.runs() == []
    assert "x" in memory.unreadable


# --- several at once


def _job(tell):
    tell(Event(kind="notice", text="at work"))
    return os.getpid()


def _endless(tell):
    tell(Event(kind="notice", text="begun"))
    time.sleep(600)


def _broken(tell):
    raise HarnessError("cannot", fix="do")


def _dies(tell):
    os.kill(os.getpid(), signal.SIGKILL)


def test_probes_in_processes_of_their_own():
    events = []
    with pools.Processes(events.append) as made:
        made.submit(3, _job)
        made.submit(5, _job)
        done = dict([made.wait(), made.wait()])
    assert set(done) == {3, 5}
    assert os.getpid() not in done.values()
    assert sorted(event.text for event in events) == ["[3] at work", "[5] at work"]


def test_a_probe_that_cannot_matter_is_ended():
    events = []
    with pools.Processes(events.append) as made:
        made.submit(1, _endless)
        made.submit(2, _job)
        assert made.wait()[0] == 2
        made.cancel(1)
        assert made.running == ()


@pytest.mark.parametrize(("job", "said"), [(_broken, "cannot"), (_dies, "no result")])
def test_an_error_of_a_probe_is_an_error_here(job, said):
    with pools.Processes(lambda _: None) as made:
        made.submit(1, job)
        with pytest.raises(HarnessError, match=said):
            made.wait()


def test_a_child_that_is_told_to_stop_is_an_interruption():
    with pools.Processes(lambda _: None) as made:
        made.submit(1, _endless)
        child = made._children[1][0]
        while not child.is_alive():
            time.sleep(0.01)
        made._children[1][1].poll(30)
        os.kill(child.pid, signal.SIGTERM)
        with pytest.raises(Interrupted):
            made.wait()


# --- patches on a copy of a build


PATCH = """\
--- a/vllm/core.py
+++ b/vllm/core.py
@@ -10,5 +10,5 @@
     def __init__(self, words, layer_names):
         self.words = words
-        self.states, self.copied = 4, 2
+        self.states, self.copied = 4, 4
{blank}
     def start(self):
--- a/tests/test_core.py
+++ b/tests/test_core.py
@@ -1 +1 @@
-x
+y
""".replace("{blank}", " ")


def test_a_patch_changes_a_copy_and_never_the_build(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    build = standin_build.make_tree(tmp_path)
    source = tmp_path / "tree" / "vllm" / "core.py"
    before = source.read_text()
    made = patches.Patch(name="x.diff", text=PATCH)
    provided = environment.provide(build, node.read())
    with known.edited(provided, [], folder=tmp_path, patches=[made]) as copy:
        first = copy.env["PYTHONPATH"].split(os.pathsep)[0]
        assert "self.copied = 4, 4" in Path(first, "vllm", "core.py").read_text()
        assert not list(Path(first, "vllm", "__pycache__").glob("core.*"))
        assert not Path(first, "tests").exists()
    assert source.read_text() == before
    assert "self.copied = 4, 4" in (tmp_path / "edits.diff").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PATCH.replace("= 4, 2", "= 5, 2"), "does not fit this build"),
        (PATCH.replace("vllm/", "other/"), "changes no package"),
    ],
)
def test_a_patch_that_does_not_fit(tmp_path, monkeypatch, text, said):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    provided = environment.provide(standin_build.make_tree(tmp_path), node.read())
    made = patches.Patch(name="x.diff", text=text)
    with pytest.raises(ScenarioError, match=said), known.edited(provided, [], folder=tmp_path, patches=[made]):
        pass


def test_patches_as_they_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.diff").write_text(PATCH)
    assert patches.read("x.diff").builds == ""
    assert patches.read("x.diff@>=0.29.0,<0.30.0").builds == ">=0.29.0,<0.30.0"
    assert patches.read("x.diff@0.29.0..0.30.0").builds == "0.29.0..0.30.0"
    assert patches.read("x.diff").files == ("vllm/core.py", "tests/test_core.py")


KEPT = ("for name in self.layer_names", "for name in ()")
EQUAL = ("self.states, self.copied = 4, 2", "self.states, self.copied = 4, 4")


def test_a_server_that_dies_twice_is_bisected_past_the_first(tmp_path, monkeypatch):
    """Four trees with real sources. The chased failure came with tree 2; in 1 and 2 another one covers it.

    The bad end has no more of that, so the patch does not fit there: what it shows in 1 is believed because 2 died
    under it of the chased failure.
    """
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    words = []
    for at, repairs in enumerate([(KEPT, EQUAL), (KEPT,), (), (EQUAL,)]):
        words.append(str(standin_build.make_tree(tmp_path / str(at), version=f"0.{at}.0")))
        source = tmp_path / str(at) / "tree" / "vllm" / "core.py"
        shutil.rmtree(source.parent / "__pycache__")  # of the same size and second, it would pass for valid
        for old, new in repairs:
            source.write_text(source.read_text().replace(old, new))
    Path("builds").write_text("\n".join(words))
    standin_build.make_scenario(tmp_path, [], "serve: {use-replayssm: true}", "budgets: {startup: 30s, silence: 20s}")
    Path("x.diff").write_text(PATCH)
    assert cli.main(["bisect", "stand-in.yaml", "--builds", "builds", "--patch", "x.diff"]) == 0
    (file,) = Path("reports").glob("bisect-*/bisection.json")
    told = outcome.load(file)
    assert told.culprits == (words[2],)
    assert told.signature.exception == "AttributeError"
    marks = {(probe.build, probe.role): (probe.mark, probe.under) for probe in told.probes}
    assert marks[words[3], "proof"][0] == "SKIP"
    assert marks[words[1], "probe"] == ("GOOD", "under patch x.diff")
    (rung,) = told.ladder
    assert rung.cover.startswith("AssertionError")
    assert rung.builds == (words[2],)


def test_a_folder_that_cannot_be_written_is_the_nodes_trouble_and_says_so(history, capsys):
    Path("file").touch()
    assert cli.main(["bisect", "history.yaml", "--builds", "builds", "--out", "file/reports"]) == 3
    assert "cannot be written" in capsys.readouterr().err


def test_a_folder_that_goes_away_meanwhile_is_told_in_one_sentence(history, capsys, monkeypatch):
    def execute(*args, **words):
        shutil.rmtree("reports")
        return history.execute(*args, **words)

    monkeypatch.setattr("harness.run.execute", execute)
    assert cli.main(["bisect", "history.yaml", "--builds", "builds"]) == 3
    said = capsys.readouterr().err
    assert "cannot be written" in said
    assert "Traceback" not in said


def trees(folder, count, *, culprit):
    """Trees of a package that is healthy up to the culprit; their words."""
    words = []
    for at in range(count):
        words.append(str(standin_build.make_tree(folder / str(at), version=f"0.{at}.0")))
        source = folder / str(at) / "tree" / "vllm" / "core.py"
        shutil.rmtree(source.parent / "__pycache__")
        if at < culprit:
            source.write_text(source.read_text().replace(*EQUAL))
    (folder / "builds").write_text("\n".join(words))
    standin_build.make_scenario(folder, [], "budgets: {startup: 30s, silence: 20s}")
    return words


def test_several_probes_at_once_find_the_same_in_processes_of_their_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    words = trees(tmp_path, 12, culprit=8)
    assert cli.main(["bisect", "stand-in.yaml", "--builds", "builds", "--jobs", "3"]) == 0
    (file,) = Path("reports").glob("bisect-*/bisection.json")
    told = outcome.load(file)
    assert told.culprits == (words[8],)
    assert "2 rounds of 3 probes" in told.predicted
    said = capsys.readouterr().out
    assert "[8] " in said
    found = [record.load(path) for path in Path("reports").glob("*/run.json")]
    assert all(run.probe for run in found)
    assert {run.state for run in found} <= {"finished", "interrupted"}


def test_environments_of_what_may_come_next_are_made_while_a_probe_runs(history, monkeypatch):
    provide, ahead = environment.provide, []

    def noting(build, node, **words):
        if threading.current_thread() is not threading.main_thread():
            ahead.append(str(build))
        return provide(build, node, **words)

    monkeypatch.setattr(environment, "provide", noting)
    assert cli.main(["bisect", "history.yaml", "--builds", "builds"]) == 0
    assert ahead[:2] == ["release:0.5.0", "release:0.1.0"]


def test_no_environment_is_made_beside_a_run_whose_seconds_are_judged(history, monkeypatch):
    threads = []
    monkeypatch.setattr(threading.Thread, "start", threads.append)
    words = ["--set", "checks={startup_time: {max: 30s}}", "--builds", "builds"]
    assert cli.main(["bisect", "history.yaml", *words]) == 0
    assert threads == []


def test_probe_whose_reader_went_away_judged_nothing(history, monkeypatch):
    def gone(*args, **words):
        raise BrokenPipeError

    monkeypatch.setattr("harness.run.execute", gone)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert probe("--build", "0.1.0", "--signature", "abcd") == 128


@pytest.mark.parametrize("grace", ["nan", "-1", "inf", "soon"])
def test_a_grace_that_is_none(history, grace):
    with pytest.raises(SystemExit) as error:
        cli.main(["bisect", "history.yaml", "--builds", "builds", "--grace", grace])
    assert error.value.code == 2


# --- what a stranger tried


def folders():
    return sorted(path.parent.name for path in Path("reports").glob("bisect-*/bisection.json"))


def test_two_questions_never_share_a_folder(history):
    """Same ends; another list between them, another range of one patch."""
    Path("short").write_text("release:0.0.0\nrelease:0.3.0\nrelease:0.7.0\n")
    Path("x.diff").write_text(PATCH)
    lines = [["builds"], ["short"], ["builds", "--patch", "x.diff"], ["builds", "--patch", "x.diff@>=0.5"]]
    for line in lines:
        assert cli.main(["bisect", "history.yaml", "--builds", *line]) == 0
    assert len(folders()) == len(lines)
    cli.main(["bisect", "history.yaml", "--builds", "builds"])
    assert len(folders()) == len(lines)


def test_a_second_process_with_the_same_question_is_turned_away_with_words(history, capsys):
    assert cli.main(["bisect", "history.yaml", "--builds", "builds"]) == 0
    (name,) = folders()
    with beginning.alone(Path("reports", name)):
        assert cli.main(["bisect", "history.yaml", "--builds", "builds"]) == 3
    said = capsys.readouterr().err
    assert f"reports/{name} is being written by pid {os.getpid()}" in said
    assert "interrupted" not in said


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("x.diff@nonsense", "'nonsense' is no range of versions"),
        ("x.diff@", "the range names no builds"),
        ("x.diff@..", "the range names no builds"),
        ("x.diff@0.1.0..", "the range names no builds"),
        ("x.diff@0.1.0..0.9.0", "0.9.0 is not in release:0.0.0 … release:0.7.0"),
    ],
)
def test_a_patch_whose_range_means_nothing(history, capsys, patch, said):
    Path("x.diff").write_text(PATCH)
    assert cli.main(["bisect", "history.yaml", "--builds", "builds", "--patch", patch]) == 2
    assert said in capsys.readouterr().err
    assert not history.executed


def test_a_probe_has_no_first_and_last_build(history, capsys):
    Path("x.diff").write_text(PATCH)
    assert probe("--build", "0.1.0", "--signature", "abcd", "--patch", "x.diff@0.0.0..0.2.0") == 128
    assert "one build has no first and last" in capsys.readouterr().err


def test_what_was_named_and_did_nothing_is_told(history, capsys):
    history.bugs[0] = Bug(CHASED, 3, 7, phase="capture#2")
    history.bugs.append(Bug("another", 2, 4))
    Path("x.diff").write_text(PATCH)
    named = ["--patch", "x.diff@>=0.7", "--also", "nobody has it"]
    assert cli.main(["bisect", "history.yaml", "--builds", "builds", *named]) == 1
    said = capsys.readouterr().out
    assert "patch x.diff was for none of the builds in which another bug covers the chased one" in said
    assert "no run met nobody has it, named with --also" in said


def test_a_patch_that_fits_nowhere_is_told_with_its_reason(history, capsys, monkeypatch):
    answer = history.answer

    def refusing(at, under):
        if under:
            return bisecting.run(
                verdict="ERROR", blame="scenario", reason="patch x.diff does not fit this build: line 3"
            )
        return answer(at, under)

    monkeypatch.setattr(history, "answer", refusing)
    history.bugs[0] = Bug(CHASED, 3, 7, phase="capture#2")
    history.bugs.append(Bug("another", 2, 4))
    Path("x.diff").write_text(PATCH)
    assert cli.main(["bisect", "history.yaml", "--builds", "builds", "--patch", "x.diff"]) == 1
    said = capsys.readouterr().out
    assert "patch x.diff fitted none of the builds that it was tried on: patch x.diff does not fit this build" in said


@pytest.mark.parametrize("word", ["", " ", "f81", "F8198C0806A6", "0123456789AB"])
def test_a_signature_that_can_name_nothing(history, capsys, word):
    assert cli.main(["bisect", "history.yaml", "--builds", "builds", "--signature", word]) == 2
    assert cli.main(["bisect", "history.yaml", "--builds", "builds", "--also", word]) == 2
    assert probe("--build", "0.1.0", "--signature", word) == 128
    assert not history.executed
    capsys.readouterr()


def test_one_failure_that_cannot_be_bisected_here_does_not_stop_the_others(history, tmp_path, capsys, monkeypatch):
    known = [releases.Release(version=build.version) for build in history.builds]
    monkeypatch.setattr(releases, "available", lambda _: tuple(known))
    elsewhere = bisecting.replace(red(), id="elsewhere", variant="big", node_class="h200")
    file = nightly(tmp_path, elsewhere, red())
    assert cli.main(["bisect", "--from-junit", str(file), "--good", "0.1.0"]) == 3
    caught = capsys.readouterr()
    assert "history[big]" in caught.err
    assert "was red on h200" in caught.err
    assert "FOUND release:0.3.0" in caught.out


def test_a_report_with_counts_that_are_none(tmp_path):
    file = nightly(tmp_path, red())
    file.write_text(file.read_text().replace('failures="1"', 'failures="abc"'))
    with pytest.raises(UsageError, match="no readable JUnit file"):
        from_junit.read(file)


def test_a_variant_is_the_reports_to_say(history, tmp_path, capsys):
    file = nightly(tmp_path, red())
    assert cli.main(["bisect", "--from-junit", str(file), "--variant", "other", "--good", "0.1.0"]) == 2
    assert "--from-junit says which scenario, variant, build and signature" in capsys.readouterr().err


def test_options_are_written_out(history, capsys):
    with pytest.raises(SystemExit) as error:
        cli.main(["bisect", "history.yaml", "--buil", "builds"])
    assert error.value.code == 2


def test_nothing_of_a_server_can_steer_the_terminal(history, capsys):
    history.bugs[0] = Bug("turned\u202eround\x1b[31m", 3, 7)
    assert cli.main(["bisect", "history.yaml", "--builds", "builds"]) == 0
    said = capsys.readouterr().out
    assert "\u202e" not in said
    assert "\x1b" not in said
    assert "\\u202e" in said


def test_a_record_that_cannot_be_read_is_told_of(history, capsys):
    Path("reports", "broken").mkdir(parents=True)
    Path("reports", "broken", "run.json").write_text("{")
    assert cli.main(["bisect", "history.yaml", "--builds", "builds"]) == 0
    assert "records that cannot be read, and so answered nothing: broken" in capsys.readouterr().out
