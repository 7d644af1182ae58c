"""Two answers token by token: exact numbers, exact sentences, and sentences that stay the same from night to night."""

import pytest

from harness import triage
from harness.checks.outputs import Comparison, Pair, difference, diverge, not_greedy, wrong
from harness.client.answers import Generated


def answer(*rows, tokens=None):
    """One row of log-probabilities a position; the first token of a row is the chosen one unless `tokens` says."""
    chosen = tokens or [next(iter(row)) for row in rows]
    logprobs = tuple(row[token] for row, token in zip(rows, chosen, strict=True))
    return Generated(tokens=tuple(chosen), logprobs=logprobs, top=rows, text="x", seconds=0.1)


def comparison(*pairs, tolerance=0.5, tokens=2, limit=None):
    named = tuple(Pair(prompt=129, first=a, second=b) for a, b in pairs)
    return Comparison(pairs=named, names=("cold", "cached"), tokens=tokens, tolerance=tolerance, max_difference=limit)


ONE = answer({1: -0.1, 2: -3.0}, {3: -0.9, 4: -1.0})
TIE = answer({1: -0.2, 2: -2.9}, {4: -0.95, 3: -0.97})
FAR = answer({1: -0.1, 2: -3.0}, {4: -0.1, 3: -4.0})
UNNAMED = answer({1: -0.1, 2: -3.0}, {9: -0.1, 4: -4.0, 5: -7.5})


def test_the_same_answer_does_not_part():
    assert diverge(ONE, ONE) is None
    assert comparison((ONE, ONE)).fault() is None


def test_a_near_tie_in_both_explains():
    parted = diverge(ONE, TIE)
    assert parted.at == 1
    assert [(fork.token, fork.own, fork.other) for fork in parted.forks] == [(3, -0.9, -1.0), (4, -0.95, -0.97)]
    assert parted.gap == pytest.approx(0.1)
    assert parted.explained(0.101)
    assert not parted.explained(0.099)
    assert comparison((ONE, TIE)).fault() is None


@pytest.mark.parametrize("pair", [(ONE, FAR), (FAR, ONE)])
def test_a_near_tie_in_one_answer_alone_does_not(pair):
    parted = diverge(*pair)
    assert parted.gap == pytest.approx(3.9)
    assert not parted.explained(0.5)


@pytest.mark.parametrize("tolerance", [0.5, 100.0])
def test_a_token_that_is_not_named_is_never_explained(tolerance):
    parted = diverge(ONE, UNNAMED)
    assert parted.forks[0].other is None
    assert parted.gap == pytest.approx(7.4), "at least so much: its own row ends there"
    assert not parted.explained(tolerance)


@pytest.mark.parametrize(("pair", "at"), [((ONE, answer({1: -0.1})), 1), ((answer(), ONE), 0)])
def test_an_answer_that_ends_early_parts_there(pair, at):
    parted = diverge(*pair)
    assert (parted.at, parted.forks, parted.gap) == (at, None, None)
    assert not parted.explained(100.0)


def test_only_the_tokens_before_the_parting_are_compared_by_number():
    assert difference(ONE, TIE) == pytest.approx(0.1)
    assert difference(ONE, ONE) == 0
    assert difference(ONE, answer({2: -0.1}, {3: -5.0})) == 0
    assert difference(ONE, answer({1: -0.1}, {3: -2.0})) == pytest.approx(1.1)


def test_a_token_below_the_likeliest_is_not_greedy():
    sampled = answer({1: -0.1, 2: -3.0}, {3: -0.9, 4: -1.0}, tokens=[1, 4])
    assert not_greedy(ONE) is None
    assert not_greedy(sampled) == 1
    assert not_greedy(answer({1: -1.0005, 2: -1.0})) is None, "rounding"
    assert wrong(ONE, prompt=7, tokens=2, name="cold") is None
    assert wrong(sampled, prompt=7, tokens=2, name="cold") == (
        "the cold answer to a prompt of 7 tokens is not greedy: token 1 has the log-probability -1.00, "
        "the likeliest -0.90"
    )


def test_a_near_tie_does_not_excuse_an_answer_that_is_not_greedy():
    sampled = answer({1: -0.1, 2: -3.0}, {3: -0.9, 4: -1.0}, tokens=[1, 4])
    assert diverge(ONE, sampled).explained(0.5)
    assert "the cached answer to a prompt of 129 tokens is not greedy" in comparison((ONE, sampled)).fault()


def test_answers_that_are_both_too_short_are_no_success():
    short = answer({1: -0.1})
    compared = comparison((short, short))
    assert compared.fault() == "the cold answer to a prompt of 129 tokens has 1 tokens, not 2"
    assert [(m.name, m.value) for m in compared.measurements() if not m.ok] == [("wrong_answers", 2)]


def test_the_sentence_has_both_log_probabilities_of_both():
    compared = comparison((ONE, ONE), (ONE, FAR), (ONE, TIE))
    assert compared.fault() == (
        "the cold and the cached answer to a prompt of 129 tokens part at token 1: log-probabilities "
        "-0.90 and -1.00 cold, -0.10 and -4.00 cached, 3.90 nats or more apart (tolerance 0.5); 1 of 3 do"
    )
    assert {m.name: (m.value, m.ok) for m in compared.measurements("_x")} == {
        "compared_x": (3, True), "wrong_answers_x": (0, True), "divergences_x": (2, True), "worst_gap_x": (3.9, False),
        "logprob_difference_x": (0.1, True),
    }  # fmt: skip
    assert compared.detail()[0]["forks"]["cached"] == {"token": 4, "logprob": -0.1, "other's logprob": -4.0}


def test_equal_tokens_of_other_probability():
    far = answer({1: -0.1}, {3: -2.0})
    compared = comparison((ONE, far), limit=1.0)
    assert compared.fault() == (
        "the cold and the cached answers have the same tokens, but log-probabilities that differ by 1.10 nats (limit 1)"
    )
    assert [m.name for m in compared.measurements() if not m.ok] == ["logprob_difference"]
    assert comparison((ONE, far)).fault() is None


def test_the_identity_of_a_failure_is_the_same_whatever_its_numbers():
    other = answer({1: -0.00123, 2: -3.0}, {200: -0.0, 4: -12.125})
    sentences = {comparison((ONE, second), tolerance=t).fault() for second, t in ((FAR, 0.5), (UNNAMED, 1), (other, 0))}
    assert len(sentences) == 3
    assert len({triage.check_failed("prefix_cache", sentence).id for sentence in sentences}) == 1
