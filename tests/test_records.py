"""Records of real runs on an H200, read again: what a later harness must still make of them."""

from pathlib import Path

import pytest

from harness import known, record, triage
from harness.bisect import outcome
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


def test_the_ladder_through_overrides_meets_the_same_fault_without_an_edit():
    """Prefix caching and RecoverSSM are off in the end, so neither they nor the edits make the illegal access."""
    second, third = (record.load(RECORDS / f"override-{rung}-0.29.0.json") for rung in (2, 3))
    caching = "serve.enable-prefix-caching = false, removes prefix_cache"
    assert second.under == (caching,)
    assert third.under == (caching, "serve.use-replayssm removed, removes replayssm")
    assert [run.signature and run.signature.id for run in (second, third)] == ["084f67c57ca4", "24a58cc1b4cb"]
    assert second.known is not None
    assert second.known.refs == ("vllm#54636",)
    assert [(xid.number, xid.own) for xid in third.xids] == [(31, True)]
    assert third.known is None


def test_few_sequences_meet_another_crash_first_and_pass_behind_two_edits():
    runs = [record.load(RECORDS / f"few-sequences-{rung}-0.29.0.json") for rung in (1, 2, 3)]
    assert [run.verdict for run in runs] == ["FAIL", "FAIL", "PASS"]
    assert [run.known and run.known.refs for run in runs] == [("vllm#55774",), ("vllm#54636",), None]
    assert [len(run.under) for run in runs] == [0, 1, 2]
    first = runs[0].signature
    assert first is not None
    assert (first.phase, first.frames[0].function) == ("capture#1", "build")
    assert KNOWN.met(first, "0.29.0") is not None
    assert runs[2].subject == {"spec_decode": True, "replayssm": True}


def test_the_fixed_release_passes_cold_and_warm_with_everything_on():
    run = record.load(RECORDS / "pass-0.30.0.json")
    everything_passed(run)
    assert run.choices["attention_backend"] == ("FLASH_ATTN_MLA", "FLASH_ATTN")  # of the target, of the drafter
    assert [each.launch for each in run.others] == ["cold", "no speculation"]
    assert run.launch == "warm"
    cold, warm = (_measured(run, "warmup", launch) for launch in ("cold", "warm"))
    assert (cold["time_to_ready"], warm["time_to_ready"]) == (226.6672, 37.0304)
    assert cold["compiled_names"].split(", ") == [
        *("_prepare_dflash_inputs_kernel", "_compute_local_logits_stats_kernel"),
        *("_rejection_kernel", "_resample_kernel"),
    ]


def _measured(run, check, launch):
    found = next(each for each in run.checks if (each.name, each.launch) == (check, launch))
    return {each.name: each.value for each in found.measurements}


def test_the_other_drafter_passes_too():
    run = record.load(RECORDS / "pass-mla-drafter-0.30.0.json")
    everything_passed(run)
    assert run.choices["attention_backend"] == ("FLASH_ATTN_MLA", "TRITON_MLA")


def test_the_quantised_mini_takes_the_kernels_of_its_format():
    run = record.load(RECORDS / "pass-mxfp4-0.30.0.json")
    assert (run.verdict, run.version) == ("PASS", "0.30.0")
    assert (run.choices["quantization"], run.choices["moe_backend"]) == (("mxfp4",), ("MARLIN Mxfp4",))


def everything_passed(run):
    assert (run.verdict, run.version, run.node_class) == ("PASS", "0.30.0", "h200")
    assert run.subject == {"spec_decode": True, "prefix_cache": True, "replayssm": True}
    assert {check.name: check.outcome for check in run.checks} == {
        **dict.fromkeys(("warmup", "perplexity", "prefix_cache", "spec_decode", "determinism", "chat", "load"), "pass"),
        **dict.fromkeys(("log_hygiene", "same_output", "memory"), "pass"),
        "startup_time": "not_tested",
    }
    assert run.teardown is not None
    assert (run.teardown.survivors, run.teardown.left) == ((), ())


def test_the_bisection_of_the_red_run_found_the_fixed_release():
    told = outcome.load(HERE / "records" / "bisections" / "h200-fix.json")
    assert (told.ending, told.fix) == ("found", True)
    assert told.culprits == ("tree:/opt/envs/0.30.0,/opt/envs/deps",)
    assert [(probe.role, probe.mark) for probe in told.probes] == [
        ("bad end", "BAD"), ("good end", "GOOD"), ("again", "BAD"), ("again", "GOOD")
    ]  # fmt: skip


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_reports_are_made_of_them(path):
    run = record.load(path)
    text = summary.render(run, path.parent)
    assert "h200" in text
    assert "580.159.04" in text
    assert text.startswith(f"### {run.verdict} ")
    assert run.signature is None or run.signature.id in text
    assert junit.render(run, path.parent).count("<testcase") >= 2
