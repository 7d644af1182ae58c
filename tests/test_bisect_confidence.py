"""Failures that come and go: the weighing alone, and whole bisections of histories."""

import random
from itertools import pairwise

import bisecting
import pytest
from bisecting import Bug, History
from hypothesis import given
from hypothesis import strategies as st
from test_bisect_driver import CHASED, Search

from harness.bisect.confidence import NoCulprit, Tally, decide, next_probe, posterior, probes
from harness.bisect.search import Answer
from harness.bisect.strategies import Weighing


def carry_out(rng, size, shows, *, asked=0.95, unknown=()):
    """`shows(position)` is the outcome of one run there; the answer and the number of runs."""
    tallies = {0: Tally(passed=1), size - 1: Tally(shown=1)}
    for runs in range(400):
        if found := decide(size, tallies, asked=asked):
            return found, runs + 2
        at = next_probe(size, tallies)
        shown = shows(at)
        before = tallies.get(at, Tally())
        if at in unknown:
            tallies[at] = Tally(unknown=True, cause="a bug")
        else:
            tallies[at] = Tally(shown=before.shown + shown, passed=before.passed + (not shown))
    raise AssertionError("it never ends")


def test_a_failure_settles_more_than_a_pass():
    """Of nine builds the middle one failed: all before it are out but for a false alarm. Had it passed, they stay."""
    failed = posterior(9, {0: Tally(passed=1), 8: Tally(shown=1), 4: Tally(shown=1)})
    passed = posterior(9, {0: Tally(passed=1), 8: Tally(shown=1), 4: Tally(passed=1)})
    assert sum(failed.culprit[4:]) < 0.01
    assert 0.1 < sum(passed.culprit[:4]) < 0.5


def test_the_rate_is_learnt_on_the_way():
    often = posterior(3, {0: Tally(passed=3), 2: Tally(shown=9, passed=1)})
    seldom = posterior(3, {0: Tally(passed=3), 2: Tally(shown=2, passed=8)})
    assert often.rate > 0.75
    assert seldom.rate < 0.4


@given(st.data())
def test_probabilities_are_probabilities(data):
    size = data.draw(st.integers(2, 30))
    counts = st.builds(Tally, shown=st.integers(0, 5), passed=st.integers(0, 5), unknown=st.booleans())
    tallies = data.draw(st.dictionaries(st.integers(0, size - 1), counts))
    found = posterior(size, tallies)
    assert len(found.culprit) == size - 1
    assert sum(found.culprit) + found.none == pytest.approx(1)
    assert all(0 <= share <= 1 for share in (*found.culprit, found.none, found.rate))
    assert next_probe(size, tallies) not in {at for at, tally in tallies.items() if tally.unknown}


@pytest.mark.parametrize("flake", [0.0, 0.05, 0.2, 0.5])
def test_the_culprit_is_found_as_often_as_was_asked(flake):
    """Of 60 histories each; at a flake rate of 20 % a bad build passes one run in five."""
    rng = random.Random(7)
    wrong = 0
    for _ in range(60):
        culprit = rng.randrange(1, 64)
        found, _ = carry_out(rng, 64, lambda at, c=culprit: at >= c and rng.random() >= flake)
        wrong += found != Answer(first=culprit, last=culprit)
    assert wrong <= 60 * 0.05


def test_no_culprit_at_all_is_an_answer():
    rng = random.Random(11)
    found = [carry_out(rng, 64, lambda _: rng.random() < 0.8)[0] for _ in range(40)]
    assert sum(isinstance(each, NoCulprit) for each in found) >= 39


def test_builds_that_cannot_be_judged_leave_an_answer_with_several_builds():
    """Never one inside the gap, whatever the luck; one beside it only as seldom as a wrong answer was allowed."""
    beside = 0
    for seed in range(60):
        rng = random.Random(seed)
        shows = lambda at, rng=rng: at >= 12 and rng.random() < 0.7  # noqa: E731
        found, _ = carry_out(rng, 32, shows, unknown=set(range(10, 20)))
        beside += (found.first, found.last) != (10, 20)
        assert (found.first, found.last) == (10, 20) or not 10 <= found.last <= 20
        assert set(found.untested) <= set(range(10, 20))
    assert beside <= 60 * 0.05


@pytest.mark.parametrize(("culprit", "answer"), [(200, (200, 200)), (110, (40, 160))])
def test_a_long_stretch_that_cannot_be_judged_is_not_probed_whole(culprit, answer):
    found, runs = carry_out(random.Random(17), 250, lambda at: at >= culprit, unknown=set(range(40, 160)))
    assert (found.first, found.last) == answer
    assert runs <= 45


def test_an_answer_ends_at_builds_that_were_judged():
    """The gap has 98 % of the probability, but nobody looked at build 1, which may well be the one."""
    gap = dict.fromkeys(range(2, 66), Tally(unknown=True, cause="a bug"))
    seen = {0: Tally(passed=9), **gap, 66: Tally(shown=9), 99: Tally(shown=1)}
    assert sum(posterior(100, seen).culprit[1:66]) > 0.97
    assert decide(100, seen, asked=0.95) is None
    assert next_probe(100, seen) == 1
    assert decide(100, {**seen, 1: Tally(passed=9)}, asked=0.95) == Answer(first=2, last=66)


def test_an_unknown_build_sends_the_next_probe_aside():
    ends = {0: Tally(passed=1), 200: Tally(shown=1)}
    middle = next_probe(201, ends)
    aside = next_probe(201, {**ends, middle: Tally(unknown=True, cause="a bug")})
    farther = next_probe(201, {**ends, **dict.fromkeys((middle - 9, middle), Tally(unknown=True, cause="a bug"))})
    assert 1 < abs(aside - middle) < min(abs(farther - middle), abs(farther - middle + 9))


def test_workers_split_the_range_and_do_not_crowd_in_the_middle():
    tallies = {0: Tally(passed=3), 99: Tally(shown=3)}
    four = sorted(Weighing(size=100, tallies=tallies, asked=0.95, fix=False).targets(workers=4, running=()))
    edges = [0, *four, 99]
    assert len(four) == 4
    assert min(right - left for left, right in pairwise(edges)) >= 8


def test_a_build_that_is_being_run_is_not_chosen_again():
    tallies = {0: Tally(passed=3), 3: Tally(shown=3)}
    assert {next_probe(4, tallies, busy=(0, 1, 3))} == {2}
    assert next_probe(4, tallies, busy=range(4)) is None


def test_untested_builds_are_named_from_their_own_end_of_a_repair():
    """Mirrored back: of ten builds 3 … 7 cannot be judged, and the repair came with one of 3 … 8."""
    unknown = dict.fromkeys((2, 3, 4, 5, 6), Tally(unknown=True, cause="a bug"))
    seen = {0: Tally(passed=9), 1: Tally(passed=9), **unknown, 7: Tally(shown=9), 9: Tally(shown=9)}
    found = Weighing(size=10, tallies=seen, asked=0.9, fix=True).answer()
    assert found == Answer(first=3, last=8)
    closed = dict.fromkeys((2, 3, 4, 6, 7, 9), Tally(unknown=True, cause="a bug"))
    seen = {0: Tally(passed=9), 1: Tally(passed=9), **closed, 10: Tally(shown=9), 11: Tally(shown=9)}
    found = Weighing(size=12, tallies=seen, asked=0.9, fix=True).answer()
    assert found == Answer(first=2, last=10, untested=(3, 6))


def test_the_forecast_grows_with_doubt():
    assert probes(2, rate=1.0, asked=0.5) == 2
    certain, often, seldom = (probes(128, rate=rate, asked=0.95) for rate in (1.0, 0.8, 0.5))
    assert certain < often < seldom
    assert probes(128, rate=0.8, asked=0.99) > often


# --- whole bisections


class Coin(Bug):
    """Strikes in some runs only."""

    def __init__(self, *args, seed=0, rate=0.7, **words):
        super().__init__(*args, **words)
        self.rng, self.rate = random.Random(seed), rate

    def strikes(self, at, under):
        return super().strikes(at, under) and self.rng.random() < self.rate


@pytest.fixture
def search(monkeypatch, tmp_path):
    def make(*args, **words):
        return Search(monkeypatch, tmp_path, *args, **words)

    return make


def test_a_flaky_failure_is_bisected_by_weight(search):
    history = History(32, [Coin(CHASED, 21, 31, seed=1)])
    told = search(history, confidence=0.95)()
    assert (told.ending, told.culprits) == ("found", ("release:0.21.0",))
    assert told.posterior["release:0.21.0"] >= 0.95
    assert "32 builds, 31 of them possible: " in told.predicted
    assert not [probe for probe in told.probes if probe.role == "again"]


def test_the_first_fixed_build_of_a_flaky_failure(search):
    history = History(32, [Coin(CHASED, 0, 11, seed=2)])
    told = search(history, fix=True, confidence=0.95)()
    assert (told.ending, told.culprits, told.before) == ("found", ("release:0.12.0",), "release:0.11.0")


def test_a_bad_end_that_passes_at_first_is_tried_again(search):
    history = History(8, [Bug(CHASED, 3, 7)], passes={7: [True, True, False]})
    told = search(history, confidence=0.9)()
    assert [probe.mark for probe in told.probes if probe.role == "bad end"] == ["GOOD", "GOOD", "BAD"]
    assert told.culprits == ("release:0.3.0",)


def test_a_bad_end_that_never_fails_is_none(search):
    history = History(8, [])
    told = search(history, confidence=0.9)()
    assert (told.ending, len(history.executed)) == ("not reproduced", 11)


def test_all_alike_is_told_as_no_culprit(search):
    told = search(History(16, [Coin(CHASED, 0, 15, seed=3, rate=0.8)]), confidence=0.95)()
    assert told.ending == "no culprit"
    assert "no build brought it" in told.sentence or "fails the same way" in told.sentence


def test_killed_it_goes_on_and_counts_each_run_once(search):
    whole = History(16, [Coin(CHASED, 9, 15, seed=4)])
    expected = search(whole, confidence=0.95)()
    bisecting_folder = History(16, [Coin(CHASED, 9, 15, seed=4)])
    made = search(bisecting_folder, confidence=0.95)
    made.folder = made.folder / "again"
    bisecting_folder.dies_at = 6
    with pytest.raises(KeyboardInterrupt):
        made()
    told = made()
    assert told.culprits == expected.culprits
    assert bisecting_folder.executed == whole.executed


def test_masked_builds_weigh_nothing(search):
    bugs = [Coin(CHASED, 12, 31, seed=6, phase="capture#2"), Bug("another", 10, 19)]
    told = search(History(32, bugs), confidence=0.9)()
    assert told.ending == "range"
    assert told.culprits == tuple(f"release:0.{at}.0" for at in range(10, 21))


def test_a_run_is_evidence_once_also_where_builds_have_the_same_content(search, monkeypatch):
    """Four neighbours are one program, as commits that change only tests: one pass must not count four times."""
    history = History(32, [Coin(CHASED, 20, 31, seed=6)])
    monkeypatch.setattr(bisecting, "content", lambda build: str(history.at(build) // 4))
    told = search(history, confidence=0.9)()
    counted = [run for probe in told.probes for run in probe.runs]
    assert len(counted) == len(set(counted)) == len(history.executed)
    assert told.culprits == ("release:0.20.0",)
