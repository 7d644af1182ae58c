"""Run records of every kind, as real runs leave them, for the tests of whatever reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.checks.base import CheckResult, Measurement
from harness.masking import Masker
from harness.record import Run, Teardown, save
from harness.signature import Frame, Signature
from harness.timeline import Phase, Timeline

LAYER_NAMES = (
    "AttributeError: 'KimiK3KDAMetadataBuilder' object has no attribute 'layer_names' (`_get_recoverssm_context`)"
)
HOSTILE = (
    "\x00\x1b[31mred\x1b[0m ]]> <script>&amp;</script> | `` ``` ```` "
    "\udcff\ud800\ufffe\u202e \x85 [x](http://h/)\r\n# <!--"
)

STARTED = Timeline(
    phases=(
        Phase(name="spawn", occurrence=1, start=0.0, end=2.5, completed=True),
        Phase(name="config", occurrence=1, start=2.5, end=9.0, completed=True),
        Phase(name="weights", occurrence=1, start=9.0, end=9.25, completed=True),
        Phase(name="capture", occurrence=1, start=9.25, end=14.0, completed=True),
        Phase(name="capture", occurrence=2, start=15.0, end=18.5, completed=True),
        Phase(name="ready", occurrence=1, start=20.1234, end=20.1234, completed=True),
    ),
    ready=20.1234,
)
CRASHED = Timeline(phases=(*STARTED.phases[:3], replace(STARTED.phases[3], end=None, completed=False)))
CLEAN = Teardown(seconds=0.44, steps=("SIGTERM leader +0.0s",))

PERPLEXITY = CheckResult(
    name="perplexity",
    outcome="pass",
    message="perplexity 3.68",
    measurements=(
        Measurement(name="perplexity", value=3.6812, unit="", limit=4.5),
        Measurement(name="max |Δ log p|", value=0.12, unit="nats", limit=0.5),
    ),
    seconds=1.5,
)
WARMUP = CheckResult(
    name="warmup",
    outcome="pass",
    message="first 2.1 s, steady 0.17 s",
    measurements=(Measurement(name="first request", value=2.1, unit="s", limit=60.0),),
    seconds=3.25,
)
ATTRIBUTE_ERROR = Signature(
    id="3f2a9c0d1e4b",
    kind="python_exception",
    exception="AttributeError",
    message="'KimiK3KDAMetadataBuilder' object has no attribute 'layer_names'",
    normalised="'KimiK3KDAMetadataBuilder' object has no attribute 'layer_names'",
    frames=(
        Frame(function="_get_recoverssm_context", file="vllm/model_executor/layers/kda.py", line=88),
        Frame(function="capture_model", file="vllm/v1/worker/gpu_model_runner.py", line=4012),
    ),
    process="Worker_TP0",
    phase="capture",
    ranks="2/2",
    title=LAYER_NAMES,
    alternatives=("RuntimeError: cancelled",),
)


def passed(**changes: Any) -> Run:
    run = Run(
        id="20261130-234600-tiny_lm-aa11bb",
        scenario="tiny_lm",
        variant=None,
        resolved={"model": "./models/tiny_lm", "checks": {"warmup": {}, "perplexity": {"max": 4.5}}},
        refs=("vllm#54636",),
        fingerprint="0123456789ab",
        build="release:0.32.0",
        node_class="cpu",
        node={"hostname": "builder-7", "cpus": 2},
        reproduce="harness run scenarios/tiny_lm.yaml --build release:0.32.0",
        started="2026-11-30T23:46:00.123+00:00",
        harness="0.1.0",
        state="finished",
        ended="2026-11-30T23:46:40.000+00:00",
        verdict="PASS",
        reason="ready after 20.1 s, 2 checks passed",
        version="0.32.0",
        steps={"environment": 3.4, "lease": 0.0},
        timeline=STARTED,
        checks=(WARMUP, PERPLEXITY),
        teardown=CLEAN,
    )
    return replace(run, **changes)


def failed_at_startup(**changes: Any) -> Run:
    failed = passed(
        id="20261130-235000-tiny_lm.mini-cc22dd",
        variant="mini",
        verdict="FAIL",
        blame="product",
        reason=f"died while starting (exit 1 at 14.0 s, in capture): {LAYER_NAMES}",
        timeline=CRASHED,
        lifetime=9.25,
        checks=(),
        signature=ATTRIBUTE_ERROR,
        wrappers=("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",),
        evidence=((150, 162),),
        exit="exit 1",
    )
    return replace(failed, **changes)


def failed_in_check(**changes: Any) -> Run:
    message = "perplexity 6.24 is above its limit 4.5"
    signature = Signature(
        id="77aa88bb99cc", kind="check_failed", exception=None, message=message, normalised=message, frames=(),
        process=None, phase="checks", ranks=None, title="check perplexity failed: perplexity above its limit",
    )  # fmt: skip
    bad = replace(
        PERPLEXITY,
        outcome="fail",
        message=message,
        measurements=(Measurement(name="perplexity", value=6.24, unit="", limit=4.5, ok=False),),
    )
    later = CheckResult(name="prefix_cache", outcome="not_tested", message="not run: check perplexity: 6.24")
    failed = passed(
        resolved={"checks": {"warmup": {}, "perplexity": {}, "prefix_cache": {}, "spec_decode": {}}},
        verdict="FAIL",
        blame="product",
        reason=f"check perplexity: {message}",
        signature=signature,
        checks=(WARMUP, bad, later),
    )
    return replace(failed, **changes)


def unmet(**changes: Any) -> Run:
    run = passed(
        verdict="ERROR",
        blame="scenario",
        reason="kimi-k3-dspark needs 8 GPUs of 130 GiB, this node has none",
        fix="try `--variant mini` on one GPU, or `tiny_lm`",
        timeline=Timeline(),
        checks=(),
        steps={},
        version=None,
        teardown=None,
    )
    return replace(run, **changes)


def skipped(**changes: Any) -> Run:
    return replace(unmet(verdict="SKIP"), **changes)


def interrupted(**changes: Any) -> Run:
    """Stopped by the CI agent in the second check, written before the teardown."""
    run = passed(
        state="interrupted", verdict="ERROR", blame="harness", reason="interrupted: SIGTERM", fix="run it again",
        checks=(WARMUP,), teardown=None,
    )  # fmt: skip
    return replace(run, **changes)


def killed_node(**changes: Any) -> Run:
    """The record as it was when the power went: no end, no verdict."""
    run = passed(state="running", ended=None, verdict=None, reason="", timeline=CRASHED, checks=(), teardown=None)
    return replace(run, **changes)


def hostile(**changes: Any) -> Run:
    """Everything that a server or a scenario may write is as bad as it gets."""
    base = failed_at_startup()
    frame = Frame(function=HOSTILE, file=HOSTILE, line=1)
    signature = replace(ATTRIBUTE_ERROR, title=HOSTILE, message=HOSTILE, frames=(frame,))
    bad = CheckResult(
        name="perplexity", outcome="fail", message=HOSTILE + "y" * 1_500_000,
        measurements=(Measurement(name=HOSTILE, value=float("nan"), unit=HOSTILE, limit=0.5, ok=False),),
    )  # fmt: skip
    run = replace(
        base, reason=HOSTILE + "z" * 5_000_000, fix=HOSTILE, signature=signature, wrappers=(HOSTILE,), exit=HOSTILE,
        checks=(bad,), reproduce=f"harness run {HOSTILE}", version=HOSTILE, build=HOSTILE,
        teardown=Teardown(seconds=1.0, steps=(HOSTILE,), survivors=(HOSTILE,), left=(HOSTILE,)),
    )  # fmt: skip
    return replace(run, **changes)


EVERY_KIND = (passed, failed_at_startup, failed_in_check, unmet, skipped, interrupted, killed_node, hostile)


def write(run: Run, out: Path, *, log: bytes | None = b"") -> Path:
    """Put a record, and the log of its server, into a folder of its own."""
    folder = out / run.id
    folder.mkdir(parents=True, exist_ok=True)
    save(run, folder, Masker())
    if log is not None:
        (folder / "server.log").write_bytes(log)
    return folder


def crash_log() -> bytes:
    """300 lines, the cause in lines 150 to 162, a hostile one in its middle, and the usual last words."""
    lines = [f"INFO line {n}".encode() for n in range(1, 301)]
    lines[149] = b"(Worker_TP0 pid=12) ERROR Traceback (most recent call last):\r"
    lines[155] = b"\x1b[31mESC\x1b[0m \x00 \xff ]]> ``` </details> | <b>"
    lines[161] = f"(Worker_TP0 pid=12) ERROR {LAYER_NAMES}".encode()
    lines[299] = b"RuntimeError: Engine core initialization failed. See root cause above."
    return b"\n".join(lines) + b"\n"


def several(**changes: Any) -> Run:
    """A cold start, a warm one that the record speaks of, and a server to compare with."""
    run = passed()
    names = {"cold": "cold/server.log", "no speculation": "against-1/server.log"}
    others = tuple(replace(run.launched, launch=name, log=log) for name, log in names.items())
    checks = {"warmup": {}, "perplexity": {"max": 4.5}, "same_output": {"against": "no speculation"}}
    same = CheckResult(name="same_output", outcome="pass", message="equal", seconds=2.0, launch="no speculation")
    made = replace(
        run,
        resolved={**run.resolved, "checks": checks, "starts": ["cold", "warm"]},
        launch="warm",
        others=others,
        checks=(
            replace(WARMUP, launch="cold"), replace(WARMUP, launch="warm"), replace(PERPLEXITY, launch="warm"), same,
        ),
    )  # fmt: skip
    return replace(made, **changes)
