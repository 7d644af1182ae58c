"""The second half: logs and their true causes were committed before the rules saw them."""

from __future__ import annotations

import signal
from pathlib import Path

from damage_model import both, config, json_file, rename_tensor, text, without
from fault import Fault, Patch, Strike
from first import BIND, TP2, WORKER


def weights_folder(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()


def weights_link(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/nowhere/model.safetensors")


def _stuck(seconds: int, then: str) -> str:
    return f"""
inner = module.CPUWorker.determine_available_memory
def determine_available_memory(self):
    import time
    if self.rank == 1: time.sleep({seconds}); {then}
    return inner(self)
module.CPUWorker.determine_available_memory = determine_available_memory"""


SECOND = (
    # --- usage
    Fault(name="seqs-no-number", cause="--max-num-seqs gets a word", serve=("--max-num-seqs", "many")),
    Fault(
        name="kv-dtype-unknown",
        cause="--kv-cache-dtype gets a name that does not exist",
        serve=("--kv-cache-dtype", "int3"),
    ),
    Fault(name="two-unknown-flags", cause="two flags that do not exist", serve=("--warp-speed", "9", "--engage")),
    Fault(
        name="origins-no-json",
        cause="--allowed-origins gets a word, not a list",
        serve=("--allowed-origins", "everybody"),
    ),
    # --- configuration
    Fault(
        name="tool-parser-unknown",
        cause="a tool parser that does not exist",
        serve=("--enable-auto-tool-choice", "--tool-call-parser", "nope"),
    ),
    Fault(
        name="utilization-above-one", cause="--gpu-memory-utilization 1.5", serve=("--gpu-memory-utilization", "1.5")
    ),
    Fault(name="length-zero", cause="--max-model-len 0", serve=("--max-model-len", "0")),
    Fault(
        name="lora-rank-odd",
        cause="--max-lora-rank 7 is no rank that exists",
        serve=("--enable-lora", "--max-lora-rank", "7"),
    ),
    Fault(
        name="lora-missing",
        cause="an adapter whose folder is not there",
        serve=("--enable-lora", "--lora-modules", "a=/nowhere/adapter"),
    ),
    Fault(
        name="speculation-without-number",
        cause="n-gram speculation without a number of tokens",
        serve=("--speculative-config", '{"method":"ngram"}'),
    ),
    Fault(
        name="drafter-missing",
        cause="a drafter whose folder is not there",
        serve=("--speculative-config", '{"method":"eagle","model":"/nowhere/drafter","num_speculative_tokens":2}'),
    ),
    Fault(
        name="connector-unknown",
        cause="a KV connector that does not exist",
        serve=("--kv-transfer-config", '{"kv_connector":"Nope","kv_role":"kv_both"}'),
    ),
    Fault(
        name="compilation-key-unknown",
        cause="--compilation-config with a key that does not exist",
        serve=("--compilation-config", '{"no_such_key":1}'),
    ),
    Fault(
        name="dcp-without-tp",
        cause="decode context parallelism of 2 with one rank",
        serve=("--decode-context-parallel-size", "2"),
    ),
    Fault(
        name="attention-backend-unknown",
        cause="an attention backend that does not exist",
        serve=("--attention-backend", "NOPE"),
    ),
    Fault(
        name="chat-template-missing",
        cause="a chat template that is not there",
        serve=("--chat-template", "/nowhere/template.jinja"),
    ),
    Fault(
        name="heads-and-width-disagree",
        cause="config.json says 5 heads and no head_dim for a width of 128",
        model=config(num_attention_heads=5, num_key_value_heads=5, head_dim=...),
    ),
    Fault(
        name="custom-code-untrusted",
        cause="config.json names code of its own, and nobody trusts it",
        model=config(model_type="ours", auto_map={"AutoConfig": "ours.OurConfig"}),
    ),
    Fault(
        name="custom-code-broken",
        cause="trusted code in the model's folder has a syntax error",
        model=both(
            config(model_type="ours", auto_map={"AutoConfig": "ours.OurConfig"}), text("ours.py", "def broken(:\n")
        ),
        serve=("--trust-remote-code",),
    ),
    Fault(name="config-empty", cause="config.json is an empty object", model=text("config.json", "{}")),
    # --- weights, tokenizer
    Fault(name="weights-empty", cause="model.safetensors has no bytes", model=text("model.safetensors", b"")),
    Fault(name="weights-a-folder", cause="model.safetensors is a folder", model=weights_folder),
    Fault(name="weights-dead-link", cause="model.safetensors is a link to nothing", model=weights_link),
    Fault(
        name="tensor-renamed",
        cause="a tensor of the checkpoint has a name that the model does not know",
        model=rename_tensor("model.layers.1.mlp.down_proj.weight", "model.layers.1.mlp.sideways_proj.weight"),
    ),
    Fault(
        name="width-and-weights-disagree",
        cause="config.json says width 256, the checkpoint has 128",
        model=config(hidden_size=256),
    ),
    Fault(name="load-format-unknown", cause="a load format that does not exist", serve=("--load-format", "nope")),
    Fault(name="load-format-not-installed", cause="tensorizer is not installed", serve=("--load-format", "tensorizer")),
    Fault(
        name="tokenizer-path-missing",
        cause="--tokenizer names a folder that is not there",
        serve=("--tokenizer", "/nowhere/tokenizer"),
    ),
    Fault(
        name="tokenizer-config-no-json",
        cause="tokenizer_config.json is no JSON",
        model=text("tokenizer_config.json", "nope"),
    ),
    Fault(
        name="scheduler-class-missing",
        cause="--scheduler-cls names a module that is not there",
        serve=("--scheduler-cls", "no_such_module.Scheduler"),
    ),
    Fault(
        name="logits-processor-missing",
        cause="--logits-processors names a class that is not there",
        serve=("--logits-processors", "json:NoSuchProcessor"),
    ),
    Fault(
        name="certificate-missing",
        cause="--ssl-certfile names a file that is not there",
        serve=("--ssl-certfile", "/nowhere/cert.pem", "--ssl-keyfile", "/nowhere/key.pem"),
    ),
    # --- node
    Fault(name="little-address-space", cause="2 GiB of address space", limits={"RLIMIT_AS": 2 << 30}),
    Fault(
        name="compiler-missing",
        cause="the C++ compiler is not there",
        serve=("--no-enforce-eager",),
        env={"CXX": "/nowhere/c++"},
        seconds=300,
    ),
    Fault(
        name="cache-unwritable",
        cause="the compile cache is under /proc",
        serve=("--no-enforce-eager",),
        env={"VLLM_CACHE_ROOT": "/proc/cache"},
        seconds=300,
    ),
    Fault(
        name="rpc-path-missing",
        cause="the folder for the sockets is not there",
        env={"VLLM_RPC_BASE_PATH": "/nowhere/sockets"},
    ),
    Fault(
        name="logging-level-unknown",
        cause="VLLM_LOGGING_LEVEL names no level",
        env={"VLLM_LOGGING_LEVEL": "LOUD"},
    ),
    Fault(name="hub-404", cause="the hub answers 404", model="some/model", hub=404),
    Fault(name="hub-503", cause="the hub answers 503", model="some/model", hub=503),
    Fault(name="hub-offline", cause="a model that is not in the cache, and no hub may be asked", model="some/model"),
    Fault(
        name="abort-engine-starting",
        cause="SIGABRT to the engine while it loads",
        strike=Strike(after="Starting to load model", process="VLLM::EngineCore", signal=signal.SIGABRT),
    ),
    Fault(
        name="bus-worker-starting",
        cause="SIGBUS to a worker while it loads",
        serve=TP2,
        env=BIND,
        strike=Strike(after="Starting to load model", process="VLLM::Worker", signal=signal.SIGBUS),
    ),
    Fault(
        name="kill-leader-starting",
        cause="SIGKILL to the leader while the engine loads",
        strike=Strike(after="Starting to load model", process="bin/vllm", signal=signal.SIGKILL),
    ),
    # --- raised in a chosen place
    Fault(
        name="raise-two-differ",
        cause="both ranks fail in the same function, each with its own message",
        serve=TP2,
        env=BIND,
        patch=Patch(
            module=WORKER,
            code="""
def load_model(self, **_):
    import time
    time.sleep(self.rank)
    raise ValueError("expert map has no entry" if self.rank == 0 else "router weights are all zero")
module.Worker.load_model = load_model""",
        ),
    ),
    Fault(
        name="raise-empty-assertion",
        cause="an assertion without a message in the scheduler",
        patch=Patch(
            module="vllm.v1.core.sched.scheduler",
            code="""
inner = module.Scheduler.__init__
def __init__(self, *args, **kwargs):
    inner(self, *args, **kwargs)
    assert self.block_size == 0
module.Scheduler.__init__ = __init__""",
        ),
    ),
    Fault(
        name="raise-while-handling",
        cause="the cleanup after a lost file fails too, and hides it",
        patch=Patch(
            module=WORKER,
            code="""
def load_model(self, **_):
    try: open("/nowhere/shard-00001")
    finally: self.no_such_attribute.close()
module.Worker.load_model = load_model""",
        ),
    ),
    Fault(
        name="raise-memory-in-compiler",
        cause="a CUDA out-of-memory inside the compiler's own error",
        patch=Patch(
            module=WORKER,
            code="""
def load_model(self, **_):
    import torch
    from torch._inductor.exc import InductorError
    try: raise torch.OutOfMemoryError(
        "CUDA out of memory. "
        "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which 1.12 GiB is free.")
    except torch.OutOfMemoryError as error: raise InductorError(error, None) from error
module.Worker.load_model = load_model""",
        ),
    ),
    Fault(
        name="raise-sys-exit",
        cause="a library calls sys.exit(3) in the engine",
        patch=Patch(
            module=WORKER,
            code="""
def load_model(self, **_):
    import sys
    print("license check failed: no seat left", file=sys.stderr)
    sys.exit(3)
module.Worker.load_model = load_model""",
        ),
    ),
    Fault(
        name="terminate-in-library",
        cause="the engine aborts itself in C",
        patch=Patch(
            module=WORKER,
            code="""
def load_model(self, **_):
    import ctypes
    ctypes.CDLL(None).abort()
module.Worker.load_model = load_model""",
        ),
    ),
    Fault(
        name="raise-in-first-request",
        cause="the model runner fails in the first real request",
        request=True,
        patch=Patch(
            module="vllm.v1.engine.core",
            code="""
inner = module.EngineCore.add_request
def add_request(self, request, *args, **kwargs):
    raise IndexError("list index out of range")
module.EngineCore.add_request = add_request
step = module.EngineCore.step
def broken(self, *args, **kwargs):
    if self.scheduler.has_requests(): [][3]
    return step(self, *args, **kwargs)
module.EngineCore.add_request = inner
module.EngineCore.step = broken""",
        ),
    ),
    Fault(
        name="raise-markup",
        cause="a message with markup and control characters",
        patch=Patch(
            module=WORKER,
            code="""
def load_model(self, **_):
    raise ValueError("layer <script>alert(1)</script> \\x1b[31mred\\x1b[0m & \\x07 'quoted' ]]> is bad")
module.Worker.load_model = load_model""",
        ),
    ),
    Fault(
        name="raise-group",
        cause="two tasks of a group fail while the API server starts",
        patch=Patch(
            module="vllm.v1.engine.async_llm",
            code="""
async def get_supported_tasks(self):
    raise ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("route table is empty"), KeyError("metrics")])
module.AsyncLLM.get_supported_tasks = get_supported_tasks""",
        ),
    ),
    Fault(
        name="hang-rank1",
        cause="rank 1 never comes back from profiling",
        serve=TP2,
        env=BIND,
        seconds=300,
        patch=Patch(module="vllm.v1.worker.cpu_worker", code=_stuck(1000, "")),
    ),
    Fault(
        name="hang-then-error",
        cause="rank 1 hangs for 75 seconds and then loses its link",
        serve=TP2,
        env=BIND,
        seconds=300,
        patch=Patch(
            module="vllm.v1.worker.cpu_worker", code=_stuck(75, 'raise TimeoutError("link 1 did not come back")')
        ),
    ),
    Fault(
        name="tokenizer-json-missing-key",
        cause="tokenizer.json has no model",
        model=json_file("tokenizer.json", model=...),
    ),
    Fault(
        name="generation-config-missing-folder",
        cause="--generation-config names a folder that is not there",
        serve=("--generation-config", "/nowhere/generation"),
    ),
    Fault(
        name="index-names-missing-shard",
        cause="the index names a shard that is not there",
        model=both(
            without("model.safetensors"),
            text(
                "model.safetensors.index.json",
                '{"metadata":{},"weight_map":{"model.norm.weight":"model-00001-of-00002.safetensors"}}',
            ),
        ),
    ),
)
