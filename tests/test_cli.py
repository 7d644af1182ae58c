"""The command line as people and CI agents use it: words in, exit code and files out."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from standin_build import HEALTHY, make_build, make_scenario

from harness import report
from harness.cli import main
from harness.record import load

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "tests" / "logs" / "vllm"
FAILS: list[list[object]] = [["err", "ValueError: no"], ["exit", 1]]


def spawn(*words, cwd, **env):
    return subprocess.Popen(
        [sys.executable, "-m", "harness", *words], cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("steps", "code"), [(HEALTHY, 0), (FAILS, 1), ([["die", "SIGKILL"]], 3)], ids=["pass", "fail", "error"]
)
def test_run_exits_with_the_verdict(here, capsys, steps, code):
    file = make_scenario(here, steps)
    assert main(["run", str(file), "--build", str(make_build(here))]) == code
    out = capsys.readouterr().out
    assert {0: "PASS", 1: "FAIL", 3: "ERROR"}[code] + " stand-in: " in out
    (folder,) = (here / "reports").iterdir()
    assert f"report       {Path('reports') / folder.name / 'summary.md'}" in out
    assert f"again        harness run stand-in.yaml --build venv:{here / 'venv'}" in out


def test_the_worst_of_several_counts(here):
    good, bad = make_scenario(here, HEALTHY, name="good"), make_scenario(here, FAILS, name="bad")
    build = str(make_build(here))
    assert main(["run", str(good), str(bad), "--build", build]) == 1
    assert main(["run", str(good), str(bad), "kimi_k3_dspark", "--build", build]) == 3


def test_repeat_says_how_many_failed(here, capsys):
    file = make_scenario(here, FAILS)
    assert main(["run", str(file), "--build", str(make_build(here)), "--repeat", "2"]) == 1
    assert "stand-in: 2/2 did not pass" in capsys.readouterr().out
    assert sorted(load(folder).attempt for folder in (here / "reports").iterdir()) == ["1/2", "2/2"]


def test_a_call_in_which_nothing_ran_is_no_success(here, capsys):
    assert main(["run", "kimi_k3_dspark", "--skip-unmet", "--out", "out"]) == 3
    assert "SKIP kimi-k3-dspark: needs 8 GPUs of 130 GiB, this node has none" in capsys.readouterr().out


def test_the_flagship_without_a_gpu(here, capsys):
    assert main(["run", "kimi_k3_dspark.yaml"]) == 3
    out = capsys.readouterr().out
    assert "needs 8 GPUs of 130 GiB, this node has none" in out
    smaller = "`--variant mini` on one GPU, or `--variant mini-tp2` on 2 GPUs, or `tiny_chat`, or `tiny_lm`"
    assert f"try {smaller}" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "no_such_scenario"], "no_such_scenario"),
        (["run", "tiny_lm", "--build", "relase:0.30.0"], "release"),
        (["run", "tiny_lm", "--set", "serve.port=1"], "port"),
        (["run", "tiny_lm[eager]", "--variant", "fp32"], "name it once"),
        (["triage", "no.log"], "no such log file"),
        (["report", "nowhere"], "not a readable run record"),
        (["env", "add"], "nothing to add"),
        (["run", "tiny_lm", "--peel", "--repeat", "2"], "--peel and --repeat do not go together"),
    ],
)
def test_bad_words_are_usage_errors(here, capsys, words, said):
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert not (here / "reports").exists()


def test_reports_that_cannot_be_written_are_the_nodes_fault(here, capsys):
    (here / "file").touch()
    assert main(["run", "kimi_k3_dspark", "--out", "file"]) == 3
    said = capsys.readouterr().err
    assert said.startswith("harness: the report file/")
    assert "cannot be written" in said
    assert "choose another --out" in said


def test_unknown_options_are_usage_errors(here):
    for words in (["run"], ["nonsense"], ["run", "tiny_lm", "--repeat", "0"], ["run", "tiny_lm", "--known", "x"]):
        with pytest.raises(SystemExit, match="2"):
            main(words)


def test_current_without_a_server_on_path_names_a_release(here, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert main(["run", str(make_scenario(here, HEALTHY))]) == 3
    assert "--build release:" in capsys.readouterr().out


def test_triage(capsys):
    (found,) = LOGS.glob("*tp2*noprefixcache*")
    (healthy,) = LOGS.glob("0.32.0-cpu-warm-healthy*")
    assert main(["triage", str(found), "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert set(one) == {"signature", "wrappers", "evidence"}
    assert one["signature"]["frames"][0]["function"] == "_get_recoverssm_context"
    assert one["signature"]["ranks"] == "2/2"
    assert main(["triage", str(healthy)]) == 1
    capsys.readouterr()
    assert main(["triage", str(healthy), str(found), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["file"], row["signature"] is None) for row in rows] == [(str(healthy), True), (str(found), False)]


def test_triage_reads_standard_input(tmp_path):
    (log,) = LOGS.glob("0.32.0-cpu-unknown-flag*")
    with log.open("rb") as file:
        words = [sys.executable, "-m", "harness", "triage", "-", "--json"]
        done = subprocess.run(words, stdin=file, stdout=subprocess.PIPE, cwd=ROOT, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["signature"]["kind"] == "cli_usage"


def test_reports_are_rendered_again_and_merged(here, capsys):
    assert main(["run", str(make_scenario(here, FAILS)), "--build", str(make_build(here))]) == 1
    (folder,) = (here / "reports").iterdir()
    before = (folder / "junit.xml").read_bytes()
    (folder / "junit.xml").unlink()
    assert main(["report", str(folder), "--junit", "all.xml", "--summary", "all.md"]) == 0
    assert (folder / "junit.xml").read_bytes() == before
    assert "stand-in" in (here / "all.xml").read_text()
    assert "stand-in" in (here / "all.md").read_text()
    assert main(["report", str(folder / "run.json")]) == 0
    assert main(["report", str(folder / "junit.xml")]) == 2
    assert "junit.xml is no folder of a run" in capsys.readouterr().err


def test_a_page_that_cannot_be_made_takes_no_verdict_back(here, monkeypatch):
    def broken(*_):
        raise KeyError("x")

    monkeypatch.setitem(report.REPORTS, "report.html", broken)
    assert main(["run", str(make_scenario(here, HEALTHY)), "--build", str(make_build(here))]) == 3
    (folder,) = (here / "reports").iterdir()
    assert load(folder).verdict == "PASS"
    assert 'failures="0"' in (folder / "junit.xml").read_text()


def test_validate_list_and_schema(capsys):
    assert main(["validate", "tiny_lm", "kimi_k3_dspark", "--strict"]) == 0
    assert "tiny_lm.yaml: ok, 4 of 4 variants" in capsys.readouterr().out
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["serve"]
    assert main(["list"]) == 0
    assert "kimi-k3-dspark[mini]" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interruption_writes_first_and_tears_down_after(here, number):
    """A CI agent sends SIGTERM and kills ten seconds later: record and JUnit within a second, nothing left after."""
    stubborn = [["ignore", "SIGTERM", "SIGINT"], ["fork", [["wait"]]], ["say", "up"], ["wait"]]
    file = make_scenario(here, stubborn)
    process = spawn("run", str(file), "--build", str(make_build(here)), "--grace", "4", cwd=here)
    log = wait_for(lambda: next((p for p in here.glob("reports/*/server.log") if b"up" in p.read_bytes()), None))
    folder = log.parent
    tree = psutil.Process(process.pid).children(recursive=True)
    begin = time.monotonic()
    process.send_signal(number)
    wait_for(lambda: (folder / "junit.xml").exists() and load(folder).state == "interrupted")
    assert time.monotonic() - begin < 1.0
    assert "interrupted" in (folder / "junit.xml").read_text()
    assert any(p.is_running() for p in tree), "the record came before the teardown"
    assert process.wait(20) == 130
    assert time.monotonic() - begin < 8.0
    assert [p for p in tree if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
    record = load(folder)
    assert (record.verdict, record.reason) == ("ERROR", f"interrupted: {number.name}")
    assert record.teardown.survivors == ()


def wait_for(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)
    return found


def test_help_and_version_need_nothing_heavy():
    code = "import sys\nfrom harness import cli\ntry:\n cli.main(['--help'])\nexcept SystemExit: pass\n"
    code += "print([m for m in ('pydantic', 'requests', 'rich', 'yaml', 'pytest') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "usage: harness" in done.stdout


@pytest.mark.parametrize("word", ["nan", "-1", "inf", "-inf", "soon"])
@pytest.mark.parametrize("command", ["run tiny_lm --grace", "env prune --older-than"])
def test_amounts_that_are_none(capsys, command, word):
    with pytest.raises(SystemExit) as caught:
        main([*command.split()[:-1], f"{command.split()[-1]}={word}"])
    assert caught.value.code == 2
    assert f"{word!r} is not a number of at least 0" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["-1", "1.5", "²"])
def test_counts_that_are_none(capsys, word):
    with pytest.raises(SystemExit):
        main(["env", "prune", f"--keep={word}"])
    assert "is not a whole number of at least 0" in capsys.readouterr().err
