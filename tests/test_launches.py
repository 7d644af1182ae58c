"""Which servers a scenario launches, what each is asked, and what validation refuses. Pure."""

import re
from dataclasses import replace

import pytest
from standin_build import HEALTHY, make_scenario

from harness import launches, scenario
from harness.checks.against import Against, Overrides
from harness.checks.base import CheckResult, Params
from harness.errors import ScenarioError
from harness.runtimes import RUNTIMES
from harness.scenario.format import registered

REFERENCES = RUNTIMES["vllm"].references
SPECULATION = "speculative-config: {method: ngram, num_speculative_tokens: 3}"


class Compares(Params):
    against: Against


REGISTRY = replace(registered(), checks={**registered().checks, **dict.fromkeys(("one", "two", "three"), Compares)})


@pytest.fixture
def load(tmp_path):
    return lambda *lines: scenario.load(make_scenario(tmp_path, HEALTHY, *lines), registry=REGISTRY)


def test_one_start_unless_more_are_asked_for(load):
    (only,) = launches.starts(load("checks: {warmup: {}, perplexity: {corpus: smoke_en}}"))
    assert (only.name, only.checks, only.folder) == ("", ("warmup", "perplexity"), "")


def test_the_last_start_is_asked_everything_and_those_before_how_warm_they_are(load):
    asked = load("checks: {perplexity: {corpus: smoke_en}, warmup: {}}", "starts: [cold, warm]")
    cold, warm = launches.starts(asked)
    assert (cold.name, cold.checks, cold.folder) == ("cold", ("warmup",), "cold")
    assert (warm.name, warm.checks, warm.folder) == ("warm", ("warmup", "perplexity"), "")


def test_equal_second_launches_are_one(load):
    asked = load(
        "checks: {one: {against: eager}, two: {against: no prefix cache}, three: {against: eager}}",
        "serve: {enable-prefix-caching: true}",
    )
    assert launches.against(asked) == {"eager": "eager", "no prefix cache": "no prefix cache"}


def test_second_launches_that_read_the_same_have_names_of_their_own(load):
    asked = load("checks: {one: {against: {env: {X: a}}}, two: {against: {env: {X: b}}}}")
    first, second = launches.against(asked).items()
    assert (first[0], second[0]) == ("env.X set", "env.X set #2")
    assert (first[1].env, second[1].env) == ({"X": "a"}, {"X": "b"})


def test_one_is_a_value_and_true_a_bare_flag(load):
    asked = load("checks: {one: {against: {serve: {x: 1}}}, two: {against: {serve: {x: true}}}}")
    assert list(launches.against(asked)) == ["serve.x = 1", "serve.x = true"]
    assert Overrides(serve={"x": 1, "y": 2}) == Overrides(serve={"y": 2, "x": 1})
    assert len({Overrides(serve={"x": 1}), Overrides(serve={"x": True}), Overrides(serve={"x": 1})}) == 2
    asked = load("checks: {one: {against: {serve: {x: 1}}}}", "serve: {x: true}")
    assert launches.second(asked, launches.against(asked)["serve.x = 1"], REFERENCES).serve == {"x": 1}


def test_names_stay_apart_where_a_value_reads_like_a_number_of_a_name(load):
    values = ("a #2", "a #2", "a")
    params = [Compares(against=Overrides(serve={"x": value}, env={"Y": str(at)})) for at, value in enumerate(values)]
    named = launches.against(replace(load(), checks=dict(zip(("one", "two", "three"), params, strict=True))))
    assert list(named) == [
        'serve.x = "a #2", env.Y set', 'serve.x = "a #2", env.Y set #2', 'serve.x = "a", env.Y set',
    ]  # fmt: skip
    assert list(named.values()) == [each.against for each in params]


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ("no speculation", "no speculation"),
        ({"build": "0.31.0"}, "build 0.31.0"),
        ({"serve": {"max-num-seqs": 1, "dtype": None}}, "serve.max-num-seqs = 1, serve.dtype removed"),
        ({"build": "0.31.0", "env": {"HF_TOKEN": "secret"}}, "build 0.31.0, env.HF_TOKEN set"),
    ],
)
def test_labels_hold_no_value_of_a_variable(given, label):
    assert launches.label(given if isinstance(given, str) else Overrides.model_validate(given)) == label


def test_a_second_launch_is_the_same_server_but_for_what_it_is_held_against(load):
    asked = load(f"serve: {{{SPECULATION}, max-num-seqs: 4}}", "subject: [spec_decode]")
    second = launches.second(asked, "no speculation", REFERENCES)
    assert (second.serve, second.subject) == ({"max-num-seqs": 4}, ())
    second = launches.second(asked, Overrides(serve={"max-num-seqs": 1}, env={"X": "1"}), REFERENCES)
    assert (second.serve["max-num-seqs"], second.env["X"]) == (1, "1")
    assert "speculative-config" in second.serve


@pytest.mark.parametrize("other", ["no speculation", Overrides(serve={"max-num-seqs": 4})])
def test_a_launch_against_itself_is_refused(load, other):
    asked = load("serve: {max-num-seqs: 4}")
    with pytest.raises(ScenarioError, match="would be the same as the scenario's own"):
        launches.second(asked, other, REFERENCES)
    another_build = launches.second(asked, Overrides(build="0.31.0"), REFERENCES)
    assert another_build.serve == asked.serve


def test_names_of_checks():
    assert launches.case("warmup", "cold") == "warmup[cold]"
    assert launches.case("warmup", "") == "warmup"
    assert launches.case("same_output", "no speculation") == "same_output", "one name, whatever it is compared with"
    told = launches.told(CheckResult(name="warmup", outcome="fail", message="slow", launch="warm"))
    assert (told.text, told.ok) == ("warmup[warm]: slow", False)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("starts: [warm]",), "`starts` is [cold] or [cold, warm]: a warm start needs the caches of a cold one"),
        (("starts: [warm, cold]",), "`starts` is [cold] or [cold, warm]"),
        (("starts: [cold, cold]",), "`starts` is [cold] or [cold, warm]"),
        (("checks: {warmup: {max-compiled: 0}}",), "`checks.warmup.max-compiled` needs `starts: [cold]`"),
        (
            ("checks: {warmup: {max-warm-ratio: 0.5}}", "starts: [cold]"),
            "`checks.warmup.max-warm-ratio` needs `starts: [cold, warm]`",
        ),
        (
            ("checks: {one: {against: no speculatoin}}",),
            'unknown launch "no speculatoin" in `checks.one.against`; did you mean `no speculation`?',
        ),
        (("checks: {one: {against: tea}}",), "known are eager, no prefix cache, no speculation"),
        (("checks: {one: {against: {}}}",), "a launch against itself shows nothing"),
        (("checks: {one: {against: {serve: {port: 1}}}}",), "`checks.one.against.serve.port` belongs to the harness"),
        (("checks: {one: {against: {build: relase:0.31.0}}}",), "did you mean 'release:0.31.0'?"),
        (
            ("checks: {one: {against: {serve: {tensor-parallel-size: 2}}}}", "needs: {gpus: 1}"),
            "`needs.gpus` is 1, but tensor-parallel-size 2 in `checks.one.against.serve` makes 2",
        ),
    ],
)
def test_what_validation_refuses(load, lines, said):
    with pytest.raises(ScenarioError) as caught:
        load(*lines)
    assert said in str(caught.value)
    assert re.search(r"stand-in.yaml:[56]:\d+: ", str(caught.value)), "where it is"


def test_what_validation_takes(load):
    load("starts: [cold, warm]", "checks: {warmup: {max-compiled: 0, max-warm-ratio: 0.5}}")
    load("checks: {one: {against: {build: 'release:0.31.0', serve: {dtype: null}}}}")
