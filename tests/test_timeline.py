"""Phases: when they begin, when they are shown to be completed, on one rank and on several."""

from __future__ import annotations

import pytest
from test_log_samples import LOGS, lines_of

from harness import timeline
from harness.runtimes import RUNTIMES
from harness.timeline import Builder, Timeline

MARKS = RUNTIMES["vllm"].marks
ENGINE = "(EngineCore pid=9) INFO 11-30 21:44:25 [core.py:133] "
W0 = "(Worker_TP0 pid=20) INFO 11-30 21:44:26 [x.py:1] "
W1 = "(Worker_TP1 pid=21) INFO 11-30 21:44:26 [x.py:1] "


def sample(stem: str) -> Timeline:
    return timeline.read(MARKS, lines_of(LOGS / "vllm" / f"{stem}.log"))


def built(*lines: tuple[float, str]) -> Builder:
    builder = Builder(MARKS)
    for t, text in lines:
        builder.add(t, text)
    return builder


def phases(builder: Builder) -> dict[str, tuple[float, float | None, bool]]:
    return {p.label: (p.start, p.end, p.completed) for p in builder.timeline().phases}


def world(rank: int) -> str:
    tag = f"(Worker pid={20 + rank}) INFO 11-30 21:44:26 [p.py:1] "
    return tag + f"world_size=2 rank={rank} local_rank={rank} distributed_init_method=file:///y backend=gloo"


@pytest.mark.parametrize(
    ("stem", "seconds"),
    [
        ("0.27.1-cpu-cold-healthy", [7.62, 15.05, 5.49, 0.03, 0.12, 24.93, 0.57, 1.13]),
        ("0.29.0-cpu-cold-healthy", [7.15, 13.10, 5.74, 0.02, 0.08, 24.39, 1.13, 1.30]),
        ("0.32.0-cpu-cold-healthy", [7.84, 14.22, 7.00, 0.04, 0.83, 25.08, 1.40, 1.00]),
    ],
)
def test_seconds_of_a_cold_start(stem: str, seconds: list[float]) -> None:
    names = ["spawn", "config", "workers", "distributed", "weights", "profile", "kv_cache", "ready"]
    found = timeline.seconds(sample(stem))
    assert [found[f"{name}#1"] for name in names] == pytest.approx(seconds, abs=0.006)
    assert all(p.completed for p in sample(stem).phases if p.name in names)


def test_phases_leave_no_gap_on_one_rank() -> None:
    read = sample("0.31.0-cpu-warm-healthy").phases
    assert [after.start for after in read[1:]] == [before.end for before in read[:-1]]


def test_graphs_are_captured_twice() -> None:
    read = sample("0.30.0-cuda-tp1-replayssm-prefixcache-healthy")
    assert [p.label for p in read.phases] == [
        "spawn#1", "config#1", "workers#1", "distributed#1", "weights#1", "profile#1", "capture#1", "kv_cache#1",
        "capture#2",
        "ready#1", "checks#1", "stop#1",
    ]  # fmt: skip
    # The server says itself: "Graph capturing finished in 25 secs", then "4 secs". The second bar is unstamped and is
    # printed 155 s before its end in the log: what lies between is the warm-up of kernels.
    seconds = timeline.seconds(read)
    assert (seconds["capture#1"], seconds["kv_cache#1"], seconds["capture#2"]) == (25.0, 155.0, 4.0)


def test_eager_mode_captures_nothing() -> None:
    assert "capture#1" not in timeline.seconds(sample("0.29.0-cuda-tp1-dspark-eager-healthy"))


@pytest.mark.parametrize("ranks", ["tp1", "tp2"])
def test_the_flagship_crash_is_in_the_first_capture(ranks: str) -> None:
    read = sample(f"0.29.0-cuda-{ranks}-replayssm-noprefixcache")
    assert read.last is not None
    assert (read.last.label, read.last.end, read.last.completed) == ("capture#1", None, False)
    assert [p.label for p in read.phases if not p.completed] == ["capture#1"]


def test_two_ranks_overlap() -> None:
    """As recorded: the second rank is 0.02 s late, and only both complete `workers` and `distributed`."""
    by_label = {p.label: p for p in sample("0.32.0-cpu-tp2-healthy").phases}
    assert (by_label["workers#1"].end, by_label["distributed#1"].start) == (18.31, 18.29)
    assert (by_label["distributed#1"].end, by_label["weights#1"].start) == (18.39, 18.38)


def test_a_phase_completes_with_the_last_rank() -> None:
    builder = built(
        (1.0, "non-default args: {'model': 'x'}"),
        (2.0, ENGINE + "Initializing a V1 LLM engine (v1) with config: model='x'"),
    )
    builder.add(3.0, world(0))
    assert phases(builder)["workers#1"] == (2.0, None, False)
    assert phases(builder)["distributed#1"] == (3.0, None, False)
    builder.add(3.5, world(1))
    assert phases(builder)["workers#1"] == (2.0, 3.5, True)
    builder.add(4.0, W0 + "Starting to load model x...")
    assert phases(builder)["distributed#1"] == (3.0, None, False)
    assert builder.current == "weights#1"


def test_the_same_rank_twice_is_one_rank() -> None:
    builder = built((1.0, world(0)), (2.0, W0 + "Model loading took 1.0 GiB"), (3.0, W0 + "Model loading took 1.0 GiB"))
    assert not any(p.completed for p in builder.timeline().phases if p.name == "weights")


def test_an_engine_line_speaks_for_all_ranks() -> None:
    builder = built((1.0, world(0)), (1.1, world(1)), (2.0, W0 + "Starting to load model x..."))
    builder.add(5.0, ENGINE + "CPU KV cache size: 1,024 tokens")
    assert phases(builder)["weights#1"] == (2.0, 5.0, True)


def test_glued_progress_bars_and_tags() -> None:
    mark = Builder(MARKS).add(
        9.0,
        "(Worker_TP0 pid=2673) \rCapturing CUDA graphs (PIECEWISE):   0%| 0/51\rCapturing CUDA graphs (PIECEWISE): 2%",
    )
    assert mark is not None
    assert (mark.phase, mark.edge, mark.process, mark.t) == ("capture", "begin", "Worker_TP0", 9.0)
    mark = Builder(MARKS).add(
        9.0, "(Worker_TP0 pid=1) (Worker_TP1 pid=2) INFO 11-30 21:56:30 [m.py:1] Model loading took 0.12 GiB memory"
    )
    assert mark is not None
    assert (mark.phase, mark.edge, mark.process) == ("weights", "end", "Worker_TP1")


@pytest.mark.parametrize(
    "text",
    ["Capturing dspark CUDA graphs (FULL):   0%", "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 0%",
     "[s.py:149] Capturing model for DSpark speculator...", "Capturing multi-module MTP CUDA graphs"],
)  # fmt: skip
def test_all_bars_are_one_capture(text: str) -> None:
    builder = built((1.0, "Capturing CUDA graphs (PIECEWISE):   0%"), (2.0, text))
    assert [label for label in phases(builder) if label.startswith("capture")] == ["capture#1"]


def test_a_late_line_opens_nothing_again() -> None:
    """A second engine, or a line that is repeated at the end."""
    builder = built((1.0, ENGINE + "CPU KV cache size: 1 tokens"), (2.0, ENGINE + "Using LBNHC KV cache layout."))
    builder.add(3.0, ENGINE + "CPU KV cache size: 1 tokens")
    assert [p for p in phases(builder) if p.startswith("kv")] == ["kv_cache#1"]


def test_unknown_wording_still_gives_spawn_and_ready() -> None:
    builder = built((1.0, "all is new here"), (2.0, "INFO: nobody knows these words"))
    builder.ready(30.0)
    assert phases(builder) == {
        "spawn#1": (0.0, 30.0, True),
        "ready#1": (30.0, 30.0, True),
        "checks#1": (30.0, None, False),
    }
    assert builder.timeline().ready == 30.0


def test_ready_is_an_answer_not_a_line() -> None:
    """A second server on the port says `startup complete` too, and never answers."""
    builder = built(
        (5.0, "INFO:     Waiting for application startup."), (6.0, "INFO:     Application startup complete.")
    )
    assert (builder.current, builder.timeline().ready) == ("ready#1", None)
    builder.ready(6.1)
    assert phases(builder)["ready#1"] == (5.0, 6.1, True)
    assert builder.current == "checks#1"


def test_a_whole_run() -> None:
    builder = built((5.0, "INFO:     Waiting for application startup."))
    builder.ready(6.0)
    builder.checks_done(9.0, completed=True)
    builder.stopping(9.0)
    builder.stopped(9.5)
    assert phases(builder) == {
        "spawn#1": (0.0, 5.0, True), "ready#1": (5.0, 6.0, True), "checks#1": (6.0, 9.0, True),
        "stop#1": (9.0, 9.5, True),
    }  # fmt: skip


def test_a_shutdown_completes_nothing() -> None:
    builder = built((5.0, "INFO:     Waiting for application startup."))
    builder.ready(6.0)
    builder.add(7.0, "INFO:     Waiting for application shutdown.")
    assert phases(builder)["checks#1"] == (6.0, 7.0, False)
    assert builder.current == "checks#1"


def test_seconds_until() -> None:
    builder = built((5.0, "non-default args: {'model': 'x'}"))
    assert timeline.seconds(builder.timeline()) == {"spawn#1": 5.0}
    assert timeline.seconds(builder.timeline(), until=8.0) == {"spawn#1": 5.0, "config#1": 3.0}
