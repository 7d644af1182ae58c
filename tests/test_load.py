"""The load check: what is asked at once, and what is made of answers that fail."""

import re
import threading

import pytest
from answering import MODEL, Answering, Reply, context, models, stream, tokenizer

from harness.checks import CHECKS
from harness.checks.load import LoadParams, Record, judge, lengths, most_at_once, percentile
from harness.client.answers import BadAnswer, Completion, ServerGone
from harness.client.server_client import ServerClient
from harness.errors import ScenarioError

ASK = "POST /v1/completions"


def routes(answer=lambda body: stream(body["max_tokens"]), *, health=200, room=512):
    return {
        "GET /v1/models": models(max_model_len=room),
        "POST /tokenize": tokenizer(),
        ASK: answer,
        "GET /health": lambda _: Reply(status=health),
    }


def run(given, **params):
    with Answering(given).serving() as server:
        client = ServerClient(server.url, MODEL, request_seconds=5)
        asked = LoadParams(**{"duration": "300ms", "max_tokens": 2, **params})
        return CHECKS["load"].run(context(client, asked)), server.bodies("/v1/completions")


def values(result):
    return {measured.name: measured.value for measured in result.measurements}


def test_so_many_are_under_way_at_once_and_all_lengths_are_asked():
    gate = threading.Barrier(4, timeout=5)

    def answer(body):
        gate.wait()  # four at once, or nobody is answered
        return stream(body["max_tokens"])

    result, bodies = run(routes(answer, room=102), concurrency=4, max_requests=8)
    assert result.outcome == "pass", result.message
    assert {len(body["prompt"]) for body in bodies} == {8, 16, 32, 64, 100}
    assert len({body["cache_salt"] for body in bodies}) == 8, "none is answered from the prefix cache"
    assert values(result)["requests"] == 8
    assert values(result)["longest_prompt"] == 100
    assert re.match(r"8 requests, 4 at once, all answered, [1-4] generating at once, p99 ", result.message)


def test_every_client_asks_at_least_once_however_short_the_time():
    result, bodies = run(routes(), concurrency=6, duration="1ms")
    assert (result.outcome, len(bodies)) == ("pass", 6)


def test_refused_requests_of_a_living_server_are_counted():
    lock, seen = threading.Lock(), []

    def answer(body):
        with lock:
            seen.append(1)
            bad = len(seen) % 4 == 0
        return Reply({"error": "boom"}, status=500) if bad else stream(body["max_tokens"])

    result, _ = run(routes(answer), max_requests=16, concurrency=4, duration="5s")
    assert result.outcome == "fail"
    assert result.message == "4 of 16 requests were not answered: HTTP 500 4 times"
    assert values(result)["not_answered"] == 4
    assert result.request in range(1, 17)
    assert "boom" in result.detail["failures"][0]


@pytest.mark.parametrize("status", [500, 503])
def test_what_a_server_dies_of_is_raised_as_it_came(status):
    """Whoever catches it looks into the log for the cause."""
    with pytest.raises(BadAnswer) as caught:
        run(routes(lambda _: Reply(status=status), health=503))
    assert (caught.value.status, caught.value.request is not None) == (status, True)


def test_after_a_request_without_an_answer_no_other_is_begun():
    counted = []

    def answer(_):
        counted.append(1)
        return Reply(chunks=[b'data: {"choices": [{"text": "x"}]}\n\n'], cut=True)

    with pytest.raises((ServerGone, BadAnswer)):
        run(routes(answer), concurrency=2, duration="5s", max_requests=1000)
    assert len(counted) <= 4


def test_a_server_that_is_not_healthy_afterwards_fails():
    result, _ = run(routes(health=503))
    assert (result.outcome, result.message) == (
        "fail", "every request was answered, but then the server was not healthy",
    )  # fmt: skip


def test_answers_that_end_early_fail():
    result, _ = run(routes(lambda _: stream(1)), max_requests=4, concurrency=2)
    assert result.message == "4 of 4 answers did not have the 2 tokens asked for"


def test_no_room_for_a_prompt_is_the_scenarios_mistake():
    with pytest.raises(ScenarioError, match="leave no room for a prompt in a context of 16"):
        run(routes(room=16), max_tokens=16)


def test_limits():
    answer = {"text": "", "tokens": 64, "choice": {}, "usage": {}}
    record = Record(
        answers=[Completion(seconds=s, first_token_seconds=s / 2, **answer) for s in (0.5, 2.0)], begun=2, seconds=2.0
    )
    assert judge(LoadParams(), record, health=200).outcome == "pass"
    assert judge(LoadParams(max_p99="2s", max_first_token_p99="1s"), record, health=200).outcome == "pass"
    slow = judge(LoadParams(max_p99="1s"), record, health=200)
    assert slow.message == "the 99th percentile of whole requests is above its limit (2.0 s, 1.0 s)"
    late = judge(LoadParams(max_first_token_p99="500ms"), record, health=200)
    assert late.message.startswith("the 99th percentile of the time to the first token is above its limit")
    assert values(late)["throughput"] == 64.0


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (1, 2), (2, 3)], 1),
        ([(0, 3), (1, 2), (1.5, 4)], 3),
        ([(5, 6), (0, 10), (1, 2), (5.5, 7)], 3),
    ],
)
def test_how_many_are_generated_at_once(spans, expected):
    """Clients that wait at once are no load for an engine that is handed one request after the other."""
    assert most_at_once(spans) == expected
    answer = Completion(text="", tokens=64, seconds=1.0, choice={}, usage={})
    record = Record(answers=[answer], spans=spans, begun=1, seconds=1.0)
    assert values(judge(LoadParams(), record, health=200))["generating_at_once"] == expected


@pytest.mark.parametrize(("percent", "value"), [(50, 5), (90, 9), (99, 10), (100, 10), (1, 1)])
def test_percentiles_are_nearest_rank(percent, value):
    assert percentile(range(10, 0, -1), percent) == value
    assert percentile([], percent) is None


@pytest.mark.parametrize(("room", "expected"), [(100, {8, 16, 32, 64, 100}), (8, {8}), (3, {3}), (16, {8, 16})])
def test_lengths(room, expected):
    assert set(lengths(room)) == expected
    assert len(lengths(room)) == len(expected)
    assert lengths(room)[0] == room, "the longest first"
