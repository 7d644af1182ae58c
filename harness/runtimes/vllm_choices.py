"""What vLLM's log says of the code that runs: back ends, kernels, modes. One row a wording; the order is a report's.

`seen` names releases in whose logs (tests/logs/vllm) it was seen, `sources` those in whose sources only it was read:
back ends that no sample shows.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, Literal

from harness.runtimes.base import ChoiceRule
from harness.runtimes.vllm_marks import ALL, CPU_ALL, GPU_ALL

SOURCES = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
USING = b"] Using "
ENGINE = r"Initializing a V1 LLM engine \(v.*"


def _using(
    name: str,
    rest: str,
    *,
    seen: tuple[str, ...] = (),
    sources: tuple[str, ...] = SOURCES,
    value: str = "",
    tells: Literal["path", "size"] = "path",
) -> ChoiceRule:
    """A message `Using …`."""
    return ChoiceRule(
        name=name, literal=USING, pattern=re.compile("Using " + rest), seen=seen,
        sources=() if seen else sources, value=value, tells=tells,
    )  # fmt: skip


def _engine(
    name: str,
    rest: str,
    *,
    seen: tuple[str, ...] = ALL,
    counts: bool = False,
    tells: Literal["path", "size", "version"] = "path",
) -> ChoiceRule:
    """A word of the configuration that the engine repeats after defaults and overrides."""
    return ChoiceRule(
        name=name, literal=b"Initializing a V", pattern=re.compile(ENGINE + rest), seen=seen,
        sources=() if seen else SOURCES, counts=counts, tells=tells,
    )  # fmt: skip


CHOICES: tuple[ChoiceRule, ...] = (
    # --- what is loaded
    ChoiceRule(
        name="architecture",  # of the model, then of the drafter
        literal=b"Resolved architecture",
        pattern=re.compile(r"Resolved architecture: (\w+)"),
        seen=ALL,
    ),
    _engine("dtype", r", dtype=(?:torch\.)?(\w+),"),
    _engine("quantization", r", quantization=(\w+),"),
    _engine("load_format", r", load_format=([\w.]+),"),
    _engine("tokenizer_mode", r", tokenizer_mode=(\w+),"),
    # --- attention
    _using(
        "attention_backend",  # of the target's kinds of layers, then of the drafter's
        r"(?:AttentionBackendEnum\.)?(\w+) (?:attention )?backend(?:\.| out of | \(selected )",
        seen=GPU_ALL,
    ),
    _using("draft_attention_backend", r"the target model's (\w+) attention backend for the ", sources=SOURCES[2:]),
    _using("encoder_attention_backend", r"(?:default )?backend (?:AttentionBackendEnum\.)?(\w+) for vit attention"),
    _using("encoder_attention_backend", r"(?:AttentionBackendEnum\.)?(\w+) for MMEncoderAttention"),
    _using("flash_attention_version", r"FlashAttention version (\d+)", seen=GPU_ALL),
    _using("mla_prefill_backend", r"(\w+(?: SDPA)?) MLA prefill backend", seen=GPU_ALL),
    _using("kda_prefill_backend", r"(\w+) KDA prefill backend", seen=GPU_ALL),
    _using("kda_decode_backend", r"(\w+)(?: fused)? KDA decode backend", seen=GPU_ALL[1:]),
    _using("gdn_prefill_kernel", r"(\S+) GDN prefill kernel"),
    _using("mamba_ssu_backend", r"(\w+) Mamba SSU backend"),
    _using("mamba_ssu_algorithm", r"FlashInfer Mamba SSU algorithm: (\S+)"),
    _using("mamba_ssu_config", r"default Mamba SSU config", value="default"),
    _using("mamba_ssu_config", r"SSM config from \S+ for selective_state_update", value="tuned"),
    _using("replayssm_backend", r"(\w+) ReplaySSM backend", sources=SOURCES[3:]),
    ChoiceRule(
        name="mamba_cache_mode",
        literal=b"Mamba cache mode is set",
        pattern=re.compile(r"Mamba cache mode is set to '(\w+)'"),
        seen=GPU_ALL,
    ),
    # --- experts and linear layers
    _using("moe_backend", r"'?(\w[\w .-]*'?(?: \w+)*?) M[oO]E backend\b", seen=GPU_ALL),
    _using("moe_backend", r"(\w+)(?: \(weight-only FP4\))? for (?:AutoRound )?MXFP4 MoE"),
    _using("moe_backend", r"(\w+) for Kimi-K3 SiTU MXFP4 MoE", sources=("0.27.1", "0.32.0")),
    _using("moe_method", r"(\w+MoEMethod)\b"),
    _using("moe_dispatch", r"(MoEPrepareAndFinalize\w+)", seen=GPU_ALL),
    _using("moe_dispatch", r"(\w+ all2all) manager"),
    _using("moe_config", r"default (?:FlyDSL )?MoE config", seen=GPU_ALL, value="default"),
    _using("moe_config", r"(?:configuration from \S+ for MoE layer|tuned FlyDSL MoE config)", value="tuned"),
    ChoiceRule(
        name="linear_kernel",
        literal=b"] Selected ",
        pattern=re.compile(r"Selected (\w+ for \w+)"),
        sources=SOURCES,
    ),
    _using("linear_kernel", r"(\w+ for (?:\w+ GEMM|CompressedTensors\w+|AutoGPTQ\w+|AutoAWQ\w+))"),
    _using("linear_kernel", r"(FlashInfer \S+) for eligible unquantized BF16 GEMMs", sources=SOURCES[2:]),
    _using("linear_config", r"default (W8A8 Block \w+) kernel config", value="default"),
    _using("linear_config", r"configuration from \S+ for W8A8 Block", value="tuned"),
    # --- cache
    _engine("kv_cache_dtype", r", kv_cache_dtype=(\w+),"),
    _using("kv_cache_format", r"(?:DeepSeek's )?(\w+)(?: fp8)? KV cache format"),
    _using("kv_cache_layout", r"(\w+) KV cache layout", seen=ALL),
    _engine("prefix_caching", r", enable_prefix_caching=(\w+),"),
    _engine("chunked_prefill", r", enable_chunked_prefill=(\w+),"),
    # --- compilation and graphs
    _engine("eager", r", enforce_eager=(\w+),"),
    _engine("compile_mode", r"compilation_config=\{'mode': <CompilationMode\.(\w+)"),
    _engine("compile_backend", r"compilation_config=\{.*'backend': '(\w+)'"),
    _engine("custom_ops", r"compilation_config=\{.*'custom_ops': (\[[^\]]*\])"),
    ChoiceRule(
        name="custom_fusions",
        literal=b"Enabled custom fusions",
        pattern=re.compile(r"Enabled custom fusions: (.+)"),
        seen=(*GPU_ALL, *CPU_ALL[1:4], "0.32.0-cpu"),
    ),
    _engine("kernel_priority", r"ir_op_priority=IrOpPriorityConfig\(([^)]*)\)"),
    _engine("cudagraph_mode", r"'cudagraph_mode': <CUDAGraphMode\.(\w+)"),  # then what a back end made of it
    ChoiceRule(
        name="cudagraph_mode",
        literal=b"cudagraph_mode",
        pattern=re.compile(r"CUDAGraphMode\.\w+ is not .*; setting cudagraph_mode=(\w+)"),
        sources=SOURCES,
    ),
    ChoiceRule(
        name="cudagraph_mode",
        literal=b"cudagraph_mode",
        pattern=re.compile(r".*Overriding cudagraph_mode (?:from )?(?:\S+ )?to (\w+)"),
        sources=SOURCES,
    ),
    ChoiceRule(
        name="breakable_cudagraph",
        literal=b"Breakable CUDA graph",
        pattern=re.compile(r"Breakable CUDA graph enabled"),
        seen=GPU_ALL,
        value="on",
    ),
    ChoiceRule(
        name="captured_graphs",
        literal=b"Capturing ",
        pattern=re.compile(r"Capturing (?:(\w+) )?CUDA graphs \((\w+)\): +0%"),
        seen=GPU_ALL,
    ),
    # --- sampling and speculation
    _using("sampler", r"(FlashInfer|the fused XPU kernel) for top-p & top-k sampling", seen=GPU_ALL),
    _using("sampler", r"(aiter) sampler"),
    ChoiceRule(
        name="sampler",
        literal=b"FlashInfer ",
        pattern=re.compile(r"FlashInfer top-p/top-k sampling (?:disabled|unavailable)"),
        sources=SOURCES,
        value="PyTorch",
    ),
    _engine("speculation", r" model='[^']*', speculative_config=(?:SpeculativeConfig\(method=')?(\w+)"),
    _engine("draft_tokens", r"speculative_config=SpeculativeConfig\(method=.*num_spec_tokens=(\d+)", seen=GPU_ALL),
    # --- processes and communication
    _using("model_runner", r"(V\d) Model Runner", seen=GPU_ALL),
    ChoiceRule(
        name="model_runner",
        literal=b" model runner",
        pattern=re.compile(r".*using the (V\d) model runner"),
        seen=CPU_ALL,
    ),
    ChoiceRule(
        name="executor",
        literal=b"DP group leader: ",
        pattern=re.compile(r"DP group leader: node_rank="),
        seen=ALL,
        value="worker processes",
    ),
    _using("scheduler", r"custom scheduler class (\S+?)\.? ", seen=("0.32.0-cpu",)),
    ChoiceRule(
        name="async_scheduling",
        literal=b"Async scheduling ",
        pattern=re.compile(r"Async scheduling (?:not supported|is not compatible|will be disabled|is disabled)"),
        sources=SOURCES,
        value="off",
    ),
    ChoiceRule(
        name="collective_backend",
        literal=b"world_size=",
        pattern=re.compile(r"world_size=\d+ rank=\d+ .* backend=(\w+)"),
        seen=ALL,
    ),
    _using("all_reduce_backends", r"(\[.*?\]) all-reduce backends .* for group '(\w+):\d+'", seen=GPU_ALL),
    _using("flashinfer_all_reduce", r"flashinfer allreduce backend: (\w+)"),
    ChoiceRule(
        name="flashinfer_all_reduce",
        literal=b"FlashInfer ",
        pattern=re.compile(r"Initialized FlashInfer .*\bbackend=(\w+)"),
        seen=GPU_ALL,
    ),
    ChoiceRule(
        name="symmetric_memory",
        literal=b"SymmMemCommunicator: ",
        pattern=re.compile(r"SymmMemCommunicator: .*not supported"),
        seen=GPU_ALL,
        value="off",
    ),
    _engine("custom_all_reduce_disabled", r", disable_custom_all_reduce=(\w+),"),
    ChoiceRule(
        name="custom_all_reduce_disabled",
        literal=b"Custom allreduce is disabled",
        pattern=re.compile(r"Custom allreduce is disabled"),
        sources=SOURCES,
        value="True",
    ),
    # --- what is made of answers
    _engine(
        "reasoning_parser",
        r"structured_outputs_config=StructuredOutputsConfig\(.*reasoning_parser='(\w+)'",
        seen=GPU_ALL,
    ),
    ChoiceRule(
        name="tool_call_parser",
        literal=b"non-default args",
        pattern=re.compile(r"non-default args: \{.*'tool_call_parser': '(\w+)'"),
        seen=(*GPU_ALL, "0.32.0-cpu"),
    ),
    _engine("structured_outputs_backend", r"structured_outputs_config=StructuredOutputsConfig\(backend='(\w+)'"),
    ChoiceRule(
        name="chat_template_format",
        literal=b"chat template content format",
        pattern=re.compile(r"Detected the chat template content format to be '(\w+)'"),
        seen=ALL,
    ),
    # --- sizes
    _engine("max_model_len", r", max_seq_len=(\d+),", tells="size"),
    _engine("cudagraph_sizes", r"'cudagraph_capture_sizes': \[([^\]]*)\]", counts=True, tells="size"),
    ChoiceRule(
        name="captured_graph_counts",
        literal=b"Capturing ",
        pattern=re.compile(r"Capturing (?:(\w+) )?CUDA graphs \((\w+)\): +0%\|.*?\| 0/(\d+)"),
        seen=GPU_ALL,
        tells="size",
    ),
    ChoiceRule(
        name="attention_block_tokens",
        literal=b"attention block size to",
        pattern=re.compile(r"Setting attention block size to (\d+) tokens"),
        seen=GPU_ALL,
        tells="size",
    ),
    ChoiceRule(
        name="kv_cache_blocks",  # of each group of layers, in tokens
        literal=b"kv cache group sizes",
        pattern=re.compile(r"kv cache group sizes (\[[^\]]*\])"),
        seen=("0.30.0-cuda",),
        tells="size",
    ),
    ChoiceRule(
        name="kv_cache_tokens",
        literal=b"KV cache size",
        pattern=re.compile(r"[CG]PU KV cache size: ([\d,]+) tokens"),
        seen=ALL,
        tells="size",
    ),
    _using("draft_target_layers", r"(?:Eagle3 )?auxiliary layers from [\w ]+: (\(.*?\))", seen=GPU_ALL, tells="size"),
    # --- versions
    ChoiceRule(
        name="vllm",
        literal=b"Initializing a V",
        pattern=re.compile(r"Initializing a V1 LLM engine \(v([^)]+)\)"),
        seen=ALL,
        tells="version",
    ),
    ChoiceRule(
        name="nccl",
        literal=b"vLLM is using nccl",
        pattern=re.compile(r"vLLM is using nccl==(\S+)"),
        seen=("0.29.0-cuda",),
        tells="version",
    ),
)

ARGUMENTS = re.compile(r"non-default args: (\{.*\})\s*$")
NO_FLAGS = frozenset({"model_tag", "host", "port", "served_model_name", "api_key"})


def accepted(message: str) -> Mapping[str, Any] | None:
    """The flags that were given and are no default, by their names on a command line; None for any other message.

    A value that is no literal of Python (an enumeration) makes the whole unreadable: then nothing is said.
    """
    found = ARGUMENTS.match(message)
    if not found:
        return None
    try:
        given = ast.literal_eval(found[1])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return {str(name).replace("_", "-"): value for name, value in given.items() if name not in NO_FLAGS}
