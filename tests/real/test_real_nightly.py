"""Two nights of real releases, on a stand-in for Buildkite and by `harness nightly`: 0.30.0 dies in a request."""

import json
import sys
from pathlib import Path

import agency
import pytest
import yaml

from harness import cli

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "scenarios"
pytestmark = [pytest.mark.real, pytest.mark.slow]
GREEN, RED, CULPRIT = "0.28.0", "0.30.0", "release:0.30.0"
SIGNATURE = "TypeError: Cannot inspect kernel parameters for function"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """The shipped scenario with speculation and one check, in a folder of its own."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    body = yaml.safe_load((SHIPPED / "tiny_lm.yaml").read_text())
    body |= {"model": str(SHIPPED / "models" / "tiny_lm"), "checks": {"warmup": {}}, "variants": {}, "name": "ngram"}
    speculation = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
    body["serve"] |= {"enforce-eager": True, "speculative-config": speculation}
    (folder / "ngram.yaml").write_text(json.dumps(body))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return folder


def test_a_pipeline_from_a_red_night_to_the_culprit(checkout, tmp_path, capsys):
    def night(name, build):
        program = f"{sys.executable} -m harness"
        words = ["--setup", "true", "--program", program, "--nights", str(tmp_path / "nights.json"), "--build", build]
        assert cli.main(["pipeline", "ngram.yaml", *words]) == 0
        made = agency.Build(tmp_path / name, checkout)
        made.run(capsys.readouterr().out)
        return made

    green = night("monday", GREEN)
    assert green.exits == {key: [0] for key in green.steps}, green.output
    red = night("tuesday", RED)
    (run,), (collected,), (search,) = red.keys("run"), red.keys("collect"), red.keys("bisect")
    assert red.exits == {run: [1], collected: [0], search: [0]}, red.output
    (found,) = [note for name, note in red.annotations.items() if name.startswith("bisect-")]
    print(found["body"].splitlines()[0])
    assert found["body"].startswith(f"### {CULPRIT} is the first build with {SIGNATURE}")


def test_a_nightly_from_a_red_night_to_the_culprit(checkout):
    tell = "import sys; open('told', 'a').write(sys.stdin.read() + '\\n')"

    def night(newest):
        watch = {"releases": f">=0.27.1,<={newest}", "accelerator": "cpu"}
        notify = [sys.executable, "-c", tell]
        body = {"schema": 1, "name": "cpu", "scenarios": ["./ngram.yaml"], "builds": [watch], "notify": notify}
        Path("night.yaml").write_text(json.dumps(body))
        code = cli.main(["nightly", "night.yaml"])
        return code, json.loads(Path("reports/nightly-cpu/nightly.json").read_text())

    assert night(GREEN)[0] == 0
    code, story = night(RED)
    assert code == 1
    assert [row["news"] for row in story["rows"]] == ["new"]
    assert story["searches"][0]["culprits"] == [f"{CULPRIT}+cpu"]
    (message,) = map(json.loads, Path("told").read_text().splitlines())
    print("\n".join(message["news"]), story["spent"])
    runs = len(list(Path("reports").glob("*/run.json")))
    assert night(RED)[0] == 1
    assert len(list(Path("reports").glob("*/run.json"))) == runs
    assert len(Path("told").read_text().splitlines()) == 1
