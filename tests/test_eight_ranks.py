"""What eight ranks write is read as what two of them write; see `eight_ranks`."""

import re
from pathlib import Path

import pytest
from eight_ranks import RANKS, eight

from harness import timeline, triage
from harness.runtimes import RUNTIMES

LOGS = Path(__file__).parent / "logs" / "vllm"
VLLM = RUNTIMES["vllm"]


def lines_of(name):
    text = (LOGS / f"{name}.log").read_bytes().decode("utf-8")
    return [line for line in text.split("\n") if not line.startswith("# expect: ")]


@pytest.fixture(params=[True, False], ids=["rank after rank", "line by line"])
def made(request):
    return lambda name: eight(lines_of(name), together=request.param)


def test_every_rank_is_there(made):
    lines = made("0.29.0-cuda-tp2-replayssm-noprefixcache")
    tags = {found[0] for line in lines if (found := re.search(r"Worker_TP\d", line))}
    assert tags == {f"Worker_TP{rank}" for rank in range(RANKS)}
    ranks = [found[1] for line in lines if (found := re.search(r"world_size=8 rank=(\d)", line))]
    assert sorted(ranks) == [str(rank) for rank in range(RANKS)]
    assert not any("world_size=2" in line for line in lines)


def test_eight_ranks_that_die_of_one_bug_are_one_signature(made):
    found = triage.read(made("0.29.0-cuda-tp2-replayssm-noprefixcache")).signature
    assert found is not None
    assert (found.id, found.ranks, found.phase) == ("084f67c57ca4", "8/8", "capture#1")
    assert found.process.startswith("Worker_TP")
    assert found.alternatives == ()


def test_eight_ranks_that_start_are_no_failure(made):
    lines = made("0.30.0-cuda-tp2-replayssm-prefixcache-starting")
    assert triage.read(lines).signature is None
    two = timeline.read(VLLM.marks, lines_of("0.30.0-cuda-tp2-replayssm-prefixcache-starting"))
    assert [p.label for p in timeline.read(VLLM.marks, lines).phases] == [p.label for p in two.phases]
