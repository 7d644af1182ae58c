"""What vLLM's log says about itself: what is on, what it compiled in the middle of requests.

One row a pattern, with the releases in whose logs (tests/logs/vllm) it was seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from harness.runtimes.base import CounterNames, Reference, SubjectRule, WatchRule
from harness.runtimes.vllm_marks import ALL, GPU_ALL

WATCH: tuple[WatchRule, ...] = (
    WatchRule(
        name="jit_compilation",
        literal=b"JIT compilation during",
        pattern=re.compile(r"\bJIT compilation during inference: \S+"),
        seen=GPU_ALL,
    ),
)

ENGINE = r"Initializing a V1 LLM engine \(v.* model=.*\b"
"""The engine repeats its resolved configuration here, after defaults and overrides: what is on, not what was asked."""

SUBJECTS: Mapping[str, SubjectRule] = {
    "spec_decode": SubjectRule(
        literal=b"Initializing a V",
        pattern=re.compile(ENGINE + r"speculative_config=SpeculativeConfig\(method="),
        shown_by="config",
        seen=GPU_ALL,
    ),
    "prefix_cache": SubjectRule(
        literal=b"Initializing a V",
        pattern=re.compile(ENGINE + r"enable_prefix_caching=True"),
        shown_by="config",
        seen=ALL,
    ),
    "chunked_prefill": SubjectRule(
        literal=b"Initializing a V",
        pattern=re.compile(ENGINE + r"enable_chunked_prefill=True"),
        shown_by="config",
        seen=ALL,
    ),
    "tensor_parallel": SubjectRule(
        literal=b"world_size=",
        pattern=re.compile(r"\bworld_size=(?:[2-9]|\d\d+) rank=\d+ .* backend="),
        shown_by="effect",
        seen=("0.29.0-cuda", "0.30.0-cuda", "0.32.0-cpu"),
    ),
    "decode_context_parallel": SubjectRule(
        literal=b"Initializing a V",
        pattern=re.compile(ENGINE + r"decode_context_parallel_size=(?:[2-9]|\d\d+)"),
        shown_by="config",
        seen=(),
    ),
    "cuda_graphs": SubjectRule(
        literal=b"Graph capturing finished",
        pattern=re.compile(r"\bGraph capturing finished in "),
        shown_by="effect",
        seen=("0.30.0-cuda",),
    ),
    # No release logs it where it acts; one that knows the flag and cannot do it exits (0.28.0: "only supported for").
    "replayssm": SubjectRule(
        literal=b"non-default args",
        pattern=re.compile(r"non-default args: \{.*'model'.*'use_replayssm': True"),
        shown_by="config",
        seen=GPU_ALL,
    ),
}

COUNTERS = CounterNames(  # 0.27.1 to 0.32.0
    answered="vllm:request_success_total",
    prompt_tokens="vllm:prompt_tokens_total",
    generated_tokens="vllm:generation_tokens_total",
    prefix_queries="vllm:prefix_cache_queries_total",
    prefix_hits="vllm:prefix_cache_hits_total",
    drafts="vllm:spec_decode_num_drafts_total",
    draft_tokens="vllm:spec_decode_num_draft_tokens_total",
    accepted_tokens="vllm:spec_decode_num_accepted_tokens_total",
    accepted_per_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
)
BLOCK = ("vllm:cache_config_info", "block_size")
"""Metric and label that hold the tokens of one block on one rank (0.27.1 to 0.32.0)."""
CONTEXT_FLAGS = ("decode-context-parallel-size", "prefill-context-parallel-size")
"""Flags whose ranks share one context: a cache block of all of them is so many times longer."""

SWITCHES: Mapping[str, tuple[str, ...]] = {
    # `config` names a file of further flags.
    "spec_decode": ("speculative-config", "spec-*", "config"),
}
REFERENCES: Mapping[str, Reference] = {
    # Without drafts there is nothing to replay: 0.30.0 refuses the flag then (Model Runner V2).
    "no speculation": Reference(serve={"speculative-config": None, "use-replayssm": None}, removes="spec_decode"),
    "no prefix cache": Reference(serve={"enable-prefix-caching": False}, removes="prefix_cache"),
    "eager": Reference(serve={"enforce-eager": True}, removes="cuda_graphs"),
}
