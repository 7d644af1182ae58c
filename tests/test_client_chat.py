"""The client's chat: what is asked, how an answer and a stream are put together, how they fail."""

import json

import pytest
from answering import MODEL, Answering, Reply
from chatting import PATH, answer, events, stream

from harness.client.answers import BadAnswer, ServerGone, ToolCall
from harness.client.server_client import ServerClient

ASK = [{"role": "user", "content": "<&>"}]
PARTS = {
    "reasoning": "Hm, two of them.",
    "content": "Yes & <no>",
    "tool_calls": [{"name": "f", "arguments": '{"x": 1}'}, {"name": "g", "arguments": "{}"}],
    "tokens": [5, 6, 7],
}
CALLS = (ToolCall(name="f", arguments='{"x": 1}'), ToolCall(name="g", arguments="{}"))


def asked(reply, act):
    with Answering({f"POST {PATH}": lambda _: reply}).serving() as server:
        client = ServerClient(server.url, MODEL, request_seconds=5)
        return act(client), server.bodies(PATH)


def plain(client):
    return client.chat(ASK, max_tokens=9, seed=1)


def streamed(client):
    return client.stream_chat(ASK, max_tokens=9, seed=1)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize(("act", "shape"), [(plain, answer), (streamed, lambda p, **k: stream(events(p, **k)))])
def test_both_ways_have_the_same_parts(act, shape, name):
    got, _ = asked(shape(PARTS, name=name, prompt="hi"), act)
    assert (got.content, got.reasoning, got.tool_calls) == (PARTS["content"], PARTS["reasoning"], CALLS)
    assert (got.finish_reason, got.usage["completion_tokens"], got.request) == ("tool_calls", 7, 1)
    assert (got.prompt, got.tokens) == ((104, 105), (5, 6, 7))
    assert got.seconds > 0


def test_what_is_asked():
    _, bodies = asked(answer(PARTS), plain)
    wanted = {"model": MODEL, "messages": ASK, "max_tokens": 9, "temperature": 0.0, "seed": 1}
    assert bodies == [wanted]
    _, bodies = asked(stream(events(PARTS)), streamed)
    assert bodies == [{**wanted, "stream": True, "stream_options": {"include_usage": True}}]


def test_missing_parts_are_empty():
    got, _ = asked(answer({"content": None}), plain)
    assert (got.content, got.reasoning, got.tool_calls, got.prompt, got.tokens) == ("", "", (), None, None)
    got, _ = asked(answer({"content": "x", "finish_reason": None}), plain)
    assert got.finish_reason is None


def test_chats_are_numbered_with_the_other_requests():
    routes = {f"POST {PATH}": lambda _: answer(PARTS), "POST /detokenize": lambda _: Reply({"prompt": "AB"})}
    with Answering(routes).serving() as server:
        client = ServerClient(server.url, MODEL, request_seconds=5)
        assert [plain(client).request, plain(client).request] == [1, 2]
        assert client.detokenize([65, 66]) == "AB"
        assert client.requests == 2
        assert server.bodies("/detokenize") == [{"model": MODEL, "tokens": [65, 66]}]


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"content": 3}, r"has a message of another shape \(TypeError\('content is no text'\)\)"),
        ({"content": "", "tool_calls": [{"id": "x"}]}, r"has a message of another shape \(KeyError\('function'\)\)"),
        ({"content": "", "tool_calls": [{"function": {"arguments": {}}}]}, "arguments is no text"),
        ({"content": "", "tool_calls": ["f"]}, "has a message of another shape"),
        (None, "has a message of another shape"),
    ],
)
def test_another_shape_is_a_bad_answer(message, sentence):
    with pytest.raises(BadAnswer, match=sentence) as caught:
        asked(Reply({"choices": [{"message": message}]}), plain)
    assert caught.value.request == 1


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (stream([{"choices": []}]), "streamed no token"),
        (stream(events(PARTS), done=False), "ended without its end mark"),
        (stream([{"error": {"message": "boom"}}]), "broke off: boom"),
        (stream([{"choices": [{"delta": {"tool_calls": [{"index": "a"}]}}]}]), "has a delta of another shape"),
        (Reply({"error": {"message": "no template"}}, status=400), "answered HTTP 400: no template"),
    ],
)
def test_a_stream_that_fails(reply, sentence):
    with pytest.raises(BadAnswer, match=f"POST {PATH} {sentence}"):
        asked(reply, streamed)


def test_a_cut_answer_is_a_server_that_went_away():
    with pytest.raises(ServerGone):
        asked(Reply(json.dumps({"choices": []}).encode(), cut=True), plain)


def test_detokenize_without_a_text():
    with Answering({"POST /detokenize": lambda _: Reply({"tokens": []})}).serving() as server:
        client = ServerClient(server.url, MODEL, request_seconds=5)
        with pytest.raises(BadAnswer, match="POST /detokenize has no text"):
            client.detokenize([1])
