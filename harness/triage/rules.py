"""What triage knows, as tables. The algorithm stands in `triage.py`; a rule arrives with the log that proves it.

Order matters in every table: the first row that matches speaks. `GROUPING` is part of every signature's id: raise it
when a change of `KINDS`, `NORMALISE`, `HEADLINES` or `GENERIC` gives known failures new ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import Blame
from harness.signature import Kind

GROUPING = 1

ANYTHING = re.compile(r"")


@dataclass(frozen=True, kw_only=True, slots=True)
class WrapperRule:
    """A messenger: it says that something failed elsewhere, so it never wins over what failed."""

    exception: re.Pattern[str] = ANYTHING
    """On the class name without its module."""
    message: re.Pattern[str] = ANYTHING
    fatal: bool = False
    """True: it is only ever printed by a failure, so a log that holds nothing else is a failure too."""


WRAPPERS: tuple[WrapperRule, ...] = (
    WrapperRule(message=re.compile(r"Engine core initialization failed"), fatal=True),
    WrapperRule(message=re.compile(r"WorkerProc initialization failed due to an exception"), fatal=True),
    WrapperRule(message=re.compile(r"Worker failed with error "), fatal=True),
    WrapperRule(
        message=re.compile(r"[Ss]ee (?:the )?(?:root cause|stack trace)"),
        exception=re.compile(r"^(?!EngineDeadError)"),
        fatal=True,
    ),
    WrapperRule(message=re.compile(r"died unexpectedly"), fatal=True),
    WrapperRule(exception=re.compile(r"^RuntimeError$"), message=re.compile(r"^Executor failed\.$"), fatal=True),
    # Printed by many a clean SIGTERM: no failure by itself.
    WrapperRule(exception=re.compile(r"^Engine(?:Dead|Generate)Error$")),
    WrapperRule(exception=re.compile(r"^(?:CancelledError|KeyboardInterrupt|SystemExit|GeneratorExit|EOFError)$")),
    WrapperRule(exception=re.compile(r"^(?:BrokenPipeError|ConnectionResetError|ConnectionAbortedError)$")),
    WrapperRule(exception=re.compile(r"^(?:ContextTerminated|ZMQError)$")),
    WrapperRule(exception=re.compile(r"^(?:RuntimeError|Exception)$"), message=re.compile(r"^cancell?ed$")),
)

HARMLESS_LEVELS = frozenset({"DEBUG", "INFO", "WARNING"})
"""A traceback logged at these levels (an optional extension that does not load) is no failure."""
HARMLESS_HEADER = re.compile(r"^Exception ignored in")

WORTH = (
    "Traceback (most", "Exception ignored", "ERROR ", "CRITICAL ", ": error: ", "unexpectedly", "initialization failed",
    "core proc", "world", "hutdown", "hutting", "(Worker",
)  # fmt: skip
"""A line without any of these, outside a traceback, says nothing about a failure: only the phases may care for it."""

UNWRAP = re.compile(r"Worker failed with error '(?P<inner>.*)', please check the stack trace", re.DOTALL)
"""The engine's copy of a worker's message: the cause, where the worker's own traceback is lost."""

USAGE = re.compile(r"^[\w./-]+(?: [\w-]+){0,3}: error: (?P<message>.+)")
"""argparse (exit 2), on stderr, without a tag. The program's name differs (`vllm`, `vllm serve`, `main.py`)."""

SHUTDOWN = re.compile(r"\[shutdown\] API server: shutdown triggered|^INFO: +Shutting down$")
"""From here on the server was told to stop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeathRule:
    """A line by which another process reports a death without a traceback of its own."""

    pattern: re.Pattern[str]
    """Groups `process` (else `default`) and `code` (a negative code is a signal)."""
    default: str = "EngineCore"
    hearsay: bool = False
    """It only says that a process failed: a death where that process spoke in the log, and then no more."""


DEATHS: tuple[DeathRule, ...] = (
    DeathRule(pattern=re.compile(r"Failed core proc\(s\): \{'(?P<process>[\w-]+)': (?P<code>-\d+)")),
    DeathRule(
        pattern=re.compile(r"Worker proc (?P<process>[\w-]+) died unexpectedly(?: \(exit code: (?P<code>-?\d+)\))?"),
        default="Worker",
    ),
    DeathRule(pattern=re.compile(r"Engine core proc (?P<process>[\w-]+) died unexpectedly")),
    DeathRule(pattern=re.compile(r"engine core exited unexpectedly")),
    # A worker that raised would have logged its traceback before.
    DeathRule(
        pattern=re.compile(r"WorkerProc initialization failed due to an exception"), default="Worker", hearsay=True
    ),
    # Up to 0.29 the braces are empty whatever happened (0.32: {'EngineCore': -9}).
    DeathRule(pattern=re.compile(r"Engine core initialization failed.* Failed core proc\(s\): \{\}"), hearsay=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class KindRule:
    """All three must match: class name, first sentence of the message, `file:function` of the deepest own frame."""

    kind: Kind
    exception: re.Pattern[str] = ANYTHING
    message: re.Pattern[str] = ANYTHING
    where: re.Pattern[str] = ANYTHING


KINDS: tuple[KindRule, ...] = (
    KindRule(
        kind="oom_gpu",
        message=re.compile(r"(?:CUDA|HIP|XPU) out of memory|[Ff]ree memory on device .* is less than desired"),
    ),
    KindRule(kind="oom_gpu", exception=re.compile(r"^OutOfMemoryError$")),
    KindRule(kind="oom_host", exception=re.compile(r"^MemoryError$")),
    KindRule(
        kind="oom_host",
        message=re.compile(r"Cannot allocate memory|DefaultCPUAllocator: can't allocate|not enough memory: you tried"),
    ),
    KindRule(
        kind="oom_kv_cache",
        message=re.compile(
            r"No available memory for the cache blocks|KV cache is needed|can be stored in (?:the )?KV cache"
            r"|available KV cache memory"
        ),
    ),
    KindRule(kind="disk_full", message=re.compile(r"\[Errno 28\]|No space left on device")),
    KindRule(kind="port_in_use", message=re.compile(r"\[Errno 98\]|[Aa]ddress already in use")),
    KindRule(
        kind="unsupported_gpu",
        message=re.compile(r"[Cc]ompute capability|no kernel image is available|Failed to infer device type"),
    ),
    KindRule(kind="nccl", exception=re.compile(r"^Dist\w*Error$|NCCL"), message=ANYTHING),
    KindRule(
        kind="nccl",
        message=re.compile(r"NCCL (?:error|[Ww]arning)|ncclUnhandled|ncclSystem|ncclInternal|ProcessGroupNCCL"),
    ),
    KindRule(
        kind="cuda_error",
        message=re.compile(r"CUDA error|CUDA driver error|cudaError|illegal memory access|device-side assert"),
    ),
    KindRule(
        kind="compile_error",
        exception=re.compile(
            r"^(?:InductorError|BackendCompilerFailed|CppCompileError|CompilationError|PTXASError|LoweringException)$"
        ),
    ),
    KindRule(
        kind="hub_access",
        exception=re.compile(
            r"^(?:HFValidationError|RepositoryNotFoundError|GatedRepoError|RevisionNotFoundError|EntryNotFoundError"
            r"|LocalEntryNotFoundError|OfflineModeIsEnabled|HfHubHTTPError)$"
        ),
    ),
    KindRule(
        kind="hub_access",
        message=re.compile(
            r"Repo id must be in the form|not a valid model identifier|couldn't connect to '?https?:"
            r"|\b40[134] Client Error"
        ),
    ),
    KindRule(
        kind="model_unsupported",
        message=re.compile(
            r"[Aa]rchitectures? .*not (?:currently )?supported|not recogni[sz]e this architecture"
            r"|no vLLM implementation"
        ),
    ),
    # A configuration that is no JSON says so in any words, but from here.
    KindRule(
        kind="config_invalid", message=re.compile(r"not a valid JSON file|No such file or directory: '.*config\.json'")
    ),
    KindRule(kind="tokenizer", message=re.compile(r"[Tt]okenizer")),
    KindRule(kind="tokenizer", where=re.compile(r"tokenizer", re.IGNORECASE)),
    KindRule(kind="weights", exception=re.compile(r"^SafetensorError$")),
    KindRule(
        kind="weights",
        message=re.compile(
            r"Cannot find any model weights|no module or parameter named|size mismatch"
            r"|were not initialized from checkpoint"
        ),
    ),
    KindRule(
        kind="weights",
        where=re.compile(r":(?:\w*weight_loader\w*|load_\w*weights?|\w*weights_iterator)$"),
    ),
    KindRule(kind="import_error", exception=re.compile(r"^(?:ImportError|ModuleNotFoundError|PackageNotFoundError)$")),
    KindRule(kind="config_invalid", exception=re.compile(r"^ValidationError$")),
    KindRule(
        kind="config_invalid",
        exception=re.compile(r"^(?:ValueError|NotImplementedError|TypeError|AssertionError)$"),
        where=re.compile(r"^vllm/(?:config/|engine/arg_utils\.py)"),
    ),
    KindRule(kind="python_exception"),
)

HEADLINES: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...] = (
    # pydantic: "1 validation error for ModelConfig\n  Value error, SENTENCE [type=value_error, input_value=…".
    # The first line says nothing, and what follows `[type=` is the whole input.
    (
        re.compile(r"^\d+ validation errors? for \w+$"),
        re.compile(
            r"^\d+ validation errors? for \w+\n(?P<said>.*?)(?:\s*\[type=.*|\s*For further information.*)?$", re.DOTALL
        ),
    ),
)
"""First lines that say nothing, and where in the whole message the sentence stands (group `said`)."""

NORMALISE: tuple[tuple[re.Pattern[str], str], ...] = (
    # --- lists that grow with every release
    (re.compile(r"(Supported architectures: ).*", re.DOTALL), r"\1…"),
    (re.compile(r"(\(choose from ).*\)", re.DOTALL), r"\1…)"),
    # --- identities of one run
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{32,64}\b"), "<hash>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<address>"),
    (re.compile(r"\b(pid[ =:]*)\d+"), r"\1<pid>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\blocalhost:\d+\b"), "<host>"),
    (re.compile(r"\b([Pp]ort[ =:]*)\d+"), r"\1<port>"),
    # --- paths: inside the server's package they mean something, elsewhere they are where somebody put things
    (re.compile(r"(?:/[\w.@+~-]+)+/(vllm/[\w/]+\.py)(?::\d+)?"), r"\1"),
    (re.compile(r"(?:file:/)?(?<![\w.>])/(?:[\w.@+~-]+/)*[\w.@+~-]+"), "<path>"),
    # --- ranks and devices
    (re.compile(r"\b([Rr]ank[ =:]*|cuda:|VllmWorker-|Worker_TP|EngineCore_DP|GPU )\d+"), r"\1<n>"),
    # --- amounts: sizes, times, large counts
    (re.compile(r"\b\d[\d,]*(?:\.\d+)? ?(?:[KMGT]i?B|bytes)\b"), "<size>"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:seconds|secs?|ms|us|s|minutes|min)\b"), "<time>"),
    (re.compile(r"\b\d{1,3}(?:,\d{3})+\b"), "<count>"),
    (re.compile(r"\b\d+\.\d{3,}\b"), "<number>"),
    (re.compile(r"\b\d{4,}\b"), "<count>"),
    # Left alone because they tell bugs apart: HTTP status, errno, exit codes, signals, and every other number of up to
    # three digits ("declares 4 states, but provides 2").
    (re.compile(r"\s+"), " "),
)

GENERIC = re.compile(
    r"|\d+|list index out of range|tuple index out of range|division by zero|invalid argument|assertion failed"
    r"|'NoneType' object .*|an illegal memory access was encountered|unspecified launch failure"
    r"|CUDA error: .*|Triton Error \[CUDA\]: .*"
)
"""Messages (whole) that any bug could have: only with their function are they an identity."""

PLUMBING = frozenset(
    {"sync_wrapper", "async_wrapper", "decorate_context", "wrapper", "wrapped", "inner", "_inner_fn", "__call__"}
)
"""Functions of the server that only pass calls on: never the one to name in a title."""

BLAME: Mapping[Kind, Blame] = {
    "python_exception": "product", "oom_gpu": "product", "oom_kv_cache": "product", "nccl": "product",
    "cuda_error": "product", "compile_error": "product", "model_unsupported": "product",
    "weights": "product", "tokenizer": "product",
    "import_error": "product", "hang": "product", "check_failed": "product", "other": "product",
    # A flag that vanished is a regression.
    "config_invalid": "product", "cli_usage": "product",
    "oom_host": "node", "disk_full": "node",
    "port_in_use": "node",  # the port was ours to choose
    "killed_signal": "node",  # somebody outside sent it; `blame()` knows the signals that a program gives itself
    "unsupported_gpu": "scenario",  # unmet needs
    "hub_access": "scenario",  # 401, 403, 404, a missing model folder
}  # fmt: skip

OWN_SIGNALS = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP"})
"""Signals that a program gets from its own mistake."""

FIXES: Mapping[Kind, str] = {
    "oom_host": "free memory on the node, or ask for less: smaller model, VLLM_CPU_KVCACHE_SPACE, fewer ranks",
    "disk_full": "free space under the caches and the temporary folder, then run it again",
    "port_in_use": "run it again: another process took the port between the choice and the bind",
    "killed_signal": "see who sent the signal (kernel log for the OOM killer, the CI agent's log), then run it again",
    "unsupported_gpu": "run it on a node with the GPU that the scenario needs, and name it under `needs`",
    "hub_access": "check `model` and `revision` in the scenario (paths start with ./ or /), and this node's hub token",
}
"""What to do where the fault is not the product's."""
