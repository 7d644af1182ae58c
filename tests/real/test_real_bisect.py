"""Bisections of real servers: behaviour that changed between releases, and bugs planted into a history of commits."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from harness import cli, environment, node
from harness.bisect import outcome

SHIPPED = Path(__file__).parents[2] / "scenarios"
pytestmark = [pytest.mark.real, pytest.mark.slow]
BARE = "checks={replace: {}}"


def bisected(out, *words):
    """The exit code and the record of one command line."""
    code = cli.main(["bisect", *words, "--out", str(out)])
    (file,) = out.glob("bisect-*/bisection.json")
    return code, outcome.load(file)


GRAINED = "serve.enable-mamba-fine-grained-prefix-cache=true"
WEIGHTS = "checks={replace: {startup_time: {max-phase: {weights: 600ms}}}}"


@pytest.mark.parametrize(
    ("ends", "sets", "culprit", "kind"),
    [
        (["--good", "0.27.1", "--bad", "0.29.0"], [BARE, "serve.calculate-kv-scales=true"], "0.28.0", "cli_usage"),
        (["--good", "0.30.0", "--bad", "0.32.0"], [BARE, GRAINED], "0.31.0", "cli_usage"),
        (["--fix", "--bad", "0.28.0", "--good", "0.30.0"], [BARE, GRAINED], "0.30.0", "cli_usage"),
        (["--good", "0.29.0", "--bad", "0.32.0"], [WEIGHTS], "0.32.0", "check_failed"),
    ],
    ids=["a flag goes", "a flag goes again", "a flag comes", "weights take longer"],
)
def test_what_changed_between_releases(tmp_path, ends, sets, culprit, kind):
    words = [*ends, *(word for each in sets for word in ("--set", each))]
    code, told = bisected(tmp_path, str(SHIPPED / "tiny_lm.yaml"), "--variant", "eager", *words)
    assert (code, told.culprits) == (0, (f"release:{culprit}",))
    assert told.signature.kind == kind


def test_a_crash_in_the_first_request_came_with_one_release_and_went_with_the_next(tmp_path):
    ngram = [str(SHIPPED / "tiny_lm.yaml"), "--variant", "ngram", "--set", "checks={replace: {warmup: {}}}"]
    code, came = bisected(tmp_path / "came", *ngram, "--good", "0.28.0", "--bad", "0.30.0")
    assert (code, came.culprits) == (0, ("release:0.30.0",))
    assert came.stop == "warmup"
    code, went = bisected(tmp_path / "went", *ngram, "--fix", "--bad", "0.30.0", "--good", "0.32.0")
    assert (code, went.culprits) == (0, ("release:0.31.0",))


# --- a history of commits


COMMITS = 320
CRASH, MASK, BROKEN, FLAKY = 211, range(120, 260), range(150, 156), 37
ENGINE, CONFIG, PACKAGE = "vllm/v1/engine/core.py", "vllm/engine/arg_utils.py", "vllm/__init__.py"


def git(folder, *words):
    argv = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "gc.auto=0", *words]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def in_function(text, name, statement):
    """The source with a statement put first into the body of the method `name`."""
    at = text.index(f"    def {name}(")
    end = text.index(":\n", text.index(")", at)) + 2
    return f"{text[:end]}        {statement}\n{text[end:]}"


@pytest.fixture(scope="session")
def history(tmp_path_factory, vllm_build):
    """320 commits of a release's own sources.

    211 … a crash in the engine · 120 … 259 a crash in front of it · 150 … 155 no package at all · 37 … a crash in seven
    starts of ten, where $FLAKY is set
    """
    folder = tmp_path_factory.mktemp("history")
    installed = environment.provide(vllm_build, node.read())
    site = next(installed.python.parent.parent.glob("lib/python3*/site-packages"))
    for source in (site / "vllm").rglob("*.py"):
        target = folder / source.relative_to(site)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    git(folder, "init", "-q", "-b", "main")
    engine, config, package = (Path(folder, name).read_text() for name in (ENGINE, CONFIG, PACKAGE))
    flaky = "import os, random; os.environ.get('FLAKY') and random.random() < 0.7 and [][0]"
    commits = []
    for at in range(COMMITS):
        text = in_function(engine, "_initialize_kv_caches", "raise KeyError('planted')") if at >= CRASH else engine
        Path(folder, ENGINE).write_text(text)
        text = in_function(config, "create_engine_config", "raise TypeError('in front')") if at in MASK else config
        Path(folder, CONFIG).write_text(in_function(text, "create_engine_config", flaky) if at >= FLAKY else text)
        Path(folder, PACKAGE).write_text(package) if at not in BROKEN else Path(folder, PACKAGE).unlink(missing_ok=True)
        (folder / "number").write_text(str(at))
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"commit {at}")
        commits.append(git(folder, "rev-parse", "HEAD"))
    return folder, commits


@pytest.fixture
def scenario(tmp_path):
    """The shipped one without checks, and beside it what gets past the crash in front."""
    body = yaml.safe_load((SHIPPED / "tiny_lm.yaml").read_text())
    body |= {"model": str(SHIPPED / "models" / "tiny_lm"), "checks": {}, "variants": {}}
    body["serve"]["enforce-eager"] = True
    edit = {
        "file": CONFIG,
        "function": "EngineArgs.create_engine_config",
        "replace": "raise TypeError('in front')",
        "with": "pass",
    }
    known = {
        "signature": "TypeError: in front*",
        "refs": ["x#1"],
        "builds": ">=0",
        "workaround": [{"edit": edit, "removes": None}],
    }
    (tmp_path / "known_failures.yaml").write_text(json.dumps({"schema": 1, "known": [known]}))
    (tmp_path / "history.yaml").write_text(json.dumps(body))
    return tmp_path / "history.yaml"


def source(history, build, at):
    folder, commits = history
    return f"source:{folder}@{commits[at]},base={build.ref}"


def ends(history, build, good, bad):
    return ["--good", source(history, build, good), "--bad", source(history, build, bad)]


def commit(history, word):
    return history[1].index(word.partition("@")[2].partition(",")[0])


def test_the_planted_crash_is_found_through_the_one_in_front_of_it(history, scenario, vllm_build, tmp_path):
    code, told = bisected(tmp_path / "out", str(scenario), *ends(history, vllm_build, 0, COMMITS - 1))
    assert (code, told.ending) == (0, "found"), told.sentence
    assert [commit(history, word) for word in told.culprits] == [CRASH]
    assert told.signature.exception == "KeyError"
    assert any(rung.cover.startswith("TypeError: in front") for rung in told.ladder)


def test_the_crash_in_front_is_found_as_itself(history, scenario, vllm_build, tmp_path):
    """The middle one of these commits has no package and cannot be made."""
    code, told = bisected(tmp_path / "out", str(scenario), *ends(history, vllm_build, 60, 240))
    assert code == 0, told.sentence
    assert [commit(history, word) for word in told.culprits] == [MASK.start]
    assert [commit(history, probe.build) for probe in told.probes if probe.mark == "SKIP"] == [150]


def test_a_flaky_crash_is_found_by_weight(history, scenario, vllm_build, tmp_path, monkeypatch):
    words = ["--set", "env.FLAKY='1'", "--confidence", "0.9", *ends(history, vllm_build, 20, 60)]
    code, told = bisected(tmp_path / "out", str(scenario), *words)
    assert code == 0, told.sentence
    assert [commit(history, word) for word in told.culprits] == [FLAKY]
    assert "FLAKY" not in os.environ
