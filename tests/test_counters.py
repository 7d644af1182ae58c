"""Counters of the server around requests: waited for, never taken for 0."""

from functools import partial

import pytest
from table_model import TableModel

from harness.checks import counters, greedy
from harness.checks.counters import Growth, NotCounted, Snapshot
from harness.client import prometheus
from harness.runtimes.vllm_facts import COUNTERS

HITS = COUNTERS.prefix_hits


def ask(context, times=1):
    for _ in range(times):
        greedy.question(context.client, tuple(range(20)), tokens=2, salt="a")()


@pytest.mark.parametrize("lag", [0, 1, 5])
def test_answers_are_waited_for(lag):
    with TableModel(lag=lag).asked(None) as context:
        before = counters.snapshot(context)
        ask(context, times=2)
        grown = counters.settled(context, before)
    assert grown.of(COUNTERS.answered) == 2
    assert grown.of(HITS) == 16


def test_earlier_answers_are_waited_for_before():
    with TableModel(lag=3).asked(None) as context:
        ask(context, times=2)
        before = counters.snapshot(context)
        assert (before.answered, before.requests) == (2, 2)
        assert counters.settled(context, before).of(HITS) == 0


def test_a_request_that_never_was_counted_does_not_hold_up_the_next_check(monkeypatch):
    monkeypatch.setattr(counters, "EARLIER_SECONDS", 0.1)
    with TableModel().asked(None) as context:
        context.client.requests = 5
        before = counters.snapshot(context)
        ask(context)
        assert counters.settled(context, before).of(COUNTERS.answered) == 1


def test_answers_that_are_not_counted_are_said():
    with TableModel(lag=10**9).asked(None) as context:
        before = counters.snapshot(context)
        ask(context, times=2)
        with pytest.raises(NotCounted, match=r"^the server counted 0 of 2 answers within 0\.1 s$"):
            counters.settled(context, before, seconds=0.1)


def test_a_counter_that_does_not_exist_is_not_0():
    with TableModel(missing=HITS).asked(None) as context:
        grown = counters.settled(context, counters.snapshot(context))
        with pytest.raises(NotCounted, match=f"^the server has no counter {HITS}$"):
            grown.of(HITS)
    with (
        TableModel(missing=COUNTERS.answered).asked(None) as context,
        pytest.raises(NotCounted, match=COUNTERS.answered),
    ):
        counters.snapshot(context)


def test_growth_by_label_over_engines():
    snapshot = partial(Snapshot, answered=0, requests=0)
    before = snapshot(metrics=prometheus.parse('pos{engine="0",position="0"} 3\n'))
    after = snapshot(
        metrics=prometheus.parse(
            'pos{engine="0",position="0"} 5\npos{engine="1",position="0"} 1\npos{engine="0",position="7"} 2\nborn 4\n'
        )
    )
    grown = Growth(before=before, after=after)
    assert grown.by("pos", "position") == {"0": 3.0, "7": 2.0}
    assert grown.by("absent", "position") == {}
    assert grown.of("born") == 4, "one that was born in between began at 0"
