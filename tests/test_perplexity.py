"""The perplexity check against a scripted server: exact numbers, and which limit trips on which damage."""

import hashlib
import json
import math

import pytest
from answering import MODEL, Answering, Reply, context, logprobs, models, tokenizer

from harness.checks import CHECKS, CORPORA
from harness.checks.judgement import PerplexityParams
from harness.client.server_client import ServerClient
from harness.errors import ScenarioError

TEXT = "In the beginning" * 4
BOS = 256
SIZE = 17
"""Tokens of a window with its prefix: 64 bytes make four windows of 16."""


@pytest.fixture
def corpus(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return file


def healthy(tokens, index):
    """Any fixed function of the place will do for the truth."""
    return -1.0 - (tokens[index] % 7) / 10


def make_reference(file, value_of=healthy, **changes):
    tokens = list(TEXT.encode())
    windows = []
    for start in range(0, len(tokens), SIZE - 1):
        window = [BOS, *tokens[start : start + SIZE - 1]]
        windows.append({"tokens": window, "logprobs": [None, *(value_of(window, i) for i in range(1, len(window)))]})
    sha = hashlib.sha256(file.read_bytes()).hexdigest()
    made = {
        "schema": 1, "weights": {}, "corpus": {"name": "text", "sha256": sha, "bytes": len(TEXT)}, "dtype": "float32",
        "made_with": {"torch": "2"}, "prefix": [BOS], "windows": windows, **changes,
    }  # fmt: skip
    reference = file.with_name("reference.json")
    reference.write_text(json.dumps(made))
    return str(reference)


def check(corpus, *, answer=healthy, max_model_len=512, cut=list, route=None, **params):
    given = PerplexityParams(corpus=str(corpus), **params)
    routes = {
        "GET /v1/models": models(max_model_len=max_model_len),
        "POST /tokenize": tokenizer(bos=BOS, change=cut),
        "POST /v1/completions": route or logprobs(answer),
    }
    with Answering(routes).serving() as server:
        client = ServerClient(server.url, MODEL, request_seconds=5)
        result = CHECKS["perplexity"].run(context(client, given))
        asked = [body["prompt"] for body in server.bodies("/v1/completions")]
    return result, {m.name: m.value for m in result.measurements}, asked


def tripped(result):
    return [m.name for m in result.measurements if not m.ok]


@pytest.mark.parametrize(
    ("window", "longest", "fix"),
    [
        (None, 2, "raise `max-model-len` in `serve` to 3 or more"),
        (None, 1, "raise `max-model-len` in `serve` to 3 or more"),
        (40, 2, "raise `max-model-len` in `serve` to 3 or more"),
    ],
)
def test_a_model_that_takes_too_little_to_score_anything(corpus, window, longest, fix):
    with pytest.raises(ScenarioError, match=r"check perplexity: windows of . tokens are too short") as caught:
        check(corpus, max_model_len=longest, window=window)
    assert caught.value.fix == fix
    assert check(corpus, max_model_len=3, window=window)[0].outcome == "pass"


def test_a_window_that_the_tokenizers_own_tokens_fill(corpus):
    def two_before(body):
        return Reply({"tokens": [BOS, BOS][: 2 * body["add_special_tokens"]] + list(body["prompt"].encode())})

    routes = {"GET /v1/models": models(), "POST /tokenize": two_before, "POST /v1/completions": logprobs(healthy)}
    with Answering(routes).serving() as server:
        asked = context(
            ServerClient(server.url, MODEL, request_seconds=5), PerplexityParams(corpus=str(corpus), window=2)
        )
        with pytest.raises(
            ScenarioError, match="windows of 2 tokens are too short to score a text, which begins with 2"
        ):
            CHECKS["perplexity"].run(asked)


def test_healthy_with_a_reference(corpus):
    result, got, asked = check(corpus, reference=make_reference(corpus))
    nats = [1.0 + (byte % 7) / 10 for byte in TEXT.encode()]
    assert result.outcome == "pass"
    assert got["tokens"] == 64
    assert got["nats_per_token"] == pytest.approx(sum(nats) / 64, abs=1e-6)
    assert got["perplexity"] == pytest.approx(math.exp(sum(nats) / 64), abs=1e-6)
    assert got["bits_per_byte"] == pytest.approx(sum(nats) / 64 / math.log(2), abs=1e-6)
    assert (got["max_token_difference"], got["mean_token_difference"], got["log_ratio"]) == (0, 0, 0)
    assert len(asked) == 1 + 4, "one that compiles, then the reference's windows"
    assert asked[1] == [BOS, *TEXT.encode()[:16]]


def test_one_token_far_off_is_seen_where_perplexity_sees_nothing(corpus):
    """What a lost block of the KV cache or a shifted position looks like: a factor of 1.01 on the whole."""

    def one_off(tokens, index):
        return healthy(tokens, index) - (0.6 if tokens[1:3] == list(b"In") and index == 5 else 0)

    result, got, _ = check(corpus, reference=make_reference(corpus), answer=one_off, max=5, max_mean_difference=0.05,
                           max_log_ratio=0.05)  # fmt: skip
    assert result.outcome == "fail"
    assert tripped(result) == ["max_token_difference"]
    assert got["max_token_difference"] == pytest.approx(0.6)
    assert "largest 0.6 (limit 0.5)" in result.message
    assert "most at token 5 of window 1" in result.message
    assert (result.detail["window"], result.detail["token"]) == (1, 5)


def test_a_little_everywhere_trips_the_mean_and_not_the_ratio(corpus):
    def noisy(tokens, index):
        return healthy(tokens, index) + (0.03 if index % 2 else -0.03)

    result, got, _ = check(corpus, reference=make_reference(corpus), answer=noisy)
    assert tripped(result) == ["mean_token_difference"]
    assert got["log_ratio"] == pytest.approx(0, abs=1e-6)
    assert got["mean_token_difference"] == pytest.approx(0.03)


def test_a_drift_trips_the_ratio_alone(corpus):
    result, got, _ = check(corpus, reference=make_reference(corpus), answer=lambda t, i: healthy(t, i) - 0.01)
    assert tripped(result) == ["log_ratio"]
    assert got["log_ratio"] == pytest.approx(0.01)


def test_a_limit_alone(corpus):
    fine, _, _ = check(corpus, max=5)
    assert (fine.outcome, fine.message) == ("pass", "perplexity 3.882 over 64 tokens")
    bad, _, _ = check(corpus, max=3)
    assert (bad.outcome, bad.message) == ("fail", "perplexity 3.882 is above the limit of 3")


def test_finite_is_enough_where_nothing_is_known(corpus):
    result, got, _ = check(corpus, answer=lambda _t, _i: -6.93)
    assert result.outcome == "pass"
    assert got["perplexity"] == pytest.approx(math.exp(6.93), rel=1e-6)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [(float("nan"), "1 NaN"), (-9999.0, "1 minus infinity"), (None, "1 missing"), (0.5, "1 above zero")],
)
def test_values_that_are_no_log_probabilities_are_the_models_failure(corpus, wrong, word):
    result, _, _ = check(corpus, answer=lambda t, i: wrong if i == 9 and t[1:3] == list(b"In") else healthy(t, i))
    assert result.outcome == "fail"
    assert result.message == f"the model's log-probabilities are no numbers: {word}, first at token 9 of window 1"
    assert result.request == 2


def test_the_400_of_a_server_that_cannot_write_nan_is_the_models_failure(corpus):
    body = {"error": {"message": "Out of range float values are not JSON compliant: nan", "code": 400}}
    result, _, _ = check(corpus, route=lambda _: Reply(body, status=400))
    assert result.outcome == "fail"
    assert result.message.startswith("the model's log-probabilities are NaN or infinite")
    assert result.request == 1


def test_a_corpus_longer_than_the_context_goes_in_windows(corpus):
    result, got, asked = check(corpus, max_model_len=33)
    assert result.outcome == "pass"
    assert [len(window) for window in asked[1:]] == [32, 32, 3], "31 of the corpus, the prefix, room for one answer"
    assert all(window[0] == BOS for window in asked)
    assert got["tokens"] == 64


def test_other_tokens_than_the_reference(corpus):
    def damaged(tokens):
        return [*tokens[:10], 7, *tokens[11:]]

    result, _, asked = check(corpus, reference=make_reference(corpus), cut=damaged)
    assert result.outcome == "fail"
    assert result.message.startswith(
        "the server cuts the corpus into other tokens than the reference: 64 in place of 64"
    )
    assert result.message.endswith("first different at token 10")
    assert asked == []


def test_a_reference_that_does_not_fit_is_the_scenarios_fault(corpus, tmp_path):
    reference = make_reference(corpus)
    with pytest.raises(ScenarioError, match="has windows of 17 tokens, the server takes 15 and an answer"):
        check(corpus, reference=reference, max_model_len=16)
    other = make_reference(corpus, corpus={"name": "psalms", "sha256": "0" * 64, "bytes": 3})
    with pytest.raises(ScenarioError, match="was made for another corpus, psalms"):
        check(corpus, reference=other)
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"other")
    stale = make_reference(corpus, weights={"model.safetensors": "0" * 64})
    with pytest.raises(ScenarioError, match="was made for other weights than"):
        CHECKS["perplexity"].prepare(
            PerplexityParams(corpus=str(corpus), reference=stale), model=str(model), corpora=CORPORA
        )


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"schema": 2}', '{"schema": 1, "windows": []}'])
def test_a_broken_reference_names_its_file(corpus, tmp_path, text):
    file = tmp_path / "broken.json"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=r"broken\.json is not") as caught:
        check(corpus, reference=str(file))
    assert caught.value.fix.startswith("make it again")


def test_an_unknown_corpus_names_those_there_are(tmp_path):
    with pytest.raises(ScenarioError, match="there is no corpus smoke_xx") as caught:
        check("smoke_xx")
    assert "smoke_en" in caught.value.fix


@pytest.mark.parametrize(
    "params", [{"max_token_difference": 0.5}, {"reference": "r.json", "window": 64}, {"max": 0.5}, {"mx": 3}]
)
def test_parameters_that_mean_nothing_are_refused(params):
    with pytest.raises(ValueError, match=r"needs a `reference`|has no effect|greater than|Extra inputs"):
        PerplexityParams(**params)


def test_the_shipped_reference_belongs_to_the_shipped_model():
    folder = CORPORA.parents[1] / "scenarios" / "models" / "tiny_lm"
    params = PerplexityParams(reference=str(folder / "reference.json"))
    CHECKS["perplexity"].prepare(params, model=str(folder), corpora=CORPORA)
    stored = json.loads((folder / "reference.json").read_text())
    scored = [p for window in stored["windows"] for p in window["logprobs"] if p is not None]
    assert len(scored) == 3883
    assert math.exp(-sum(scored) / len(scored)) == pytest.approx(3.1328, abs=1e-4)
    assert sum(file.stat().st_size for file in folder.iterdir() if file.suffix != ".xz") < 1.5e6
