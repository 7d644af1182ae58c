"""The command line of vLLM, and the tables that read its log."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from harness.runtimes import RUNTIMES
from harness.runtimes.base import ChoiceRule, MarkRule, SubjectRule, WatchRule

VLLM = RUNTIMES["vllm"]
LOGS = sorted((Path(__file__).parent / "logs" / "vllm").glob("*.log"))


def argv(serve: dict[str, Any], **changed: Any) -> tuple[str, ...]:
    given = {
        "command": ("/env/bin/vllm",), "model": "some/model", "revision": None, "serve": serve,
        "host": "127.0.0.1", "port": 8123, "served_model_name": "tiny-1234",
    } | changed  # fmt: skip
    return VLLM.argv(**given)


def flags(serve: dict[str, Any]) -> list[str]:
    """What `serve` adds to the command line."""
    return list(argv(serve)[3:-6])


def test_whole_command() -> None:
    assert argv({"max-model-len": 512}, revision="abc123") == (
        "/env/bin/vllm", "serve", "some/model", "--revision", "abc123", "--max-model-len", "512",
        "--host", "127.0.0.1", "--port", "8123", "--served-model-name", "tiny-1234",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--flag"]),
        (False, ["--no-flag"]),
        (None, []),
        (8, ["--flag", "8"]),
        (0.85, ["--flag", "0.85"]),
        ("auto", ["--flag", "auto"]),
        ("", ["--flag", ""]),
        ("--not a flag", ["--flag=--not a flag"]),
        (["a=/x", "b=/y"], ["--flag", "a=/x", "b=/y"]),
        ((1, 2), ["--flag", "1", "2"]),
        ({"repeat": ["a.b", "c.d"]}, ["--flag", "a.b", "--flag", "c.d"]),
        (
            {"method": "dspark", "n": 7, "on": True, "x": None},
            ["--flag", '{"method":"dspark","n":7,"on":true,"x":null}'],
        ),
        (MappingProxyType({"a": MappingProxyType({"b": (1,)})}), ["--flag", '{"a":{"b":[1]}}']),
        ({"name": "Käfer"}, ["--flag", '{"name":"Käfer"}']),
    ],
)
def test_one_flag(value: Any, words: list[str]) -> None:
    assert flags({"flag": value}) == words


def test_flags_keep_their_order() -> None:
    assert flags({"b": 1, "a": True, "c": None, "d": False}) == ["--b", "1", "--a", "--no-d"]


def test_what_belongs_to_the_harness() -> None:
    assert VLLM.own_flags == {"host", "port", "served-model-name", "api-key"}
    assert "decode-context-parallel-size" not in VLLM.parallel_flags
    assert VLLM.health_path == "/health"


def test_dropped_variables_have_reasons() -> None:
    assert {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV"} <= set(VLLM.dropped_env)
    assert all(len(reason) > 20 for reason in VLLM.dropped_env.values())
    assert not set(VLLM.dropped_env) & set(VLLM.env)


def test_caches_are_where_they_are_told(tmp_path: Path) -> None:
    env = VLLM.cache_env(tmp_path)
    assert env["VLLM_CACHE_ROOT"] == str(tmp_path)
    assert {k for k in env if env[k].startswith(str(tmp_path))} == {
        "VLLM_CACHE_ROOT",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
    }


# --- the tables

RULES: list[MarkRule | WatchRule | ChoiceRule | SubjectRule] = [
    *VLLM.marks,
    *VLLM.watch,
    *VLLM.choices,
    *VLLM.subjects.values(),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: getattr(r, "name", r.pattern.pattern[:40]))
def test_a_row_needs_one_of_the_literals(rule: MarkRule | WatchRule | ChoiceRule | SubjectRule) -> None:
    assert any(literal in rule.literal for literal in VLLM.literals)
    # Every branch of a pattern spells its literal out, so that no line without it can match.
    word = rule.literal.decode().removeprefix("] ")
    assert [branch for branch in _branches(rule.pattern.pattern) if word not in _spelled(branch)] == []
    # The end of a record's head, where the message begins, and with it the pattern.
    assert word == rule.literal.decode() or (isinstance(rule, ChoiceRule) and rule.pattern.pattern.startswith(word))


def _branches(pattern: str) -> list[str]:
    """The alternatives at the top level of a pattern."""
    depth, parts, start = 0, [], 0
    for at, char in enumerate(pattern):
        escaped = at > 0 and pattern[at - 1] == "\\"
        depth += (char == "(") - (char == ")") if not escaped else 0
        if char == "|" and depth == 0 and not escaped:
            parts.append(pattern[start:at])
            start = at + 1
    return [*parts, pattern[start:]]


def _spelled(branch: str) -> str:
    """The text that a branch spells out, its groups and classes away."""
    text, last = re.sub(r"\[[^\]]*\](?:[*+?]|\{[^}]*\})*", "\x00", branch), ""
    while text != last:  # innermost groups first
        last, text = text, re.sub(r"(?<!\\)\((?:[^()\\]|\\.)*(?<!\\)\)(?:[*+?]|\{[^}]*\})*", "\x00", text)
    text = re.sub(r"\\[bdwsS]\+?|\.\*", "\x00", text)
    return re.sub(r"\\(.)", r"\1", text)


def test_the_proof_above_sees_a_branch_without_its_literal() -> None:
    assert [b for b in _branches(r"Using (?:x )?cache |[a-z]+ache (?:cache )?\d") if "cache " not in _spelled(b)] == [
        r"[a-z]+ache (?:cache )?\d"
    ]


def test_what_a_busy_server_prints_holds_no_literal() -> None:
    """Each hit costs a regular expression for every row, and a flood of these lines must not."""
    busy = (
        b"(APIServer pid=4200) INFO:     127.0.0.1:40001 - 'POST /v1/completions HTTP/1.1' 200 OK",
        b"(APIServer pid=4200) INFO 11-30 21:03:10 [loggers.py:257] Engine 000: Avg prompt throughput: 10.7 tokens/s",
        b"Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.1%, Prefix cache hit rate: 10.1%",
    )
    assert [literal for literal in VLLM.literals for line in busy if literal in line] == []
    assert all(len(literal) >= 8 for literal in VLLM.literals)


def test_a_line_without_a_literal_matches_no_row() -> None:
    matched = 0
    for log in LOGS:
        for line in re.split(rb"[\r\n]", log.read_bytes()):
            if any(rule.pattern.search(line.decode("utf-8", "replace")) for rule in RULES):
                assert any(literal in line for literal in VLLM.literals), line
                matched += 1
    assert matched > 500


def test_every_row_was_seen_in_a_sample() -> None:
    texts = [log.read_bytes().decode("utf-8", "replace").replace("\r", "\n").split("\n") for log in LOGS]
    unseen = [
        rule.pattern.pattern
        for rule in RULES
        if rule.seen and not any(rule.pattern.search(line) for text in texts for line in text)
    ]
    assert unseen == []


@pytest.mark.parametrize(
    ("stem", "on"),
    [
        ("0.27.1-cpu-cold-healthy", {"prefix_cache", "chunked_prefill"}),
        ("0.32.0-cpu-tp2-healthy", {"prefix_cache", "chunked_prefill", "tensor_parallel"}),
        ("0.29.0-cuda-tp1-dspark-eager-healthy", {"prefix_cache", "chunked_prefill", "spec_decode"}),
        ("0.29.0-cuda-tp1-replayssm-noprefixcache", {"chunked_prefill", "spec_decode", "replayssm"}),
        (
            "0.30.0-cuda-tp1-replayssm-prefixcache-healthy",
            {"prefix_cache", "chunked_prefill", "spec_decode", "replayssm", "cuda_graphs"},
        ),
    ],
)
def test_subjects(stem: str, on: set[str]) -> None:
    lines = (LOGS[0].parent / f"{stem}.log").read_bytes().decode("utf-8", "replace").split("\n")
    assert {word for word, rule in VLLM.subjects.items() if any(rule.shows(line) for line in lines)} == on


def test_jit_compilations_after_ready() -> None:
    lines = (
        (LOGS[0].parent / "0.30.0-cuda-tp1-replayssm-prefixcache-healthy.log")
        .read_bytes()
        .decode("utf-8", "replace")
        .split("\n")
    )
    assert sum(rule.matches(line) for rule in VLLM.watch for line in lines) == 5
