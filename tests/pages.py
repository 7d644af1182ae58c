"""Runs and a bisection for pages to be made of: real records and logs where there are some, else written ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import runs
from test_log_samples import LOGS, lines_of

from harness import record, timeline, triage
from harness.baseline.samples import Night, samples
from harness.bisect.outcome import Bisection, Probe, Rung
from harness.bisect.outcome import save as save_bisection
from harness.record import Run
from harness.runtimes import RUNTIMES
from harness.timeline import Phase, Timeline

RECORDS = Path(__file__).parent / "records" / "h200"
CRASH = LOGS / "vllm" / "0.29.0-cuda-tp2-replayssm-noprefixcache.log"
"""One cause on two ranks, under four tracebacks that only report it."""
HEALTHY = LOGS / "vllm" / "0.30.0-cuda-mini-mla-drafter-healthy.log"
HANG = LOGS / "vllm" / "0.32.0-cpu-hang-rank1.log"
STACKS = {
    "stacks/summary.txt": "pid 21 VLLM::Worker_TP1: 312 s without CPU\n",
    "stacks/21-VLLM-Worker_TP1.txt": """21 VLLM::Worker_TP1: state S, 51 threads

== Python stacks
Thread 21 (idle): "MainThread"
    determine_available_memory (cpu_worker.py:88)
    WorkerProc.worker_busy_loop (vllm/v1/executor/multiproc_executor.py:1041)
Thread 22 (idle): "tqdm_monitor"
    Condition.wait (threading.py:331)
""",
}
COVER = "AssertionError: declares 4 states, but provides 2 state copy funcs (`validate_mamba_state_copy_funcs`)"
EDIT = "under edit of f in a.py"
DEEPEST = "RuntimeError: illegal memory access (`chunk_kda`)"


def nights(run: Run, count: int, *, wobble: float = 0.01) -> tuple[Night, ...]:
    """So many earlier runs that took about as long as this one, oldest first."""
    seconds: dict[str, dict[str, float]] = {}
    for each in samples(run):
        seconds.setdefault(each.start, {})[each.name] = each.seconds
    return tuple(
        Night(
            run=f"202611{at + 1:02}-021500-{run.scenario}-{at:06x}",
            started=f"2026-11-{at + 1:02}T02:15:00.000+00:00",
            version=run.version,
            seconds={
                start: {name: round(t * (1 + wobble * ((at * 7 + len(name)) % 5 - 2)), 3) for name, t in times.items()}
                for start, times in seconds.items()
            },
        )
        for at in range(count)
    )


def passed() -> tuple[Run, bytes]:
    """On one H200, with everything on."""
    run = record.load(RECORDS / "pass-mla-drafter-0.30.0.json")
    return replace(run, nights=nights(run, 14)), (
        LOGS / "vllm" / "0.30.0-cuda-mini-mla-drafter-healthy.log"
    ).read_bytes()


def crashed() -> tuple[Run, bytes]:
    """The cause under wrappers, in the log of a server on two GPUs."""
    run, lines = record.load(RECORDS / "peel-2-0.29.0.json"), lines_of(CRASH)
    found = triage.read(lines)
    assert found.signature is not None
    chart = timeline.read(RUNTIMES["vllm"].marks, lines)
    signature = replace(found.signature, phase=chart.phases[-1].label)
    changed = replace(
        run, signature=signature, wrappers=found.wrappers, evidence=found.evidence, timeline=chart, others=(), under=(),
        log="server.log", reason=f"died while starting (exit 1, in {signature.phase}): {signature.title}",
        lifetime=chart.phases[-1].start + 6.0, artifacts=("run.json", "server.log"), launch="", known=None,
    )  # fmt: skip
    return changed, CRASH.read_bytes()


def hung() -> tuple[Run, bytes]:
    """Rank 1 never comes back; what the processes did is in `stacks/`."""
    chart = timeline.read(RUNTIMES["vllm"].marks, lines_of(HANG))
    phase = chart.phases[-1].label
    run = runs.passed(
        id="20261202-021500-tiny_lm.tp2-ee55ff", variant="tp2", verdict="FAIL", blame="product", checks=(),
        reason=f"no output and no CPU use for 300 s, in {phase}", signature=triage.hang(phase, "silence"),
        timeline=chart, lifetime=chart.phases[-1].start + 312.0, quiet_seconds=312.0,
        artifacts=("run.json", "server.log", *STACKS),
    )  # fmt: skip
    return run, HANG.read_bytes()


def regressed() -> tuple[Run, bytes]:
    """Capturing graphs takes four times as long as it did in fourteen nights before."""
    usual = runs.passed()
    slow = tuple(_later(phase, 14.0) for phase in runs.STARTED.phases)
    check = replace(
        runs.WARMUP, name="startup_time", outcome="fail", message="ready after 34.1 s, above 20.7 s; slower: capture#1",
        measurements=(
            replace(runs.WARMUP.measurements[0], name="ready", value=34.1, limit=20.7, ok=False),
            replace(runs.WARMUP.measurements[0], name="capture#1", value=18.75, limit=4.9, ok=False),
        ),
    )  # fmt: skip
    found = triage.check_failed("startup_time", check.message)
    run = runs.passed(
        id="20261202-021500-tiny_lm-0a0b0c", verdict="FAIL", blame="product", nights=nights(usual, 14),
        timeline=Timeline(phases=slow, ready=34.1234), checks=(runs.WARMUP, runs.PERPLEXITY, check), signature=found,
        reason=f"check startup_time: {check.message}", started="2026-12-02T02:15:00.123+00:00",
    )  # fmt: skip
    return run, runs.crash_log()


def _later(phase: Phase, by: float) -> Phase:
    """As phases are where `capture#1` takes so many seconds more."""
    if phase.end is None or phase.start < 9.25:
        return phase
    start = phase.start if phase.label == "capture#1" else phase.start + by
    return replace(phase, start=round(start, 4), end=round(phase.end + by, 4))


def put(made: tuple[Run, bytes], out: Path) -> Path:
    """A run's folder."""
    run, log = made
    folder = runs.write(run, out, log=log)
    for name, text in STACKS.items() if run.quiet_seconds else ():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def bisected() -> Bisection:
    """Every mark, a gap, a ladder of three bugs and probabilities."""
    builds = tuple(f"0.{at}.0" for at in range(20, 34))
    signature = replace(runs.ATTRIBUTE_ERROR, phase=None)
    covered = f"covered by {COVER}"
    probes = (
        _probe(builds[13], "bad end", "BAD", "met the chased failure", signature.title),
        _probe(builds[0], "good end", "GOOD", "passed, and everything under `subject` was on", ""),
        _probe(builds[6], "probe", "GOOD", "passed", ""),
        _probe(builds[10], "probe", "BAD", "met the chased failure", COVER, signature.title, under=EDIT),
        _probe(builds[9], "probe", "MASKED", covered, COVER),
        _probe(builds[8], "probe", "SKIP", "no such build"),
        _probe(builds[7], "probe", "GOOD", "passed", ""),
        _probe(builds[11], "proof", "BAD", "met the chased failure", signature.title, DEEPEST),
    )  # fmt: skip
    return Bisection(
        id="bisect-kimi-k3-dspark.mini-b8fb6a38", scenario="kimi-k3-dspark", variant="mini", good=builds[0],
        bad=builds[13], fix=False, node_class="h200", started="2026-12-03T02:15:00+00:00", harness="0.1.0",
        command="harness bisect kimi_k3_dspark.yaml --variant mini --good 0.20.0 --bad 0.33.0", state="finished",
        ended="2026-12-03T03:00:00+00:00", signature=signature, stop="capture#1", range=builds, probes=probes,
        ending="range", before=builds[7], culprits=builds[8:11], untested=(builds[8],),
        sentence=f"one of 0.28.0, 0.29.0, 0.30.0 is the first build with {signature.title}",
        fix_hint="a --patch around the AssertionError would tell them apart",
        notes=("0.27.1 is no ancestor of 0.28.0: 0.27.0 was judged instead",),
        ladder=(
            Rung(cover=COVER, hidden=signature.title, builds=(builds[10],)),
            Rung(cover=signature.title, hidden=DEEPEST, builds=(builds[11],)),
        ),
        log="a1b2c3d kda: two states\nb2c3d4e builder: fewer arguments\n", packages=("numpy 2.1.0 → 2.2.0",),
        posterior={builds[9]: 0.61, builds[10]: 0.34},
    )  # fmt: skip


def _probe(build: str, role, mark, why: str, *met: str, under: str = "") -> Probe:
    name = f"20261203-02{build.split('.')[1]}00-kimi-k3-dspark.mini-{role[:2]}{build.split('.')[1]}aa"
    return Probe(build=build, role=role, mark=mark, why=why, runs=(name,), under=under, met=met, seconds=212.4)


def put_bisection(told: Bisection, out: Path) -> Path:
    folder = out / told.id
    folder.mkdir(parents=True, exist_ok=True)
    save_bisection(told, folder)
    return folder


def night(out: Path, count: int = 24) -> list[Path]:
    """So many nights of three scenarios: one stays as it is, one becomes slow, one begins to crash."""
    return [folder for at in range(count) for folder in _one_night(out, at, last=at == count - 1)]


def _one_night(out: Path, at: int, *, last: bool) -> list[Path]:
    changes = {"started": f"2026-11-{at + 1:02}T02:15:00.000+00:00", "version": f"0.{20 + at // 3}.0"}
    good, slow = runs.passed(), regressed()[0]
    crash = runs.failed_at_startup() if at >= 20 else runs.passed(variant="mini")
    stamp = f"202611{at + 1:02}-021500"
    made = (
        replace(good, id=f"{stamp}-tiny_lm-aa", **changes),
        replace(slow if last else good, id=f"{stamp}-other-bb", scenario="other", nights=(), **changes),
        replace(crash, id=f"{stamp}-tiny_lm.mini-cc", expected=at == 21, **changes),
    )
    return [runs.write(run, out, log=runs.crash_log()) for run in made]
