"""What a server says it chose: the table of wordings, several values of one choice, ranks that differ."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import loglines, record
from harness.choices import Listener
from harness.report import summary
from harness.runtimes.vllm import VLLM
from tests import runs

LOGS = Path(__file__).parent / "logs" / "vllm"
RELEASE = re.compile(r"(\d+\.\d+\.\d+-(?:cpu|cuda))-")
HEAD = "(EngineCore pid=7) INFO 11-30 22:04:20 [cuda.py:538] "


def heard(*lines: str) -> Listener:
    listener = Listener(VLLM)
    for line in loglines.read(lines):
        listener.look(line)
    return listener


def choices(stem: str) -> dict[str, tuple[str, ...]]:
    return heard(*(LOGS / f"{stem}.log").read_bytes().decode("utf-8", "replace").split("\n")).choices


def said(message: str) -> dict[str, tuple[str, ...]]:
    return heard(HEAD + message).choices


ONE_GPU = {
    "architecture": ("KimiLinearForCausalLM", "K3DSparkModel"),
    "dtype": ("bfloat16",),
    "quantization": ("None",),
    "load_format": ("dummy",),
    "tokenizer_mode": ("auto",),
    "attention_backend": ("FLASH_ATTN_MLA", "TRITON_MLA"),
    "mla_prefill_backend": ("FLASH_ATTN",),
    "kda_prefill_backend": ("FlashKDA",),
    "mamba_cache_mode": ("align",),
    "moe_backend": ("TRITON Unquantized", "TritonExperts"),
    "moe_dispatch": ("MoEPrepareAndFinalizeNoDPEPModular",),
    "moe_config": ("default",),
    "kv_cache_dtype": ("auto",),
    "kv_cache_layout": ("LBNHC",),
    "prefix_caching": ("True",),
    "chunked_prefill": ("True",),
    "eager": ("False",),
    "compile_mode": ("NONE",),
    "compile_backend": ("inductor",),
    "custom_ops": ("[all]",),
    "custom_fusions": ("norm_quant, act_quant",),
    "kernel_priority": (
        "rms_norm=[vllm_c, native], fused_add_rms_norm=[vllm_c, native], gelu_and_mul_sparse=[triton, native]",
    ),
    "cudagraph_mode": ("FULL_AND_PIECEWISE",),
    "breakable_cudagraph": ("on",),
    "captured_graphs": ("PIECEWISE", "FULL", "dspark FULL"),
    "sampler": ("FlashInfer",),
    "speculation": ("dspark",),
    "draft_tokens": ("7",),
    "model_runner": ("V2",),
    "collective_backend": ("nccl",),
    "custom_all_reduce_disabled": ("False",),
    "structured_outputs_backend": ("auto",),
    "chat_template_format": ("string",),
    "max_model_len": ("2048",),
    "cudagraph_sizes": ("51",),
    "captured_graph_counts": ("PIECEWISE 51", "FULL 2", "dspark FULL 48", "FULL 48"),
    "attention_block_tokens": ("1152",),
    "kv_cache_blocks": ("[1152, 1152]",),
    "kv_cache_tokens": ("4,369,612",),
    "draft_target_layers": ("(2, 4)",),
    "vllm": ("0.30.0",),
}


def test_the_flagship_on_one_gpu() -> None:
    assert choices("0.30.0-cuda-tp1-replayssm-prefixcache-healthy") == ONE_GPU


def test_the_flagship_on_two_gpus() -> None:
    found = choices("0.30.0-cuda-tp2-replayssm-prefixcache-starting")
    assert found["all_reduce_backends"] == ("[FLASHINFER, CUSTOM] tp", "[] ep")
    assert (found["flashinfer_all_reduce"], found["symmetric_memory"]) == (("mnnvl",), ("off",))
    assert found["custom_fusions"] == ("norm_quant, act_quant, allreduce_rms",)
    assert found["executor"] == ("worker processes",)
    assert found["attention_block_tokens"] == ("640",)
    assert choices("0.29.0-cuda-tp2-replayssm-noprefixcache")["nccl"] == ("2.28.9",)


def test_on_cpu() -> None:
    found = choices("0.32.0-cpu-tp2-healthy")
    assert found["architecture"] == ("LlamaForCausalLM",)
    assert (found["model_runner"], found["collective_backend"]) == (("V1",), ("gloo",))
    assert (found["eager"], found["cudagraph_mode"], found["cudagraph_sizes"]) == (("True",), ("NONE",), ("0",))
    assert found["speculation"] == ("None",)
    assert "draft_tokens" not in found
    assert choices("0.27.1-cpu-cold-healthy")["compile_mode"] == ("DYNAMO_TRACE_ONCE",)


def test_rows_name_the_releases_in_whose_logs_they_are() -> None:
    """Exactly: a release that says it and is not named is as wrong as one that is named and does not."""
    found: dict[int, set[str]] = defaultdict(set)
    for log in sorted(LOGS.glob("*.log")):
        if release := RELEASE.match(log.name):
            for line in loglines.read(log.read_bytes().decode("utf-8", "replace").split("\n")):
                for at, rule in enumerate(VLLM.choices):
                    if rule.read(line.text):
                        found[at].add(release[1])
    assert {rule.pattern.pattern: set(rule.seen) for rule in VLLM.choices} == {
        rule.pattern.pattern: found[at] for at, rule in enumerate(VLLM.choices)
    }
    assert [rule.name for rule in VLLM.choices if bool(rule.seen) == bool(rule.sources)] == []


SENTENCES = """
attention_backend = FLASHMLA_SPARSE < Using FLASHMLA_SPARSE attention backend out of potential backends: ['X'].
attention_backend = FLASHINFER < Using AttentionBackendEnum.FLASHINFER backend.
attention_backend = ROCM_ATTN < Using ROCM_ATTN backend (selected via --attention-backend).
draft_attention_backend = FLASH_ATTN < Using the target model's FLASH_ATTN attention backend for the DSpark draft
encoder_attention_backend = TORCH_SDPA < Using backend AttentionBackendEnum.TORCH_SDPA for vit attention
encoder_attention_backend = FLASH_ATTN < Using AttentionBackendEnum.FLASH_ATTN for MMEncoderAttention.
flash_attention_version = 3 < Using FlashAttention version 3
mla_prefill_backend = CPU SDPA < Using CPU SDPA MLA prefill backend.
kda_decode_backend = FlashInfer < Using FlashInfer fused KDA decode backend.
kda_decode_backend = native < Using native fused KDA decode backend.
gdn_prefill_kernel = FlashInfer < Using FlashInfer GDN prefill kernel (head_k_dim=128).
mamba_ssu_backend = triton < Using triton Mamba SSU backend.
mamba_ssu_algorithm = vertical < Using FlashInfer Mamba SSU algorithm: vertical
mamba_ssu_config = default < Using default Mamba SSU config. Performance might be sub-optimal!
replayssm_backend = flashinfer < Using flashinfer ReplaySSM backend.
moe_backend = FLASHINFER_TRTLLM Fp8 < Using FLASHINFER_TRTLLM Fp8 MoE backend out of potential backends: [
moe_backend = FLASHINFER_CUTLASS NvFp4 < Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend out of potential
moe_backend = MARLIN Mxfp4 < Using 'MARLIN' Mxfp4 MoE backend.
moe_backend = FlashInfer TRTLLM MxFp8 < Using 'FlashInfer TRTLLM' MxFp8 MoE backend (user-requested).
moe_backend = MarlinExperts < Using MarlinExperts for MXFP4 MoE
moe_backend = AITER_MXFP4_BF16 < Using AITER_MXFP4_BF16 for Kimi-K3 SiTU MXFP4 MoE.
moe_backend = Nvfp4EmulationExperts < Using Nvfp4EmulationExperts MOE backend. This will
moe_method = CompressedTensorsWNA16MoEMethod < Using CompressedTensorsWNA16MoEMethod
moe_config = tuned < Using configuration from /x/E=16,N=512,device_name=NVIDIA_H200.json for MoE layer.
moe_dispatch = DeepEPHT all2all < Using DeepEPHT all2all manager.
linear_kernel = CutlassKernel for CompressedTensorsW8A8Fp8 < Selected CutlassKernel for CompressedTensorsW8A8Fp8
linear_kernel = MarlinLinearKernel for MXFP4 GEMM < Using MarlinLinearKernel for MXFP4 GEMM
linear_kernel = ExllamaKernel for AutoGPTQLinearMethod < Using ExllamaKernel for AutoGPTQLinearMethod
linear_kernel = FlashInfer cutlass < Using FlashInfer cutlass for eligible unquantized BF16 GEMMs.
linear_config = default < Using default W8A8 Block FP8 kernel config. Performance might
linear_config = tuned < Using configuration from /x/N=1.json for W8A8 Block FP8 kernel.
kv_cache_format = fp8_ds_mla < Using fp8_ds_mla KV cache format for FLASHMLA_SPARSE backend.
kv_cache_format = fp8_ds_mla < Using DeepSeek's fp8_ds_mla KV cache format.
kv_cache_format = standard < Using standard fp8 KV cache format. To use DeepSeek's fp8_ds_mla
cudagraph_mode = PIECEWISE < CUDAGraphMode.FULL is not supported with X (support: Y); setting cudagraph_mode=PIECEWISE
cudagraph_mode = PIECEWISE < Overriding cudagraph_mode from FULL to PIECEWISE.
sampler = PyTorch < FlashInfer top-p/top-k sampling disabled via VLLM_USE_FLASHINFER_SAMPLER=0.
sampler = aiter < Using aiter sampler on ROCm (lazy import, sampling-only).
async_scheduling = off < Async scheduling not supported with medusa-based speculative decoding
custom_all_reduce_disabled = True < Custom allreduce is disabled because your platform lacks GPU P2P
flashinfer_all_reduce = trtllm < Using flashinfer allreduce backend: trtllm
"""
"""As the sources of releases have them, with a value for each placeholder."""


@pytest.mark.parametrize("sentence", SENTENCES.strip().split("\n"))
def test_wording_of_sources(sentence: str) -> None:
    expected, message = sentence.split(" < ")
    name, value = expected.split(" = ")
    assert said(message) == {name: (value,)}
    assert any(literal in (HEAD + message).encode() for literal in VLLM.literals)


@pytest.mark.parametrize(
    "message",
    [
        "Using max model len 2048",
        "Using Transformers modeling backend.",
        "Using custom backend: x",
        "Selected CPU core number (2) should not exceed the cores",
        "Selected backend X is incompatible with this layer (y) of ",
    ],
)
def test_no_choice_of_a_path(message: str) -> None:
    assert said(message) == {}


def test_what_a_user_writes_is_no_choice() -> None:
    prompt = "] Using EVIL attention backend. Resolved architecture: Evil"
    line = f"(APIServer pid=5) INFO 11-30 22:04:20 [logger.py:40] Received request cmpl-1: prompt: '{prompt}'"
    assert heard(line).choices == {}


def test_values_stay_in_their_order_each_once() -> None:
    lines = [f"{HEAD}Using {name} attention backend out of potential backends: []." for name in ("B", "A", "B", "C")]
    assert heard(*lines).choices == {"attention_backend": ("B", "A", "C")}


def test_secrets_are_masked() -> None:
    listener = Listener(VLLM, masked=lambda text: text.replace("SECRET", "***"))
    for line in loglines.read([f"{HEAD}Resolved architecture: SECRETModel"]):
        listener.look(line)
    assert listener.choices == {"architecture": ("***Model",)}


# --- ranks


def ranks(**values: list[str]) -> Listener:
    """Workers by name, and the attention back ends that each says."""
    lines = [
        f"({name} pid={pid}) INFO 11-30 22:04:20 [cuda.py:538] Using {value} attention backend out of potential"
        for pid, (name, chosen) in enumerate(values.items(), 100)
        for value in chosen
    ]
    return heard(*lines)


def test_ranks_that_differ_are_a_finding() -> None:
    found = ranks(Worker_TP0=["A", "B"], Worker_TP1=["A", "C"])
    assert found.choices == {"attention_backend": ("A", "B", "C")}
    assert found.uneven == {"attention_backend": {"Worker_TP0": ("A", "B"), "Worker_TP1": ("A", "C")}}


@pytest.mark.parametrize(
    "values",
    [
        {"Worker_TP0": ["A", "B"], "Worker_TP1": ["A", "B"]},
        {"Worker_TP0": ["A", "B"], "Worker_TP1": ["A"]},  # died, or has no drafter (a stage of a pipeline)
        {"Worker_TP0": ["A"], "EngineCore_DP0": ["B"]},  # of two kinds
        {"Worker_TP0": ["A"], "Worker": ["B"]},  # not told apart
    ],
)
def test_ranks_that_say_the_same_or_less_are_none(values: dict[str, list[str]]) -> None:
    assert ranks(**values).uneven == {}


def test_a_worker_gets_its_rank_after_it_chose() -> None:
    lines = [
        "(Worker pid=1) INFO 11-30 22:04:20 [gpu_worker.py:441] Using V1 Model Runner",
        "(Worker pid=2) INFO 11-30 22:04:20 [gpu_worker.py:441] Using V2 Model Runner",
        "(Worker_TP0 pid=1) INFO 11-30 22:04:21 [x.py:1] Loading",
        "(Worker_TP1 pid=2) INFO 11-30 22:04:21 [x.py:1] Loading",
    ]
    assert heard(*lines).uneven == {"model_runner": {"Worker_TP0": ("V1",), "Worker_TP1": ("V2",)}}


@given(st.lists(st.lists(st.sampled_from("ABCD"), max_size=4), min_size=2, max_size=4))
def test_ranks_are_even_exactly_if_of_any_two_one_says_all_of_the_other(chosen: list[list[str]]) -> None:
    spoke = [set(each) for each in chosen if each]
    even = all(a <= b or b <= a for a in spoke for b in spoke)
    assert (ranks(**{f"Worker_TP{n}": each for n, each in enumerate(chosen)}).uneven == {}) == even


def test_no_sample_has_ranks_that_differ() -> None:
    for log in sorted(LOGS.glob("*tp2*.log")):
        assert heard(*log.read_bytes().decode("utf-8", "replace").split("\n")).uneven == {}, log.name


# --- the record


def test_a_record_keeps_them_and_reads_those_of_the_first_weeks(tmp_path: Path) -> None:
    uneven = {"attention_backend": {"Worker_TP0": ("A",), "Worker_TP1": ("B",)}}
    folder = runs.write(runs.passed(choices={"attention_backend": ("A", "B")}, uneven=uneven), tmp_path)
    kept = record.load(folder)
    assert (kept.choices, kept.uneven) == ({"attention_backend": ("A", "B")}, uneven)
    file = folder / "run.json"
    old = re.sub(r'"choices": \{[^}]*\}', '"choices": {"attention_backend": "A"}', file.read_text())
    file.write_text(re.sub(r' "uneven": \{\n(?:  .*\n)* \},\n', "", old))
    assert '"uneven"' not in file.read_text()
    assert (record.load(folder).choices, record.load(folder).uneven) == ({"attention_backend": ("A",)}, {})


def test_the_summary_names_ranks_that_differ(tmp_path: Path) -> None:
    uneven = {"attention_backend": {"Worker_TP0": ("A",), "Worker_TP1": ("B", "C")}}
    told = summary.render(runs.passed(uneven=uneven), tmp_path)
    assert "**Ranks chose differently**\n- attention_backend: Worker_TP0 `A`, Worker_TP1 `B, C`" in told
    assert "Ranks chose" not in summary.render(runs.passed(), tmp_path)
