"""Records of real runs on an H200, read again: what a later harness must still make of them."""

from pathlib import Path

import pytest

from harness import known, record, triage
from harness.report import junit, summary

HERE = Path(__file__).parent
RECORDS = HERE / "records" / "h200"
LOGS = HERE / "logs" / "vllm"
KNOWN = known.load(HERE.parent / "scenarios" / known.KNOWN_FAILURES)
LADDER = {
    1: ("9b1310ac4023", "capture#1", "vllm#54634"),
    2: ("084f67c57ca4", "capture#1", "vllm#54636"),
    3: ("f8f96f8a1aa3", "ready#1", "vllm#54495"),
    4: ("24a58cc1b4cb", "ready#1", None),
}
"""Rungs of `--peel` on 0.29.0: id, phase, and which known failure it is."""


@pytest.mark.parametrize("rung", LADDER)
def test_a_rung_of_the_flagships_ladder(rung):
    run = record.load(RECORDS / f"peel-{rung}-0.29.0.json")
    signature, phase, ref = LADDER[rung]
    assert (run.verdict, run.blame, run.version) == ("FAIL", "product", "0.29.0")
    assert run.signature is not None
    assert (run.signature.id, run.signature.phase) == (signature, phase)
    assert (run.known.refs if run.known else None) == ((ref,) if ref else None)
    assert len(run.under) == rung - 1
    assert all(step.endswith("removes nothing") for step in run.under)
    met = KNOWN.met(run.signature, run.version)
    assert (met.refs if met else None) == ((ref,) if ref else None), "the file still knows it by what it says"
    with (LOGS / f"0.29.0-cuda-mini-peel-{rung}.log").open("rb") as log:
        again = triage.read(log).signature
    assert again is not None
    assert again.id == signature, "and today's rules still read the same from its log"


def test_a_fault_of_a_kernel_is_not_the_nodes():
    """Xid 31 came from the product's own illegal access: the node keeps out of it."""
    run = record.load(RECORDS / "peel-4-0.29.0.json")
    assert [(xid.number, xid.gpu, xid.own) for xid in run.xids] == [(31, 0, True)]
    assert (run.verdict, run.blame) == ("FAIL", "product")


def test_the_fixed_release_passes_with_everything_on():
    run = record.load(RECORDS / "pass-0.30.0.json")
    assert (run.verdict, run.version, run.node_class) == ("PASS", "0.30.0", "h200")
    assert run.subject == {"spec_decode": True, "prefix_cache": True, "replayssm": True}
    assert run.choices["attention_backend"] == ("FLASH_ATTN_MLA", "TRITON_MLA")  # of the target, of the drafter
    assert {name: check.outcome for name, check in ((check.name, check) for check in run.checks)} == {
        **dict.fromkeys(("warmup", "perplexity", "prefix_cache", "spec_decode", "determinism", "chat", "load"), "pass"),
        **dict.fromkeys(("log_hygiene", "same_output", "memory"), "pass"),
        "startup_time": "not_tested",
    }
    assert run.teardown is not None
    assert (run.teardown.survivors, run.teardown.left) == ((), ())


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_reports_are_made_of_them(path):
    run = record.load(path)
    text = summary.render(run, path.parent)
    assert "h200" in text
    assert "580.159.04" in text
    assert text.startswith(f"### {run.verdict} ")
    assert run.signature is None or run.signature.id in text
    assert junit.render(run, path.parent).count("<testcase") >= 2
