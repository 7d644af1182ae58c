"""The client against a server in this process: what is asked, what is made of the answers, how it fails."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Callable

import pytest
from answering import MODEL, Answering, Reply, Route, entry, logprobs, models, stream, tokenizer

from harness.client import prometheus
from harness.client.answers import BadAnswer, RequestTimedOut, ServerGone
from harness.client.server_client import ServerClient

COMPLETIONS = "POST /v1/completions"
ABORT_AFTER = 0.15


def client(answering: Answering, seconds: float = 5.0) -> ServerClient:
    return ServerClient(answering.url, MODEL, request_seconds=seconds)


def asked(route: Route, act: Callable[[ServerClient], object], call: str = COMPLETIONS, seconds: float = 5.0) -> object:
    with Answering({call: route}).serving() as answering:
        return act(client(answering, seconds))


def test_prompt_logprobs_are_those_of_the_tokens_asked_for() -> None:
    with Answering({COMPLETIONS: logprobs(lambda tokens, at: -tokens[at] / 10)}).serving() as answering:
        assert client(answering).prompt_logprobs([256, 65, 66]) == [None, -6.5, -6.6]
    assert answering.bodies("/v1/completions") == [
        {
            "model": MODEL,
            "prompt": [256, 65, 66],
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 0,
        }
    ]


def test_what_is_no_number_is_none_and_what_json_does_not_have_comes_through() -> None:
    entries = [
        None,
        None,
        entry(99, -1.0),
        {"3": {}},
        entry(4, "x"),
        entry(5, True),
        entry(6, -9999.0),
        entry(7, math.nan),
    ]
    answer = Reply({"choices": [{"prompt_logprobs": entries}]})
    got = asked(lambda _: answer, lambda c: c.prompt_logprobs([0, 1, 2, 3, 4, 5, 6, 7, 8]))
    assert isinstance(got, list)
    assert got[:7] == [None] * 6 + [-9999.0]
    assert math.isnan(got[7])
    assert got[8] is None


def test_requests_that_the_model_answers_are_numbered_and_questions_are_not() -> None:
    routes = {COMPLETIONS: lambda _: stream(2), "GET /v1/models": models(), "POST /tokenize": tokenizer()}
    with Answering(routes).serving() as answering:
        c = client(answering)
        c.models()
        assert c.tokenize("AB") == [65, 66]
        assert c.requests == 0
        c.stream_completion("x", max_tokens=2)
        c.stream_completion("x", max_tokens=2)
        assert c.requests == 2


def test_a_stream_has_text_count_and_the_time_of_its_first_chunk() -> None:
    got = asked(lambda _: stream(3, first=0.2, pause=0.05), lambda c: c.stream_completion("x", max_tokens=3))
    assert got.text == "<0><1><2>"
    assert got.tokens == 3
    assert 0.25 <= got.first_token_seconds < 0.45
    assert got.seconds >= got.first_token_seconds + 0.15


def test_complete_reads_text_tokens_and_usage() -> None:
    answer = {
        "choices": [{"text": "ab", "finish_reason": "length"}],
        "usage": {"completion_tokens": 2, "prompt_tokens": 9},
    }
    got = asked(lambda _: Reply(answer), lambda c: c.complete("x", max_tokens=2, seed=1))
    assert (got.text, got.tokens, got.usage["prompt_tokens"]) == ("ab", 2, 9)
    assert got.choice["finish_reason"] == "length"


def test_models_says_what_is_served() -> None:
    got = asked(models(root="/models/tiny", max_model_len=512), lambda c: c.models(), "GET /v1/models")
    assert (got.root, got.max_model_len) == ("/models/tiny", 512)


def test_another_model_on_the_port_is_noticed() -> None:
    with pytest.raises(BadAnswer, match=r"^GET /v1/models does not list tiny-lm-0badcafe, but other$"):
        asked(models(name="other"), lambda c: c.models(), "GET /v1/models")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"error": {"message": "Out of range float values"}}, "Out of range float values"),
        ({"object": "error", "message": "too long"}, "too long"),
        ({"detail": "Not Found"}, "Not Found"),
        (b"<html>\n oops </html>", "<html> oops </html>"),
        (b"", "no message"),
    ],
)  # fmt: skip
def test_an_http_error_is_a_sentence_and_keeps_its_body(body: object, sentence: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        asked(lambda _: Reply(body, status=400), lambda c: c.complete("x", max_tokens=1))
    assert str(caught.value) == f"POST /v1/completions answered HTTP 400: {sentence}"
    assert caught.value.status == 400
    assert caught.value.request == 1
    assert caught.value.body == Reply(body).raw.decode()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "is not a JSON object"),
        (b"[]", "is not a JSON object"),
        (b"\xff", "is not a JSON object"),
        ({}, "has no choices"),
        ({"choices": []}, "has no choices"),
        ({"choices": [{"text": "x"}]}, "has no prompt_logprobs"),
    ],
)
def test_a_200_that_is_no_answer(body: object, problem: str) -> None:
    with pytest.raises(BadAnswer, match=rf"^POST /v1/completions {problem}$"):
        asked(lambda _: Reply(body), lambda c: c.prompt_logprobs([1, 2]))


def test_a_redirect_is_not_followed() -> None:
    with pytest.raises(BadAnswer, match="answered HTTP 302"):
        asked(lambda _: Reply(b"elsewhere", status=302), lambda c: c.complete("x", max_tokens=1))


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (stream(0), "streamed no token"),
        (stream(2, done=False), "ended without its end mark"),
        (Reply(chunks=[b'data: {"error": {"message": "Engine died", "code": 500}}\n\n']), "broke off: Engine died"),
        (Reply(chunks=[b"data: {oops\n\n"]), "is not a JSON object"),
    ],
)  # fmt: skip
def test_a_stream_that_goes_wrong(reply: Reply, problem: str) -> None:
    with pytest.raises(BadAnswer, match=rf"^POST /v1/completions {problem}$"):
        asked(lambda _: reply, lambda c: c.stream_completion("x", max_tokens=2))


def test_events_split_anywhere_are_read_whole() -> None:
    whole = b"".join(stream(2).chunks)
    reply = Reply(chunks=[whole[at : at + 3] for at in range(0, len(whole), 3)])
    assert asked(lambda _: reply, lambda c: c.stream_completion("x", max_tokens=2).text) == "<0><1>"


@pytest.mark.parametrize(
    "reply",
    [
        Reply({"choices": [{"text": "x" * 1000}]}, cut=True),
        Reply(chunks=[b'data: {"choices": [{"text": "x"}]}\n\n'], cut=True),
    ],
)
def test_a_connection_that_is_cut_means_the_server_is_gone(reply: Reply) -> None:
    with pytest.raises(ServerGone, match="was cut by the server before the answer was complete"):
        asked(
            lambda _: reply,
            lambda c: c.stream_completion("x", max_tokens=2) if reply.chunks else c.complete("x", max_tokens=2),
        )


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ServerGone, match=r"^POST /v1/completions was refused: nobody listens$"):
            ServerClient(url, MODEL, request_seconds=5).complete("x", max_tokens=1)


@pytest.mark.parametrize(
    ("reply", "streamed"),
    [
        (Reply({}, before=5.0), False),  # silent: a read time-out would do
        (Reply(chunks=[b" "] * 100, pause=0.05), False),  # a byte now and then: it would not
        (stream(100, pause=0.05), True),
    ],
)
def test_the_budget_is_for_the_whole_request(reply: Reply, streamed: bool) -> None:  # noqa: FBT001 - a parameter
    begun = time.monotonic()
    with pytest.raises(RequestTimedOut, match=r"had no complete answer within 0\.4 s"):
        asked(
            lambda _: reply,
            lambda c: c.stream_completion("x", max_tokens=2) if streamed else c.complete("x", max_tokens=2),
            seconds=0.4,
        )
    assert 0.35 <= time.monotonic() - begun < 1.5


def test_abort_cuts_a_request_under_way_and_refuses_the_next() -> None:
    with Answering({COMPLETIONS: lambda _: Reply({}, before=5.0)}).serving() as answering:
        c = client(answering, 30.0)
        begun = time.monotonic()
        threading.Timer(ABORT_AFTER, c.abort).start()
        with pytest.raises(ServerGone, match="was cut: the server has ended"):
            c.complete("x", max_tokens=1)
        assert time.monotonic() - begun < 1.5
        with pytest.raises(ServerGone, match="was not sent: the server has ended"):
            c.complete("x", max_tokens=1)
        assert len(answering.seen) == 1


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert asked(lambda _: stream(1), lambda c: c.stream_completion("x", max_tokens=1).tokens) == 1


def test_no_thread_is_left_after_requests() -> None:
    before = threading.active_count()
    with Answering({COMPLETIONS: lambda _: stream(1)}).serving() as answering:
        for _ in range(5):
            client(answering, 60.0).stream_completion("x", max_tokens=1)
    time.sleep(0.1)
    assert threading.active_count() <= before + 1


METRICS = """# HELP vllm:prefix_cache_queries_total Prefix cache queries
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="a\\"b"} 128.0
vllm:prefix_cache_queries_total{engine="1",model_name="a\\"b"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 7
process_start_time_seconds 1.7e+09
broken line of another shape
vllm:odd NaN
"""


def test_metrics_are_read_by_name_and_label() -> None:
    got = asked(lambda _: Reply(METRICS.encode()), lambda c: c.metrics(), "GET /metrics")
    assert prometheus.total(got, "vllm:prefix_cache_queries_total") == 130.0
    assert prometheus.total(got, "vllm:prefix_cache_queries_total", engine="1") == 2.0
    assert prometheus.total(got, "vllm:prefix_cache_queries_total", model_name='a"b') == 130.0
    assert prometheus.total(got, "vllm:spec_decode_num_accepted_tokens_per_pos_total", position="2") == 7.0
    assert prometheus.total(got, "process_start_time_seconds") == 1.7e9
    assert prometheus.total(got, "absent") is None
    assert math.isnan(prometheus.total(got, "vllm:odd") or 0)
    assert len(got) == 4


def test_a_tokenizer_that_answers_no_list() -> None:
    for answer in ({}, {"tokens": "ab"}, {"tokens": [1, None]}):
        with pytest.raises(BadAnswer, match="has no list of tokens"):
            asked(
                lambda _, answer=answer: Reply(json.dumps(answer).encode()),
                lambda c: c.tokenize("ab"),
                "POST /tokenize",
            )


NAMED = {
    "tokens": ["token_id:7", "token_id:8"],
    "token_logprobs": [-0.5, -1],
    "top_logprobs": [{"token_id:7": -0.5, "token_id:9": -2.0}, {"token_id:8": -1}],
}


def generated(**given: object) -> Reply:
    return Reply({"choices": [{"text": "ab", "logprobs": {**NAMED, **given}}]})


def test_a_generated_answer_is_read_by_token() -> None:
    with Answering({COMPLETIONS: lambda _: generated()}).serving() as answering:
        got = client(answering).generate([1, 2], max_tokens=2, salt="s", top=3, ignore_eos=True)
        client(answering).generate("x", max_tokens=1)
    assert (got.tokens, got.logprobs, got.text) == ((7, 8), (-0.5, -1.0), "ab")
    assert got.top == ({7: -0.5, 9: -2.0}, {8: -1.0})
    assert (got.cached, got.seconds > 0) == (None, True)
    first, second = answering.bodies("/v1/completions")
    assert first == {
        "model": MODEL, "prompt": [1, 2], "max_tokens": 2, "temperature": 0.0, "logprobs": 3,
        "return_tokens_as_token_ids": True, "cache_salt": "s", "ignore_eos": True,
    }  # fmt: skip
    assert "cache_salt" not in second, "an empty one is refused"


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 256}}, 256),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({"prompt_tokens_details": None}, None),
        (None, None),
    ],
)
def test_cached_tokens_where_the_server_says(usage: object, cached: int | None) -> None:
    reply = Reply({"choices": [{"text": "ab", "logprobs": NAMED}], "usage": usage})
    assert asked(lambda _: reply, lambda c: c.generate("x", max_tokens=2).cached) == cached


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Reply({"choices": [{"text": "x"}]}), "has no logprobs"),
        (generated(tokens=["word"]), "has logprobs of another shape"),
        (generated(token_logprobs=[None, -1]), "has logprobs of another shape"),
        (generated(top_logprobs=None), "has logprobs of another shape"),
        (generated(token_logprobs=[-0.5]), "has not one log-probability for each token"),
    ],
)
def test_a_generated_answer_without_its_numbers(reply: Reply, problem: str) -> None:
    with pytest.raises(BadAnswer, match=rf"^POST /v1/completions {problem}"):
        asked(lambda _: reply, lambda c: c.generate("x", max_tokens=2))


def test_together_asks_at_once_and_keeps_the_order() -> None:
    meeting = threading.Barrier(4, timeout=5)

    def meet(number: int) -> int:
        meeting.wait()
        return number

    with Answering({}).serving() as answering:
        c = client(answering)
        assert c.together([lambda n=n: meet(n) for n in range(4)]) == [0, 1, 2, 3]  # type: ignore[misc]
        assert c.together([]) == []


def test_one_that_fails_together_does_not_end_the_others() -> None:
    done = []

    def fail() -> None:
        raise ServerGone("POST /x", "was cut", request=1)

    def late() -> None:
        time.sleep(0.1)
        done.append("late")

    with Answering({}).serving() as answering, pytest.raises(ServerGone, match="was cut"):
        client(answering).together([fail, late])
    assert done == ["late"]


@pytest.mark.parametrize("status", [200, 503])
def test_health_is_a_status(status: int) -> None:
    reply = Reply(b"", status=status)
    assert asked(lambda _: reply, lambda c: c.health("/health"), "GET /health") == status


def test_health_of_a_server_that_is_gone() -> None:
    with Answering({}).serving() as answering:
        c = client(answering)
    with pytest.raises(ServerGone):
        c.health("/health")


def test_asking_is_the_time_in_which_the_model_was_asked_overlaps_once() -> None:
    routes: dict[str, Route] = {
        COMPLETIONS: lambda _: Reply({"choices": [{"text": "x"}]}, before=0.2),
        "GET /metrics": lambda _: Reply(b"", before=0.2),
    }
    with Answering(routes).serving() as answering:
        c = client(answering)
        assert c.asking == 0
        c.metrics()
        assert c.asking == 0, "nobody asked the model"
        begun = time.monotonic()
        c.together([lambda: c.complete("x", max_tokens=1)] * 4)
        assert 0.2 <= c.asking <= time.monotonic() - begun, "four at once, and not four times as long"
        c.complete("x", max_tokens=1)
        assert c.asking >= 0.4
