"""Prompts in the server's log: every form in which they are written, and what is no proof."""

import pytest
from answering import MODEL, Answering, Reply, context, stream, tokenizer

from harness import triage
from harness.checks import CHECKS
from harness.checks.log_hygiene import PIECE_BYTES, LogHygieneParams, judge, search
from harness.client.answers import BadAnswer
from harness.client.server_client import ServerClient

CANARY = "qjxwzkvqjxwzkvqjxwzkvqjx"
TOKENS = list(CANARY.encode())
ONCE = {"choices": [{"text": "x"}], "usage": {}}


def run(log, writes, *, refuse=400, ready=b"(APIServer) INFO ready\n"):
    """`writes(body)`: what the server logs of a request."""
    log.write_bytes(ready)

    def answer(body):
        with log.open("ab") as file:
            file.write(writes(body).encode())
        if body.get("top_p") == -1.0 and refuse != 200:
            return Reply({"error": "top_p"}, status=refuse)
        return stream(body["max_tokens"]) if body.get("stream") else Reply(ONCE)

    routes = {"POST /v1/completions": answer, "POST /tokenize": tokenizer()}
    with Answering(routes).serving() as server:
        client = ServerClient(server.url, MODEL, request_seconds=5)
        return CHECKS["log_hygiene"].run(context(client, LogHygieneParams(), log=log)), server.bodies("/completions")


def test_a_log_that_names_no_prompt(tmp_path):
    result, bodies = run(tmp_path / "server.log", lambda _: 'INFO "POST /v1/completions HTTP/1.1" 200 OK\n')
    assert result.outcome == "pass"
    assert result.message.startswith("the text of 3 requests is nowhere in ")
    assert len({body["prompt"] for body in bodies}) == 1
    assert [bool(body.get("stream")) for body in bodies].count(True) == 1
    assert sum("top_p" in body for body in bodies) == 1


@pytest.mark.parametrize(
    ("writes", "form"),
    [
        (lambda body: f"INFO Received request: prompt: {body['prompt']!r}\n", "text"),
        (lambda body: f"INFO ids: {list(body['prompt'].encode())}\n", "token ids"),
        (lambda body: f"GET /x?prompt=%20{body['prompt']}\n", "text"),
        (lambda body: f"ERROR bad top_p in {body}\n" if "top_p" in body else "INFO fine\n", "text"),
    ],
)
def test_a_prompt_in_the_log(tmp_path, writes, form):
    result, _ = run(tmp_path / "server.log", writes)
    assert result.outcome == "fail"
    assert result.message.startswith("the text of a request stands in the server's log, in ")
    assert {each["form"] for each in result.detail["found"]} == {form}
    assert result.detail["found"][0]["line"] >= 2
    assert result.request == 1


def test_an_error_that_repeats_the_prompt_has_one_identity(tmp_path):
    ids = set()
    for _ in range(2):
        routes = {
            "POST /v1/completions": lambda body: Reply({"error": f"cannot take {body['prompt']!r}"}, status=500),
            "POST /tokenize": tokenizer(),
        }
        with Answering(routes).serving() as server:
            asked = context(
                ServerClient(server.url, MODEL, request_seconds=5), LogHygieneParams(), log=tmp_path / "server.log"
            )
            with pytest.raises(BadAnswer) as caught:
                CHECKS["log_hygiene"].run(asked)
        ids.add(triage.check_failed("log_hygiene", str(caught.value)).id)
    assert len(ids) == 1


def test_an_empty_log_proves_nothing(tmp_path):
    result, _ = run(tmp_path / "server.log", lambda _: "", ready=b"")
    assert result.outcome == "not_tested"


def test_a_request_that_is_taken_after_all_is_said_so(tmp_path):
    result, _ = run(tmp_path / "server.log", lambda _: "INFO x\n", refuse=200)
    assert (result.outcome, result.message[:26]) == ("pass", "the text of 2 requests is ")
    assert {m.name: m.value for m in result.measurements}["refused"] == 0


def test_a_server_that_crashes_in_the_request_to_be_refused_is_raised(tmp_path):
    with pytest.raises(BadAnswer):
        run(tmp_path / "server.log", lambda _: "INFO x\n", refuse=500)


def test_line_numbers_and_lines_longer_than_a_piece(tmp_path):
    log = tmp_path / "server.log"
    across = b"x" * (PIECE_BYTES - 10) + CANARY.encode() + b"y" * 100
    log.write_bytes(b"one\ntwo\n" + across + b"\nfour " + CANARY.encode() + b"\n")
    found = list(search(log, CANARY, TOKENS))
    assert [each.number for each in found] == [3, 4]
    log.write_bytes(b"x" * (PIECE_BYTES - 100) + CANARY.encode() + b"y" * 200 + b"\n")
    assert [each.number for each in search(log, CANARY, TOKENS)] == [1], "once, though both pieces have it"


def test_few_tokens_in_a_row_are_no_proof(tmp_path):
    log = tmp_path / "server.log"
    log.write_bytes(b"shape: 12, 45, 77\n")
    assert list(search(log, CANARY, [12, 45, 77])) == []
    assert len(list(search(log, CANARY, TOKENS))) == 0
    log.write_bytes(f"ids: {', '.join(map(str, TOKENS))}\n".encode())
    assert [each.form for each in search(log, CANARY, TOKENS)] == ["token ids"]


def test_the_sentence_has_nothing_but_numbers_that_move(tmp_path):
    log = tmp_path / "server.log"
    log.write_bytes(CANARY.encode() + b"\n")
    found = list(search(log, CANARY, TOKENS))
    assert CANARY not in judge(found, read=25, grown=25, refused=True, number=1).message
