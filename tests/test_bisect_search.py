"""The search alone: positions, no builds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.bisect.search import PRESUMED_FROM, Answer, Unknown, answer, contradictions, matters, targets, window


def carry_out(size, culprit, unknown=None, *, workers=1):
    """The answer, the positions probed in order, and the rounds that it took."""
    seen, probed, rounds = {0: "before", size - 1: "after"}, [], 0
    while (found := answer(size, seen)) is None:
        chosen = targets(size, seen, workers=workers)
        assert chosen
        assert len(set(chosen)) == len(chosen) <= workers
        rounds += 1
        for at in chosen:
            assert at not in seen
            probed.append(at)
            cause = (unknown or {}).get(at)
            seen[at] = Unknown(cause=cause) if cause else "after" if at >= culprit else "before"
    return found, probed, rounds


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 9, 17, 33, 100, 361])
def test_a_clean_range_takes_no_more_probes_than_the_logarithm(size):
    for culprit in range(1, size):
        found, probed, _ = carry_out(size, culprit)
        assert (found.first, found.last) == (culprit, culprit)
        assert len(probed) <= math.ceil(math.log2(size - 1))


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_workers_split_the_range_into_as_many_parts_and_one_more(workers):
    for size in (5, 26, 126, 361):
        most = math.ceil(math.log(size - 1, workers + 1) - 1e-9)
        assert max(carry_out(size, culprit, workers=workers)[2] for culprit in range(1, size)) <= most + 1


@given(st.data())
def test_the_culprit_is_always_in_the_answer_and_the_answer_ends_at_builds_that_were_judged(data):
    size = data.draw(st.integers(2, 60))
    culprit = data.draw(st.integers(1, size - 1))
    where = st.dictionaries(st.integers(1, max(1, size - 2)), st.sampled_from(["a bug", "no wheel"]))
    unknown = {at: cause for at, cause in data.draw(where).items() if 0 < at < size - 1}
    found, probed, _ = carry_out(size, culprit, unknown, workers=data.draw(st.integers(1, 5)))
    assert found.first <= culprit <= found.last
    assert len(set(probed)) == len(probed)
    judged = {0, size - 1, *probed} - unknown.keys()
    assert {found.first - 1, found.last} <= judged
    assert set(found.untested).isdisjoint(judged)
    if not unknown:
        assert found.single


@given(st.data())
def test_a_stretch_that_one_bug_covers_is_not_probed_whole(data):
    size, width = 400, data.draw(st.integers(10, 200))
    begin = data.draw(st.integers(1, size - 2 - width))
    culprit = data.draw(st.integers(1, size - 1))
    unknown = dict.fromkeys(range(begin, begin + width), "a bug")
    found, probed, _ = carry_out(size, culprit, unknown)
    assert len(probed) <= PRESUMED_FROM + 2 * math.ceil(math.log2(size)) + 2
    if begin <= culprit <= begin + width:
        assert (found.first, found.last) == (begin, begin + width)
        assert len(found.untested) >= width - len(probed)
    else:
        assert found.single


def test_the_next_probe_goes_aside_the_farther_the_wider_the_stretch_is():
    seen = {0: "before", 400: "after"}
    distances = []
    for _ in range(4):
        (at,) = targets(401, seen)
        distances.append(min((abs(at - other) for other in seen if isinstance(seen[other], Unknown)), default=0))
        seen[at] = Unknown(cause="a bug")
    assert distances[0] == 0
    assert 0 < distances[1] < distances[2]


def test_two_causes_are_two_stretches_and_nothing_is_presumed_between_them():
    seen = {0: "before", 9: "after", 2: Unknown(cause="a"), 4: Unknown(cause="b"), 6: Unknown(cause="a")}
    assert answer(10, seen) is None
    tight = {0: "before", 3: "after", 1: Unknown(cause="a"), 2: Unknown(cause="b")}
    assert answer(4, tight) == Answer(first=1, last=3)


def test_a_running_probe_is_a_point_that_the_others_keep_away_from():
    seen = {0: "before", 100: "after"}
    assert targets(101, seen, workers=1, running=(50,)) == ()
    (first, second) = targets(101, seen, workers=3, running=(50,))
    assert first < 50 < second
    assert {first, second} == {25, 75}


def test_a_probe_beyond_the_window_cannot_matter_any_more():
    seen = {0: "before", 40: "before", 60: "after", 100: "after"}
    assert [at for at in (20, 40, 50, 60, 80) if matters(101, seen, at)] == [50]


def test_the_first_change_is_looked_for_and_a_later_return_is_told():
    seen = {0: "before", 20: "after", 50: "before", 100: "after"}
    assert window(101, seen) == (0, 20)
    assert contradictions(seen) == ((20, 50),)
    assert contradictions({0: "before", 5: Unknown(cause="x"), 9: "after"}) == ()
