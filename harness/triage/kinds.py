"""Which kind of failure it is, whose fault that kind is, and what to do about it: tables.

Order matters: the first row that matches speaks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness import xid
from harness.errors import Blame
from harness.signature import Kind

ANYTHING = re.compile(r"")


@dataclass(frozen=True, kw_only=True, slots=True)
class KindRule:
    """All three must match: class name, first sentence of the message, `file:function` of the deepest own frame."""

    kind: Kind
    exception: re.Pattern[str] = ANYTHING
    message: re.Pattern[str] = ANYTHING
    where: re.Pattern[str] = ANYTHING


KINDS: tuple[KindRule, ...] = (
    # --- resources: whatever class says so, the sentence decides (an InductorError may hold an out-of-memory)
    KindRule(
        kind="oom_gpu",
        message=re.compile(r"(?:CUDA|HIP|XPU) out of memory|[Ff]ree memory on device .* is less than desired"),
    ),
    KindRule(kind="oom_host", message=re.compile(r"the node running low on memory")),
    KindRule(kind="oom_gpu", exception=re.compile(r"^OutOfMemoryError$")),
    KindRule(kind="oom_host", exception=re.compile(r"^MemoryError$")),
    KindRule(
        kind="oom_host",
        message=re.compile(
            r"Cannot allocate memory|DefaultCPUAllocator: can't allocate|not enough memory: you tried"
            r"|less than requested memory for kv|std::bad_alloc|failed to map segment from shared object"
        ),
    ),
    KindRule(
        kind="oom_kv_cache",
        message=re.compile(
            r"No available memory for the cache blocks|KV cache is needed|can be stored in (?:the )?KV cache"
            r"|available KV cache memory|Not enough memory\. Please try to increase --mem-fraction-static"
        ),
    ),
    KindRule(kind="disk_full", message=re.compile(r"\[Errno 28\]|No space left on device")),
    KindRule(kind="port_in_use", message=re.compile(r"\[Errno 98\]|[Aa]ddress already in use|EADDRINUSE")),
    # --- the GPU and what joins several
    KindRule(
        kind="unsupported_gpu",
        message=re.compile(r"[Cc]ompute capability|no kernel image is available|Failed to infer device type"),
    ),
    KindRule(kind="nccl", exception=re.compile(r"^Dist\w*Error$|NCCL|^c10::Dist\w*Error$")),
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
            r"^(?:InductorError|BackendCompilerFailed|CppCompileError|CompilationError|PTXASError|LoweringException"
            r"|InvalidCxxCompiler)$"
        ),
    ),
    # --- the hub
    KindRule(
        kind="hub_access",
        exception=re.compile(
            r"^(?:HFValidationError|RepositoryNotFoundError|GatedRepoError|RevisionNotFoundError|EntryNotFoundError"
            r"|RemoteEntryNotFoundError|LocalEntryNotFoundError|OfflineModeIsEnabled|HfHubHTTPError)$"
        ),
    ),
    KindRule(
        kind="hub_access",
        message=re.compile(
            r"Repo id must be in the form|not a valid model identifier|couldn't connect to '?https?:"
            r"|\b(?:40[134]|50\d) (?:Client|Server) Error|error '(?:40[134]|50\d) [\w ]+' for url"
        ),
    ),
    # --- what was asked for
    KindRule(
        kind="model_unsupported",
        message=re.compile(
            r"[Aa]rchitectures? .*not (?:currently )?supported|not recogni[sz]e this architecture"
            r"|no vLLM implementation"
        ),
    ),
    # A configuration that is no JSON says so in any words, but from here.
    KindRule(
        kind="config_invalid", message=re.compile(r"not a valid JSON file|No such file or directory: '.*/config\.json'")
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
    KindRule(kind="weights", message=re.compile(r"\.(?:safetensors|gguf|bin|pt)'$")),
    KindRule(kind="weights", where=re.compile(r"safetensors")),
    KindRule(
        kind="weights",
        exception=re.compile(r"^(?!(?:ImportError|ModuleNotFoundError|PackageNotFoundError)$)"),
        where=re.compile(r":(?:\w*weight_loader\w*|load_\w*weights?|\w*weights_iterator)$"),
    ),
    KindRule(kind="import_error", exception=re.compile(r"^(?:ImportError|ModuleNotFoundError|PackageNotFoundError)$")),
    KindRule(kind="config_invalid", exception=re.compile(r"^ValidationError$")),
    KindRule(
        kind="config_invalid",
        exception=re.compile(r"^(?:ValueError|NotImplementedError|TypeError|AssertionError|KeyError)$"),
        where=re.compile(r"^vllm/(?:config/|engine/arg_utils\.py|envs\.py|entrypoints/openai/cli_args\.py)"),
    ),
    KindRule(kind="config_invalid", where=re.compile(r":(?:validate_parsed_serve_args|get_act_fn|get_rope)$")),
    KindRule(kind="config_invalid", message=re.compile(r"invalid tool call parser|[Pp]arser '\w+' not found")),
    # --- deaths in native code
    KindRule(kind="killed_signal", exception=re.compile(r"^(?:SIG[A-Z]+|Fatal Python error)$")),
    KindRule(kind="python_exception"),
)

PLAIN: frozenset[Kind] = frozenset({"python_exception", "other", "compile_error", "import_error", "config_invalid"})
"""Kinds that say little: along a chain of exceptions, one that says more is the cause that matters."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class ClearRule:
    """A message that says whose fault it is, whatever is usual for its kind."""

    kind: Kind
    message: re.Pattern[str]
    blame: Blame


CLEAR: tuple[ClearRule, ...] = (
    ClearRule(
        kind="oom_gpu", message=re.compile(r"Free memory on device .* on startup"), blame="node"
    ),  # held by others
    # The table of Xids says whose; one that only tells something, in place of a cause, shows nothing of the node.
    ClearRule(
        kind="cuda_error",
        message=re.compile(rf"^Xid (?:{'|'.join(map(str, xid.numbers('application', 'nobody')))})$"),
        blame="product",
    ),
    ClearRule(kind="cuda_error", message=re.compile(r"^Xid \d+"), blame="node"),
    ClearRule(  # an outage
        kind="hub_access", message=re.compile(r"\b50\d\b|couldn't connect to|Connection refused"), blame="node"
    ),
)

OWN_SIGNALS = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP"})
"""Signals that a program gets from its own mistake."""
DUMPED_SIGNALS: Mapping[str, str] = {
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "Illegal instruction": "SIGILL",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
}
"""A signal in the words of faulthandler and of shells."""

FIXES: Mapping[Kind, str] = {
    "oom_gpu": "another process holds memory of the GPU: end it, or wait for it, then run it again",
    "oom_host": "free memory on the node, or ask for less: smaller model, VLLM_CPU_KVCACHE_SPACE, fewer ranks",
    "disk_full": "free space under the caches and the temporary folder, then run it again",
    "port_in_use": "run it again: another process took the port between the choice and the bind",
    "killed_signal": "see who sent the signal (kernel log for the OOM killer, the CI agent's log), then run it again",
    "cuda_error": "the driver reported a fault of the GPU (Xid): drain the node and look at its kernel log",
    "unsupported_gpu": "run it on a node with the GPU that the scenario needs, and name it under `needs`",
    "hub_access": "see that this node reaches the hub, and check its token, and `model` and `revision` in the scenario"
    " (paths start with ./ or /)",
}
"""What to do where the fault is not the product's."""
