"""The determinism check: one prompt, one answer, alone and in a batch."""

import pytest
from table_model import TableModel, another, near_tie, unlikely

from harness.checks import CHECKS
from harness.checks.determinism import DeterminismParams
from harness.errors import ScenarioError

SMALL = {"prompt_tokens": 16, "max_tokens": 6, "batch": 4}


def run(model, **params):
    with model.asked(DeterminismParams(**{**SMALL, **params})) as context:
        return CHECKS["determinism"].run(context)


def broken(result):
    return [m.name for m in result.measurements if not m.ok]


def of_request(number, damage, at=3):
    """Damages one token of the answer to one request. The first two are the ones alone."""
    return lambda step: damage(step) if step.request == number and step.at == at else None


def of_batch(damage, tokens=16):
    """Damages a token of the answer to the prompt under test while others are asked beside it."""
    return lambda step: damage(step) if step.request > 2 and len(step.prompt) == tokens and step.at == 3 else None


def tied(step):
    first, second, *_ = step.row
    step.row.update({first: -0.7, second: -0.8})


def test_healthy():
    model = TableModel()
    result = run(model)
    assert result.outcome == "pass"
    assert result.message == "6 tokens alike, twice alone and in a batch of 4, 0 near ties"
    assert model.requests == 6
    assert {m.name: m.value for m in result.measurements} == {
        "compared_alone": 1, "wrong_answers_alone": 0, "divergences_alone": 0, "worst_gap_alone": 0,
        "logprob_difference_alone": 0,
        "compared_batch": 1, "wrong_answers_batch": 0, "divergences_batch": 0, "worst_gap_batch": 0,
        "logprob_difference_batch": 0,
    }  # fmt: skip


def test_the_cache_plays_no_part():
    model = TableModel()
    run(model)
    assert sum(model.counts.values()) == model.counts["vllm:request_success_total"] == 6, "and no token was reused"


def test_others_in_the_batch_are_of_mixed_lengths():
    assert DeterminismParams().others() == [41, 50, 59, 68, 77, 86, 96]
    assert DeterminismParams(batch=2).others() == [96]


def test_two_answers_alone():
    result = run(TableModel(damage=of_request(2, another)))
    assert (result.outcome, broken(result)) == ("fail", ["worst_gap_alone"])
    assert result.message == (
        "the first and the repeated answer to a prompt of 16 tokens part at token 3: log-probabilities -0.10 and -6.00 "
        "first, -0.05 and -6.00 repeated, 5.95 nats or more apart (tolerance 0); 1 of 1 do"
    )


def test_alone_not_even_a_near_tie_is_excused():
    def damage(step):
        if step.at == 3 and step.request < 3:
            tied(step)
        of_request(2, near_tie)(step)

    assert broken(run(TableModel(damage=damage))) == ["worst_gap_alone"]
    assert run(TableModel(damage=damage), tolerance_alone=0.5).outcome == "pass"


def test_another_answer_in_a_batch():
    result = run(TableModel(damage=of_batch(another)))
    assert (result.outcome, broken(result)) == ("fail", ["worst_gap_batch"])
    assert result.message.startswith("the lone and the batched answer to a prompt of 16 tokens part at token 3")
    assert result.detail["batch"][0]["at"] == 3


def test_a_near_tie_in_a_batch_is_excused():
    def damage(step):
        if step.at == 3:
            tied(step)
        of_batch(near_tie)(step)

    result = run(TableModel(damage=damage))
    assert result.outcome == "pass"
    assert result.message.endswith("1 near ties")
    assert run(TableModel(damage=damage), tolerance=0.1).outcome == "fail"


def test_a_sampler_that_is_not_greedy():
    result = run(TableModel(damage=lambda step: unlikely(step) if step.at == 3 else None))
    assert result.outcome == "fail"
    assert result.message == (
        "the first answer to a prompt of 16 tokens is not greedy: token 3 has the log-probability -4.00, "
        "the likeliest -0.10"
    )


def test_answers_that_are_too_short():
    result = run(TableModel(short=2))
    assert (result.outcome, result.message) == ("fail", "the first answer to a prompt of 16 tokens has 4 tokens, not 6")


def test_a_model_that_is_too_short():
    with pytest.raises(ScenarioError, match="have up to 30 tokens, the model takes 29") as error:
        run(TableModel(longest=29))
    assert "lower `prompt-tokens`" in error.value.fix
    assert run(TableModel(longest=30)).outcome == "pass"
    assert run(TableModel(longest=None)).outcome == "pass"


@pytest.mark.parametrize(
    "params", [{"batch": 1}, {"batch": 99_999_999_999}, {"prompt_tokens": 7}, {"tolerance_alone": -0.1}, {"repeat": 2}]
)
def test_bad_parameters_are_refused(params):
    with pytest.raises(ValueError, match="validation error"):
        DeterminismParams(**params)
