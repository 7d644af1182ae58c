"""Which lines of vLLM's log show where a start is: one row a pattern, with the releases in whose logs it was seen.

Where the boundaries are. Every moment of a start belongs to a phase that has begun and not completed, so that a crash
always has a phase; therefore a phase ends where the next one is shown to begin, and not at the last line it prints:

    spawn        interpreter and imports, until the first line of the API server
    config       model config and arguments; ends when the engine process speaks (its spawn and imports included)
    workers      the executor starts its workers, until a worker knows its rank
    distributed  process groups
    weights      `Loading weights took` is NOT its end: quantising and repacking come after it
    profile      the dummy run that measures memory (on CPU without eager mode: the compilation)
    capture#1    CUDA graphs captured inside the profiling, to measure their memory
    kv_cache     sizes and allocates the cache, then warms kernels up until capture#2 or the end (vLLM logs no boundary)
    capture#2    CUDA graphs
    ready        the API server starts; ends with the first health answer
"""

from __future__ import annotations

import re

from harness.runtimes.base import MarkRule

CPU_ALL = ("0.27.1-cpu", "0.28.0-cpu", "0.29.0-cpu", "0.30.0-cpu", "0.31.0-cpu", "0.32.0-cpu")
GPU_ALL = ("0.29.0-cuda", "0.30.0-cuda")
ALL = (*CPU_ALL, *GPU_ALL)

MARKS: tuple[MarkRule, ...] = (
    MarkRule(
        name="arguments",
        phase="config",
        edge="begin",
        literal=b"non-default args",
        pattern=re.compile(r"non-default args: \{.*model"),
        seen=ALL,
    ),
    MarkRule(
        name="engine",
        phase="workers",
        edge="begin",
        literal=b"Initializing a V",
        pattern=re.compile(r"Initializing a V\d LLM engine \(v.* model="),
        seen=ALL,
    ),
    MarkRule(
        name="world",
        phase="distributed",
        edge="begin",
        ranks="each",
        literal=b"world_size=",
        pattern=re.compile(r"\bworld_size=(?P<world>\d+) rank=(?P<rank>\d+) .* backend="),
        seen=ALL,
    ),
    MarkRule(
        name="load_cpu",
        phase="weights",
        edge="begin",
        ranks="each",
        literal=b"Starting to load model",
        pattern=re.compile(r"Starting to load model "),
        seen=CPU_ALL,
    ),
    # Rank 0 alone prints it, after the process groups that need every rank.
    MarkRule(
        name="load_gpu",
        phase="weights",
        edge="begin",
        literal=b"Loading model from scratch",
        pattern=re.compile(r"Loading model from scratch\.\.\."),
        seen=GPU_ALL,
    ),
    MarkRule(
        name="loaded_gpu",
        phase="weights",
        edge="end",
        ranks="each",
        literal=b"Model loading took",
        pattern=re.compile(r"\bModel loading took [\d.]+ GiB"),
        seen=GPU_ALL,
    ),
    # The engine says it once, after the weights of all ranks. Workers of 0.27 and 0.28 say "… layout for CPU_ATTN"
    # while they load, which is something else: hence the end of line.
    MarkRule(
        name="layout",
        phase="profile",
        edge="begin",
        literal=b"KV cache layout",
        pattern=re.compile(r"Using \w+ KV cache layout\.\s*$"),
        seen=(*CPU_ALL[2:], *GPU_ALL),
    ),
    MarkRule(
        name="warmup_cpu",
        phase="profile",
        edge="begin",
        ranks="each",
        literal=b"Warming up model for",
        pattern=re.compile(r"Warming up model for the compilation"),
        seen=CPU_ALL,
    ),
    # Rank 0 alone draws the bars (PIECEWISE, FULL, the drafter's); the profiling run before them is collective.
    MarkRule(
        name="capture",
        phase="capture",
        edge="begin",
        literal=b"Capturing ",
        pattern=re.compile(
            r"\bCapturing (?:[\w-]+ ){0,4}?(?:CUDA graphs|speculator|encoder cudagraph)|\bCapturing model for"
        ),
        seen=GPU_ALL,
    ),
    MarkRule(
        name="captured",
        phase="capture",
        edge="end",
        ranks="each",
        literal=b"Graph capturing finished",
        pattern=re.compile(r"\bGraph capturing finished in (?P<took>\d+) secs"),
        seen=("0.30.0-cuda",),
    ),
    # Rank 0 alone says it, and only for itself: the engine's `KV cache size` is what speaks for all.
    MarkRule(
        name="kv_available",
        phase="kv_cache",
        edge="begin",
        ranks="each",
        literal=b"Available KV cache memory",
        pattern=re.compile(r"Available KV cache memory: "),
        seen=GPU_ALL,
    ),
    MarkRule(
        name="kv_explicit",
        phase="kv_cache",
        edge="begin",
        ranks="each",
        literal=b"KV cache on node",
        pattern=re.compile(r"GiB for KV cache on node"),
        seen=CPU_ALL,
    ),
    MarkRule(
        name="kv_size",
        phase="kv_cache",
        edge="begin",
        literal=b"KV cache size",
        pattern=re.compile(r"\b[CG]PU KV cache size: "),
        seen=ALL,
    ),
    MarkRule(
        name="engine_done",
        phase="ready",
        edge="begin",
        literal=b"init engine (profile",
        pattern=re.compile(r"\binit engine \(profile, create kv cache, warmup model\) took"),
        seen=ALL,
    ),
    MarkRule(
        name="api_starts",
        phase="ready",
        edge="begin",
        literal=b"pplication s",
        pattern=re.compile(r"Waiting for application startup"),
        seen=ALL,
    ),
    MarkRule(
        name="api_started",
        phase="ready",
        edge="end",
        literal=b"pplication s",
        pattern=re.compile(r"Application startup complete"),
        seen=ALL,
    ),
    MarkRule(
        name="api_stops",
        phase="stop",
        edge="begin",
        literal=b"pplication s",
        pattern=re.compile(r"Waiting for application shutdown"),
        seen=ALL,
    ),
    MarkRule(
        name="api_stopped",
        phase="stop",
        edge="end",
        literal=b"pplication s",
        pattern=re.compile(r"Application shutdown complete"),
        seen=ALL,
    ),
)
