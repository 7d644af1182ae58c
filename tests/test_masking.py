import json

import pytest

from harness import masking
from harness.masking import Masker


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "api-key",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "credentials",
        "NGC_APIKEY",
        "key",
    ],
)
def test_names_that_say_secret(name: str) -> None:
    assert masking.NAME.search(name)


@pytest.mark.parametrize(
    "name", ["tokenizer", "max-num-batched-tokens", "num_speculative_tokens", "MONKEY", "KEYBOARD", "HF_HOME"]
)
def test_names_that_only_look_like_it(name: str) -> None:
    assert not masking.NAME.search(name)


def test_values_come_from_names_and_short_ones_are_left() -> None:
    assert masking.secret_values({"HF_TOKEN": "hf_canary_123", "NUM_KEY": "4", "PATH": "/bin"}) == ("hf_canary_123",)


def test_secrets_are_found_at_any_depth_of_the_flags() -> None:
    serve = {"a": [{"api-key": "abcdefgh"}], "x": {"y": {"hf-token": "ijklmnop"}}, "tokenizer": "qrstuvwx"}
    assert masking.secrets_under(serve) == ("abcdefgh", "ijklmnop")


def test_redact_blots_out_short_values_but_not_switches() -> None:
    assert masking.redact({"api-key": "x", "key": True, "tokenizer": "t", "list": {"token": ["a", "b"]}}) == {
        "api-key": "***", "key": True, "tokenizer": "t", "list": {"token": ["***", "***"]},
    }  # fmt: skip


def test_every_spelling_of_a_secret_is_masked() -> None:
    secret = 'pa"ss\\wörd/1'
    masker = Masker([secret])
    for spelling in (secret, json.dumps(secret), repr(secret), "pa%22ss%5Cw%C3%B6rd%2F1"):
        masked = masker.text(f"<{spelling}>")
        assert "***" in masked
        assert "ss" not in masked.replace("***", "")


def test_a_secret_inside_a_longer_one_does_not_break_it_up() -> None:
    assert Masker(["secret", "secret-and-more"]).text("a secret-and-more b secret c") == "a *** b *** c"


def test_each_line_of_a_secret_of_many_lines_is_masked() -> None:
    assert Masker(["-----BEGIN-----\nMIIEpAIBAAKC\n"]).raw(b"x MIIEpAIBAAKC y") == b"x *** y"


def test_the_user_part_of_a_url_is_masked_and_an_address_is_not() -> None:
    masker = Masker()
    assert masker.text("https://me:pass@host/x and joe@example.org") == "https://***@host/x and joe@example.org"
    assert masker.raw(b"index http://u:p@host/simple") == b"index http://***@host/simple"


def test_structures_are_masked_through_and_through() -> None:
    assert Masker(["canary-1"]).structure({"canary-1": ["x canary-1", 3, None, {"k": ("canary-1",)}]}) == {
        "***": ["x ***", 3, None, {"k": ["***"]}]
    }


def test_no_secret_no_change() -> None:
    assert Masker(["", "zzzzzz"]).text("nothing here") == "nothing here"
