"""The comparison with a second launch: what both are asked, and what is said where they part."""

import pytest
from table_model import TableModel, another, unlikely

from harness.checks import CHECKS
from harness.checks.base import Unfinished
from harness.checks.same_output import SameOutputParams
from harness.errors import ScenarioError


def run(model, **params):
    given = SameOutputParams(**{"against": "no speculation", "max_tokens": 4, **params})
    with model.asked(given) as context:
        return CHECKS["same_output"].run(context)


def finished(own, theirs, **params):
    unfinished = run(own, **params)
    assert isinstance(unfinished, Unfinished)
    with theirs.asked(None) as context:
        return unfinished.finish(unfinished.ask(context))


def broken(result):
    return [m.name for m in result.measurements if not m.ok]


def at(place, damage, least=0):
    return lambda step: damage(step) if step.at == place and len(step.prompt) >= least else None


def dimmed(step):
    step.row = {token: value - 0.25 for token, value in step.row.items()}


def test_the_same():
    own, theirs = TableModel(longest=512), TableModel(longest=512, caching=False)
    result = finished(own, theirs)
    assert result.outcome == "pass"
    assert result.message == (
        "10 answers of 4 tokens as in the reference, 0 near ties, log-probabilities differ by up to 0 nats"
    )
    assert (own.requests, theirs.requests) == (10, 10)
    assert own.counts["vllm:prefix_cache_hits_total"] > 0, "asked twice with one salt"
    assert result.detail["prompts"] == [8, 50, 100, 200, 400]


@pytest.mark.parametrize("against", ["eager", {"serve": {"enforce-eager": True}}, {"build": "release:0.31.0"}])
def test_the_second_launch_is_the_scenarios(against):
    unfinished = run(TableModel(), against=against)
    assert unfinished.against == SameOutputParams(against=against).against


def test_they_part():
    result = finished(TableModel(), TableModel(damage=at(2, another, least=100)))
    assert (result.outcome, broken(result)) == ("fail", ["worst_gap"])
    assert result.message == (
        "the own and the reference answer to a prompt of 100 tokens part at token 2: log-probabilities -0.10 and -6.00 "
        "own, -0.05 and -6.00 reference, 5.95 nats or more apart (tolerance 0.5); 4 of 8 do; "
        "1 too long for the model and not tested"
    )
    assert [row["prompt"] for row in result.detail["divergences"]] == ["100 tokens", "200 tokens"] * 2


def test_only_the_cached_answers_part():
    result = finished(TableModel(damage=lambda s: another(s) if s.cached and s.at == 1 else None), TableModel())
    assert result.outcome == "fail"
    assert "; 3 of 8 do" in result.message


def test_log_probabilities_are_reported_and_judged_where_there_is_a_limit():
    result = finished(TableModel(), TableModel(damage=at(2, dimmed)))
    assert result.outcome == "pass"
    assert "log-probabilities differ by up to 0.25 nats" in result.message
    result = finished(TableModel(), TableModel(damage=at(2, dimmed)), max_logprob_difference=0.2)
    assert (result.outcome, broken(result)) == ("fail", ["logprob_difference"])


def test_its_own_wrong_answers_need_no_second_launch():
    result = run(TableModel(damage=at(1, unlikely)))
    assert result.outcome == "fail"
    assert result.message.startswith("the own answer to a prompt of 8 tokens is not greedy: token 1")
    assert [(m.name, m.value) for m in result.measurements] == [("wrong_answers", 8)]


def test_a_wrong_answer_of_the_second_launch_is_named_as_such():
    result = finished(TableModel(), TableModel(damage=at(1, unlikely)))
    assert result.message.startswith("the reference answer to a prompt of 8 tokens is not greedy")


def test_texts_of_the_scenario():
    own = TableModel()
    result = finished(own, TableModel(), prompts=["abc", "In the beginning"])
    assert result.outcome == "pass"
    assert result.detail["prompts"] == [3, 16]
    with pytest.raises(ScenarioError, match="1 of 2 prompts of `same_output` do not fit: the model takes 19"):
        run(TableModel(longest=19), prompts=["abc", "In the beginning"])


def test_a_model_for_which_no_prompt_is_short_enough():
    with pytest.raises(ScenarioError, match="5 of 5 prompts of `same_output` do not fit"):
        run(TableModel(longest=11))


@pytest.mark.parametrize("params", [{}, {"against": {}}, {"against": "eager", "prompts": []}])
def test_bad_parameters_are_refused(params):
    with pytest.raises(ValueError, match="validation error"):
        SameOutputParams(**params)
