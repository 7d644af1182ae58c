"""The prefix cache check: which prompts it asks, and what it says of a cache that is healthy, off, wrong or too big."""

import pytest
from table_model import TableModel, another, near_tie

from harness.checks import CHECKS
from harness.checks.greedy import Text
from harness.checks.prefix_cache import NAMES, PrefixCacheParams, plan
from harness.errors import ScenarioError
from harness.runtimes.vllm_facts import COUNTERS

TEXT = Text(prefix=(256,), tokens=tuple(range(100)))


def run(model, params=None, **changes):
    with model.asked(params or PrefixCacheParams(max_tokens=4), **changes) as context:
        return CHECKS["prefix_cache"].run(context)


def numbers(result):
    return {m.name: m.value for m in result.measurements}


def broken(result):
    return [m.name for m in result.measurements if not m.ok]


def test_prompts_around_a_block():
    made = plan(TEXT, block=8, tokens=4, longest=None)
    assert [(case.name, len(case.prompt), case.reusable) for case in made.cases] == [
        ("block - 1", 7, 0), ("block", 8, 0), ("block + 1", 9, 8), ("2 blocks", 16, 8), ("shared prefix", 17, 16),
    ]  # fmt: skip
    assert made.too_long == ()
    assert all(case.prompt[0] == 256 for case in made.cases), "begun as the tokenizer begins a prompt"
    shared = made.cases[-1]
    assert len({case.prompt[1:7] for case in made.cases}) == 5, "each has another text"
    assert shared.prompt[:16] == shared.filler[:16]
    assert shared.prompt[16] != shared.filler[16]


def test_a_block_of_one_token_leaves_no_empty_prompt():
    made = plan(TEXT, block=1, tokens=4, longest=None)
    assert [(case.name, len(case.prompt), case.reusable) for case in made.cases] == [
        ("block", 1, 0), ("block + 1", 2, 1), ("2 blocks", 2, 1), ("shared prefix", 3, 2),
    ]  # fmt: skip


def test_a_prefix_of_one_block_where_two_do_not_fit():
    made = plan(TEXT, block=32, tokens=4, longest=68)
    assert [(case.name, len(case.prompt), case.reusable) for case in made.cases][3:] == [
        ("2 blocks", 64, 32), ("shared prefix", 33, 32),
    ]  # fmt: skip
    assert made.too_long == ()


def test_what_does_not_fit_is_named_and_a_scenario_without_reuse_is_invalid():
    made = plan(TEXT, block=8, tokens=4, longest=13)
    assert [case.name for case in made.cases] == ["block - 1", "block", "block + 1", "shared prefix"]
    assert made.too_long == ("2 blocks",)
    with pytest.raises(
        ScenarioError, match="a block has 8 tokens, an answer 4, and the model takes 12 in all"
    ) as error:
        plan(TEXT, block=8, tokens=4, longest=12)
    assert error.value.fix == "raise `max-model-len` in `serve` to 21 (at least 13)"


def test_whether_prompts_fit_is_asked_before_they_are_made():
    with pytest.raises(ScenarioError, match="no prompt fits that could reuse a cache block") as error:
        plan(TEXT, block=10**20, tokens=4, longest=4096)
    assert (
        error.value.fix == "raise `max-model-len` in `serve` to 200000000000000000005 (at least 100000000000000000005)"
    )


def test_healthy():
    model = TableModel(details=True)
    result = run(model)
    assert result.outcome == "pass"
    assert result.message == (
        "32 of 32 tokens in whole blocks came from the prefix cache; 5 prompts, cold and cached alike, 0 near ties"
    )
    assert result.shows == ("prefix_cache",)
    assert numbers(result) == {
        "block": 8, "hit_tokens": 32, "reusable_tokens": 32, "cold_hit_tokens": 0, "not_tested": 0,
        "second_time_hit_tokens": 32, "compared": 10,
        "wrong_answers": 0, "divergences": 0, "worst_gap": 0, "logprob_difference": 0,
    }  # fmt: skip
    assert model.requests == 16
    assert [(name, row["hit"]) for name, row in result.detail["prompts"].items()] == list(
        zip(NAMES, [0, 0, 8, 8, 16], strict=True)
    )


def test_hits_of_one_prompt_are_null_where_the_server_does_not_say():
    assert [row["hit"] for row in run(TableModel()).detail["prompts"].values()] == [None] * 5


def test_no_hits_is_a_failure():
    result = run(TableModel(caching=False))
    assert (result.outcome, result.shows) == ("fail", ())
    assert result.message == "no token came from the prefix cache, of 32 in whole blocks"
    assert broken(result) == ["hit_tokens"]


def test_a_prefix_that_only_a_third_request_finds():
    """As models with recurrent states have it: the second request shows that the prefix is shared."""
    result = run(TableModel(sightings=2))
    assert result.outcome == "pass", result.message
    assert numbers(result)["second_time_hit_tokens"] == 0
    assert numbers(result)["hit_tokens"] == 32
    damaged = run(TableModel(sightings=2, damage=from_cache(another)))
    assert damaged.message.endswith("; 3 of 10 do")
    assert run(TableModel(sightings=3)).outcome == "fail"


def test_cold_must_be_cold():
    result = run(TableModel(salted=False))
    assert result.outcome == "fail"
    assert result.message.startswith("prompts that share no `cache_salt` shared ")
    assert "cold_hit_tokens" in broken(result)


def from_cache(damage, least=1):
    """Damages the third token of an answer to a prompt of which so many tokens were cached."""
    return lambda step: damage(step) if step.cached >= least and step.at == 2 else None


def test_a_damaged_cache_is_a_divergence():
    result = run(TableModel(damage=from_cache(another)))
    assert result.outcome == "fail"
    assert result.message.startswith(
        "the cold and the cached answer to a prompt of 9 tokens part at token 2: log-probabilities -0.10 and -6.00 "
        "cold, -0.05 and -6.00 cached, 5.95 nats or more apart (tolerance 0.5); 6 of 10 do"
    )
    assert broken(result) == ["worst_gap"]
    assert result.shows == ("prefix_cache",), "it was on, and wrong"


def test_damage_under_other_tails_only():
    result = run(TableModel(damage=from_cache(another, least=9)))
    assert result.message.endswith("; 2 of 10 do")
    assert [row["prompt"] for row in result.detail["divergences"]] == ["shared prefix"] * 2


def test_a_near_tie_must_show_in_both_answers():
    result = run(TableModel(damage=from_cache(near_tie)))
    assert result.outcome == "fail", "cold, the other token was far behind"

    def tied(step):
        first, second, *_ = step.row
        step.row.update({first: -0.7, second: -0.8})
        if step.cached:
            near_tie(step, apart=0.3)

    result = run(TableModel(damage=lambda step: tied(step) if step.at == 2 else None))
    assert result.outcome == "pass"
    assert result.message.endswith("5 prompts, cold and cached alike, 6 near ties")
    assert numbers(result)["worst_gap"] == pytest.approx(0.3)


def test_tokens_alike_but_their_probabilities_are_not():
    def dimmed(step):
        step.row = {token: value - 1.5 for token, value in step.row.items()}

    result = run(TableModel(damage=from_cache(dimmed)))
    assert (result.outcome, broken(result)) == ("fail", ["logprob_difference"])
    loose = PrefixCacheParams(max_tokens=4, max_logprob_difference=None)
    assert run(TableModel(damage=from_cache(dimmed)), loose).outcome == "pass"


def test_too_long_is_said_and_passes_with_the_rest():
    result = run(TableModel(longest=13))
    assert result.outcome == "pass"
    assert result.message.endswith("; 1 too long for the model and not tested")
    assert result.detail["not tested"] == ["2 blocks"]
    assert numbers(result)["not_tested"] == 1
    with pytest.raises(ScenarioError, match="no prompt fits"):
        run(TableModel(longest=12))


def test_a_block_that_nobody_knows():
    result = run(TableModel(), block_tokens=lambda: None)
    assert (result.outcome, result.shows) == ("not_tested", ())
    assert "give `block-tokens`" in result.message
    given = PrefixCacheParams(max_tokens=4, block_tokens=8)
    assert run(TableModel(), given, block_tokens=lambda: None).outcome == "pass"


def test_a_server_without_the_counter():
    result = run(TableModel(missing=COUNTERS.prefix_hits))
    assert (result.outcome, result.message) == ("fail", f"the server has no counter {COUNTERS.prefix_hits}")


@pytest.mark.parametrize(
    "params", [{"max_tokens": 0}, {"tolerance": -1.0}, {"block_tokens": 0}, {"block_tokens": 10**20}, {"salt": "x"}]
)
def test_bad_parameters_are_refused(params):
    with pytest.raises(ValueError, match="validation error"):
        PrefixCacheParams(**params)
