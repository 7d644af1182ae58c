"""The first half of the corpus: the rules were written with these logs in sight."""

from __future__ import annotations

import signal

from damage_model import config, text
from fault import Fault, Patch, Strike

WORKER = "vllm.v1.worker.gpu_worker"
CORE = "vllm.v1.engine.core"
TP2 = ("--tensor-parallel-size", "2")
BIND = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}

FIRST = (
    # --- usage
    Fault(name="length-no-number", cause="--max-model-len gets a word", serve=("--max-model-len", "abc")),
    Fault(
        name="speculation-no-json",
        cause="--speculative-config gets broken JSON",
        serve=("--speculative-config", "{method"),
    ),
    Fault(name="dtype-unknown", cause="--dtype gets a name that does not exist", serve=("--dtype", "float7")),
    Fault(
        name="flag-without-value", cause="--quantization stands at the end without its value", serve=("--quantization",)
    ),
    # --- configuration
    Fault(name="tp-divides-no-heads", cause="3 ranks cannot share 2 heads", serve=("--tensor-parallel-size", "3")),
    Fault(
        name="batch-smaller-than-seqs",
        cause="a batch of 2 tokens for 4 sequences",
        serve=("--max-num-batched-tokens", "2", "--no-enable-chunked-prefill"),
    ),
    Fault(
        name="tool-choice-without-parser",
        cause="--enable-auto-tool-choice without --tool-call-parser",
        serve=("--enable-auto-tool-choice",),
    ),
    Fault(
        name="reasoning-parser-unknown",
        cause="a reasoning parser that does not exist",
        serve=("--reasoning-parser", "nope"),
    ),
    Fault(
        name="quantization-without-config",
        cause="awq for weights that are not quantised",
        serve=("--quantization", "awq"),
    ),
    Fault(name="sleep-mode-on-cpu", cause="sleep mode needs a GPU", serve=("--enable-sleep-mode",)),
    Fault(
        name="activation-unknown",
        cause="config.json names an activation that does not exist",
        model=config(hidden_act="nope"),
    ),
    Fault(
        name="rope-type-unknown",
        cause="config.json names a RoPE scaling that does not exist",
        model=config(rope_parameters={"rope_theta": 10000.0, "rope_type": "nope", "factor": 2.0}),
    ),
    Fault(name="model-type-missing", cause="config.json has no model_type", model=config(model_type=...)),
    # --- weights, tokenizer
    Fault(
        name="weights-garbage",
        cause="model.safetensors holds 4 KiB of 0xff",
        model=text("model.safetensors", b"\xff" * 4096),
    ),
    Fault(
        name="tokenizer-garbage", cause="tokenizer.json is no JSON", model=text("tokenizer.json", "this is not json")
    ),
    Fault(
        name="more-layers-than-weights",
        cause="config.json says 5 layers, the checkpoint has 3",
        model=config(num_hidden_layers=5),
    ),
    # --- libraries that are not there
    Fault(name="executor-ray-missing", cause="Ray is not installed", serve=("--distributed-executor-backend", "ray")),
    Fault(
        name="worker-class-missing",
        cause="--worker-cls names a module that is not there",
        serve=("--worker-cls", "no_such_module.Worker"),
    ),
    Fault(
        name="middleware-missing",
        cause="--middleware names a module that is not there",
        serve=("--middleware", "no_such_module.middleware"),
    ),
    # --- node
    Fault(
        name="kv-space-more-than-memory",
        cause="500 GiB of KV cache on a node of 24",
        env={"VLLM_CPU_KVCACHE_SPACE": "500"},
    ),
    Fault(name="few-file-descriptors", cause="24 file descriptors at most", limits={"RLIMIT_NOFILE": 24}),
    Fault(
        name="compiler-fails",
        cause="the C++ compiler is /bin/false",
        serve=("--no-enforce-eager",),
        env={"CXX": "/bin/false"},
        seconds=300,
    ),
    Fault(name="hub-401", cause="the hub answers 401", model="some/model", hub=401),
    Fault(
        name="segfault-engine-starting",
        cause="SIGSEGV to the engine while it loads",
        strike=Strike(after="Starting to load model", process="VLLM::EngineCore", signal=signal.SIGSEGV),
    ),
    Fault(
        name="sigterm-engine-ready",
        cause="SIGTERM from outside to the engine after ready",
        strike=Strike(after="Application startup complete", process="VLLM::EngineCore", signal=signal.SIGTERM),
    ),
    Fault(
        name="sigterm-leader-ready",
        cause="SIGTERM from outside to the server after ready: a clean stop",
        strike=Strike(after="Application startup complete", process="bin/vllm", signal=signal.SIGTERM),
    ),
    # --- raised in a chosen place
    Fault(
        name="raise-class-without-suffix",
        cause="an exception whose class does not end in Error, while weights load",
        patch=Patch(
            module=WORKER,
            code="""
class WeightsVanished(Exception): pass
def load_model(self, **_): raise WeightsVanished("shard 2 of 3 vanished")
module.Worker.load_model = load_model""",
        ),
    ),
    Fault(
        name="raise-rank1-only",
        cause="rank 1 alone finds its shard corrupt; rank 0 only loses its peer",
        serve=TP2,
        env=BIND,
        patch=Patch(
            module="vllm.v1.worker.cpu_worker",
            code="""
inner = module.CPUWorker.determine_available_memory
def determine_available_memory(self):
    import torch
    if self.rank == 1: raise ValueError("checksum of shard 1 is wrong")
    torch.distributed.barrier()
    return inner(self)
module.CPUWorker.determine_available_memory = determine_available_memory""",
        ),
    ),
    Fault(
        name="raise-many-lines",
        cause="a message of six lines",
        patch=Patch(
            module=CORE,
            code="""
def _initialize_kv_caches(self, config):
    raise RuntimeError(
        "KV cache layout mismatch:\\n  layer 0: NHD\\n  layer 1: HND\\n\\nAll layers must agree.\\nSet --kv-layout.")
module.EngineCore._initialize_kv_caches = _initialize_kv_caches""",
        ),
    ),
    Fault(
        name="raise-chain-of-four",
        cause="a 401 of the hub at the bottom of a chain of four",
        patch=Patch(
            module=WORKER,
            code="""
def load_model(self, **_):
    try:
        try:
            try: raise PermissionError("401 Client Error: the token may not read some/model")
            except PermissionError as error: raise OSError("cannot fetch the adapter") from error
        except OSError as error: raise RuntimeError("adapter 3 failed to load") from error
    except RuntimeError as error: raise RuntimeError("model loading failed") from error
module.Worker.load_model = load_model""",
        ),
    ),
    Fault(
        name="raise-optional-import",
        cause="an optional kernel fails to import with a WARNING, and is then required",
        patch=Patch(
            module=WORKER,
            code="""
def load_model(self, **_):
    import logging
    try:
        raise ImportError("libfastkernels.so.3: undefined symbol: fk_init")
    except ImportError:
        logging.getLogger("vllm").warning("fastkernels could not be imported", exc_info=True)
    raise RuntimeError("fastkernels is required for this model but is not available")
module.Worker.load_model = load_model""",
        ),
    ),
    Fault(
        name="segfault-own-worker",
        cause="a null pointer is read in the engine while weights load; faulthandler is on",
        env={"PYTHONFAULTHANDLER": "1"},
        patch=Patch(
            module=WORKER,
            code="""
def load_model(self, **_):
    import ctypes
    ctypes.string_at(0)
module.Worker.load_model = load_model""",
        ),
    ),
    Fault(
        name="dtype-in-config-unknown",
        cause="config.json names a dtype that does not exist",
        model=config(dtype="float99"),
        serve=("--dtype", "auto"),
    ),
    Fault(
        name="kv-space-300",
        cause="as kv-space-more-than-memory, with another number",
        env={"VLLM_CPU_KVCACHE_SPACE": "300"},
    ),
    Fault(name="hub-401-again", cause="as hub-401, on another port", model="some/model", hub=401),
    Fault(
        name="max-seqs-negative",
        cause="--max-num-seqs -1",
        serve=("--max-num-seqs=-1",),
    ),
)
