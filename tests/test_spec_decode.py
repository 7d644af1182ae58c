"""The check of speculative decoding: drafts or not, how many were accepted, and whether only right ones were."""

import pytest
from table_model import TableModel, another, near_tie, unlikely

from harness.checks import CHECKS
from harness.checks.base import Unfinished
from harness.checks.greedy import Text
from harness.checks.spec_decode import SpecDecodeParams, prompts
from harness.errors import ScenarioError
from harness.runtimes.vllm_facts import COUNTERS

TEXT = Text(prefix=(256,), tokens=tuple(range(200)))


def always(_):
    return True


def run(model, **params):
    with model.asked(SpecDecodeParams(**{"max_tokens": 12, **params})) as context:
        return CHECKS["spec_decode"].run(context)


def numbers(result):
    return {m.name: m.value for m in result.measurements}


def broken(result):
    return [m.name for m in result.measurements if not m.ok]


def test_prompts_repeat_themselves():
    short, long = prompts(SpecDecodeParams(), TEXT, 512)
    assert [len(prompt) for prompt in short] == [96] * 4
    assert all(prompt[0] == 256 and prompt[1:25] == prompt[25:49] == prompt[49:73] for prompt in short)
    assert len(set(short)) == 4
    assert len(long) == 384


@pytest.mark.parametrize(
    ("longest", "params", "expected"),
    [
        (512, {"max_tokens": 300}, 212),  # the answer needs its room
        (100_000, {}, 32768),
        (100_000, {"long_prompt": 0.1}, 10_000),
        (160, {}, None),  # 96 tokens are what the short ones have
        (None, {}, None),
    ],
)
def test_the_long_prompt_is_a_share_of_what_the_model_takes(longest, params, expected):
    long = prompts(SpecDecodeParams(**params), TEXT, longest)[1]
    assert (long and len(long)) == expected


def test_a_model_that_takes_no_prompt_worth_repeating():
    assert len(prompts(SpecDecodeParams(), TEXT, 112)[0][0]) == 48
    with pytest.raises(ScenarioError, match="64 tokens after a prompt of at least 48, the model takes 111 in all"):
        prompts(SpecDecodeParams(), TEXT, 111)


def test_healthy():
    result = run(TableModel(drafts=always))
    assert result.outcome == "pass"
    assert result.message == "acceptance length 3.00 in 16 drafts, 3.00 in 4 after a prompt of 192 tokens"
    assert result.shows == ("spec_decode",)
    assert numbers(result) == {
        "drafts": 16, "draft_tokens": 48, "accepted_tokens": 32, "acceptance_length": 3,
        "acceptance_rate_0": 1, "acceptance_rate_1": 1, "acceptance_rate_2": 0,
        "long_drafts": 4, "long_draft_tokens": 12, "long_accepted_tokens": 8, "long_acceptance_length": 3,
        "long_acceptance_rate_0": 1, "long_acceptance_rate_1": 1, "long_acceptance_rate_2": 0, "wrong_answers": 0,
    }  # fmt: skip


def test_only_its_own_requests_are_counted():
    model = TableModel(drafts=always, lag=2)
    with model.asked(SpecDecodeParams(max_tokens=12)) as context:
        context.client.generate([1, 2, 3], max_tokens=30, ignore_eos=True)
        result = CHECKS["spec_decode"].run(context)
    assert numbers(result)["drafts"] == 16


def test_never_drafting_is_a_failure():
    result = run(TableModel(drafts=lambda _: False))
    assert (result.outcome, result.shows) == ("fail", ())
    assert result.message == "speculation was on but never drafted: 0 drafts in 60 tokens"
    assert broken(result) == ["drafts", "long_drafts"]
    assert numbers(result)["acceptance_length"] is None


def test_never_drafting_after_a_long_prompt_is_a_failure_of_its_own():
    result = run(TableModel(drafts=lambda length: length < 100))
    assert (result.outcome, broken(result)) == ("fail", ["long_drafts"])
    assert result.message == "speculation never drafted after a prompt of 192 tokens, but after shorter ones"


def test_a_server_without_speculation():
    result = run(TableModel(drafts=None))
    assert result.outcome == "fail"
    assert result.message == f"nothing shows that speculation is on: the server has no counter {COUNTERS.drafts}"


@pytest.mark.parametrize(
    ("params", "name", "end"),
    [
        ({"min_acceptance_length": 3.5}, "acceptance_length", "is below the limit of 3.5"),
        ({"min_acceptance_length_long": 3.1}, "long_acceptance_length", "192 tokens is below the limit of 3.1"),
    ],
)
def test_a_limit_on_the_acceptance_length(params, name, end):
    result = run(TableModel(drafts=always), **params)
    assert (result.outcome, broken(result)) == ("fail", [name])
    assert result.message.startswith("acceptance length 3.00")
    assert result.message.endswith(end)
    assert run(TableModel(drafts=always), **dict.fromkeys(params, 3.0)).outcome == "pass"


def test_a_wrong_draft_that_was_accepted_shows_without_a_second_launch():
    result = run(TableModel(drafts=always, damage=lambda step: unlikely(step) if step.at == 5 else None))
    assert (result.outcome, broken(result)) == ("fail", ["wrong_answers"])
    assert result.message == (
        "the speculative answer to a prompt of 96 tokens is not greedy: token 5 has the log-probability -4.00, "
        "the likeliest -0.10"
    )


def test_a_model_with_room_for_short_prompts_only_says_so():
    result = run(TableModel(drafts=always, longest=110))
    assert result.outcome == "pass"
    assert result.message.endswith("no longer prompt was tested: the model takes none")
    assert "long_drafts" not in numbers(result)


def finished(own, theirs, **params):
    """Both launches, one after the other."""
    unfinished = run(own, against="no speculation", **params)
    assert isinstance(unfinished, Unfinished)
    assert unfinished.against == "no speculation"
    with theirs.asked(None) as context:
        return unfinished.finish(unfinished.ask(context))


def test_against_a_launch_without_speculation():
    reference = TableModel(drafts=None)
    result = finished(TableModel(drafts=always), reference)
    assert result.outcome == "pass"
    assert result.message.endswith("after a prompt of 192 tokens; 5 answers as in the reference, 0 near ties")
    assert reference.requests == 5
    assert numbers(result)["compared_reference"] == 5
    assert numbers(result)["drafts"] == 16
    assert result.shows == ("spec_decode",)


def test_another_answer_than_without_speculation():
    wrong = TableModel(drafts=always, damage=lambda step: another(step) if step.at == 7 else None)
    result = finished(wrong, TableModel())
    assert (result.outcome, broken(result)) == ("fail", ["worst_gap_reference"])
    assert "the speculative and the reference answer to a prompt of 96 tokens part at token 7" in result.message
    assert result.message.endswith("; 5 of 5 do")


def test_no_second_launch_is_asked_for_where_the_first_has_failed():
    result = run(TableModel(drafts=lambda _: False), against="no speculation")
    assert result.outcome == "fail"


def test_a_tolerance_for_the_second_launch():
    def tied(step):
        first, second, *_ = step.row
        step.row.update({first: -0.7, second: -0.8})

    own = TableModel(drafts=always, damage=lambda step: near_tie(step, 0.3) if step.at == 11 else None)
    theirs = TableModel(damage=lambda step: tied(step) if step.at == 11 else None)
    assert finished(own, theirs).outcome == "pass"
    assert finished(own, theirs, tolerance=0.2).outcome == "fail"


@pytest.mark.parametrize(
    "params", [{"min_acceptance_length": 0.5}, {"long_prompt": 1.0}, {"prompts": 0}, {"against": {}}, {"x": 1}]
)
def test_bad_parameters_are_refused(params):
    with pytest.raises(ValueError, match="validation error"):
        SpecDecodeParams(**params)
