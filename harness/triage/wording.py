"""A message without what moves from night to night: one ordered table, and what makes a message say too little.

`GROUPING` is part of every signature's id: raise it when a change here, or of the kinds, gives known failures new ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable

GROUPING = 2

Replacement = str | Callable[[re.Match[str]], str]


def _sorted(found: re.Match[str]) -> str:
    """A set prints in another order in every process."""
    return "{" + ", ".join(sorted(dict.fromkeys(found[1].split(", ")))) + "}"


NORMALISE: tuple[tuple[re.Pattern[str], Replacement], ...] = (
    # --- lists that grow with every release, and reports that follow a sentence
    (re.compile(r"(Supported architectures: ).*", re.DOTALL), r"\1…"),
    (re.compile(r"(\(choo?se from ).*\)", re.DOTALL), r"\1…)"),
    (
        re.compile(r"(\b(?:Available|Registered|Supported|Known) [\w ]+: ).*", re.DOTALL),
        r"\1…",
    ),
    (re.compile(r"((?:CUDA|HIP|XPU) out of memory\. Tried to allocate \S+ \w+\.).*", re.DOTALL), r"\1"),
    (re.compile(r"(CUDA error: [^\n.]+).*", re.DOTALL), r"\1"),
    # --- identities of one run
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?"), "<time>"),
    (re.compile(r"\b(thread )\d+"), r"\1<n>"),
    (re.compile(r"\(Request ID: [^)]*\)"), ""),
    (re.compile(r"\bhttps?://[^\s'\",)]+"), "<url>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{32,64}\b"), "<hash>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<address>"),
    (re.compile(r"\b(pid[ =:]*)\d+"), r"\1<pid>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\blocalhost:\d+\b"), "<host>"),
    (re.compile(r"(?<=[\]>]):\d{2,5}\b"), ":<port>"),
    (re.compile(r"\b([Pp]ort[ =:]*)\d+"), r"\1<port>"),
    # --- paths: inside the server's package they mean something, elsewhere they are where somebody put things
    (
        re.compile(r"(?<![\w.@+~/-])(?:/[\w.@+~-]+)+/((?:vllm|sglang|text_generation_server)/[\w/]+\.py)(?::\d+)?"),
        r"\1",
    ),
    (re.compile(r"(?:file:/)?(?<![\w.>])/(?:[\w.@+~-]+/)*[\w.@+~-]+"), "<path>"),
    # --- ranks, devices and layers: the same bug on another one
    (
        re.compile(r"\b([Rr]ank[ =:]*|cuda:|VllmWorker-|Worker_TP|Worker_DP|EngineCore_DP|EngineCore_|GPU )\d+"),
        r"\1<n>",
    ),
    (re.compile(r"\b(layers?[. ])\d+\b"), r"\1<n>"),
    (re.compile(r"\{('[^'{}]*'(?:, '[^'{}]*')+)\}"), _sorted),
    # --- amounts: sizes, times, large counts
    (re.compile(r"(?<![\d.])\d+(?:\.\d+)?/(?=\d+(?:\.\d+)? ?[KMGT]i?B)"), "<size>/"),
    (re.compile(r"(?<![\d,.])\d[\d,]*(?:\.\d+)? ?(?:[KMGT]i?B|bytes)\b"), "<size>"),
    (re.compile(r"(?<![\d.])\d+(?:\.\d+)? ?(?:seconds|secs?|milliseconds|ms|us|s|minutes|min)\b"), "<time>"),
    (re.compile(r"(?<![\d,])\d{1,3}(?:,\d{3})+\b"), "<count>"),
    (re.compile(r"\b\d+\.\d{3,}\b"), "<number>"),
    (re.compile(r"\b\d{4,}\b"), "<count>"),
    # Left alone because they tell bugs apart: HTTP status, errno, exit codes, signals, and every other number of up to
    # three digits ("declares 4 states, but provides 2").
    (re.compile(r"\s+"), " "),
)

PYDANTIC = re.compile(r"\s*\[type=[^\n]*|^\s*For further information visit [^\n]*", re.MULTILINE)
"""What pydantic says of each error beside the error: its type, the whole input, where to read more."""

SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b((?:tensor [a-z]|dimension size|length) \()\d+\)"), r"\1<n>)"),
    (re.compile(r"\[\d+(?:, \d+)+\]"), "[<shape>]"),
)
"""What changes with the number of ranks, and so is no part of an identity; a title keeps it."""

HEADLINES: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...] = (
    # pydantic: "1 validation error for ModelConfig\n  Value error, SENTENCE [type=value_error, input_value=…".
    # The first line says nothing; PYDANTIC takes the input, which follows `[type=`, out of every error.
    (
        re.compile(r"^\d+ validation errors? for \w+$"),
        re.compile(r"^\d+ validation errors? for \w+\n(?P<said>.*)$", re.DOTALL),
    ),
    (
        re.compile(r"^argument \S+: \d+ validation errors? for \w+$"),
        re.compile(r"^(?P<said>.*)$", re.DOTALL),
    ),
    # The hub's client: the status, then who refused what.
    (re.compile(r"^\d{3} (?:Client|Server) Error\b.*$"), re.compile(r"^(?P<said>.*)$", re.DOTALL)),
    # Triton: the place in the kernel, its source, and at last the reason.
    (re.compile(r"^at \d+:\d+:?$"), re.compile(r"^.*\n(?P<said>[^\n]*\S[^\n]*)\s*$", re.DOTALL)),
    # An empty first line, or one that only announces: the next one says it.
    (re.compile(r"^\s*$"), re.compile(r"^\s*(?P<said>\S[^\n]*)")),
)
"""First lines that say nothing, and where in the whole message the sentence stands (group `said`)."""

GENERIC = re.compile(
    r"|\d+|list index out of range|tuple index out of range|division by zero|invalid argument|assertion failed"
    r"|'NoneType' object .*|an illegal memory access was encountered|unspecified launch failure"
    r"|Triton Error \[CUDA\]: .*|Segmentation fault|Bus error|Aborted|Illegal instruction|Repo id must be .*"
    r"|\[Errno 2\] No such file or directory(?:: '<path>')?|Expecting value: .*|Expecting property name .*"
    r"|No module named '[^']*'|the log ends inside a traceback|maximum recursion depth exceeded.*|invalid syntax.*"
)
"""Messages (whole) that any bug could have: only with their function are they an identity."""

ASYNCHRONOUS = re.compile(
    r"CUDA error: (?!out of memory|no kernel image|invalid device)|illegal memory access|unspecified launch failure"
    r"|device-side assert|misaligned address"
)
"""Reported by whichever call comes next: the stack is where it was noticed, not where it happened."""
PLUMBING = frozenset(
    {
        "sync_wrapper",
        "async_wrapper",
        "decorate_context",
        "wrapper",
        "wrapped",
        "inner",
        "_inner_fn",
        "__call__",
        "__torch_function__",
        "__torch_dispatch__",
        "resolve_obj_by_qualname",
    }
)
"""Functions of the server that only pass calls on: never the one to name in a title."""

OWN_PACKAGES = ("vllm", "sglang", "text_generation_server")
"""Top-level packages of servers: their functions are the ones to name."""
