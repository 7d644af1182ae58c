"""From a log to the sentence that says why."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from typing import get_args

import pytest
from test_log_samples import LOGS, lines_of

from harness import timeline, triage
from harness.runtimes import RUNTIMES
from harness.signature import Kind, Signature
from harness.triage import kinds

RAISE = "Traceback (most recent call last):"
FRAME = '  File "/opt/vllm-1/vllm/{file}", line 7, in {function}'
LIB = '  File "/opt/venv/lib/python3.12/site-packages/torch/nn.py", line 9, in forward'


def sample(stem: str) -> triage.Triage:
    return triage.read(lines_of(LOGS / "vllm" / f"{stem}.log"))


def signature(lines: list[str] | str, **known: str) -> Signature:
    found = triage.read(lines.split("\n") if isinstance(lines, str) else lines, **known).signature
    assert found is not None
    return found


def log(
    error: str,
    *,
    tag: str = "(EngineCore pid=9)",
    stamp: str = "ERROR 11-30 21:56:37 [core.py:1374] ",
    function: str = "build",
) -> str:
    """A traceback as the logger prints it."""
    body = [
        RAISE,
        FRAME.format(file="v1/core.py", function="outer"),
        "    outer()",
        FRAME.format(file="v1/a.py", function=function),
        *error.split("\n"),
    ]
    return "\n".join(f"{tag} {stamp}{line}".strip() for line in body)


# --- the four known crashes of the flagship


@pytest.mark.parametrize("ranks", ["tp1", "tp2"])
def test_vllm_54636(ranks: str) -> None:
    found = sample(f"0.29.0-cuda-{ranks}-replayssm-noprefixcache").signature
    assert found is not None
    assert (
        found.title
        == "AttributeError: 'KimiK3KDAMetadataBuilder' object has no attribute 'layer_names' (_get_recoverssm_context)"
    )
    assert (found.kind, found.exception, found.phase) == ("python_exception", "AttributeError", "capture#1")
    assert found.frames[0].function == "_get_recoverssm_context"
    assert found.frames[0].file == "vllm/models/kimi_k3/nvidia/kda_metadata.py"
    assert (found.process, found.ranks) == (("EngineCore", None) if ranks == "tp1" else ("Worker_TP1", "2/2"))


def test_vllm_54634() -> None:
    found = sample("0.29.0-cuda-tp1-replayssm-prefixcache").signature
    assert found is not None
    assert found.title == (
        "AssertionError: MambaAttentionBackendEnum.GDN_ATTN declares 4 states, but provides 2 state copy funcs"
        " (validate_mamba_state_copy_funcs)"
    )
    assert found.id != sample("0.29.0-cuda-tp1-replayssm-noprefixcache").signature.id  # type: ignore[union-attr]


def test_vllm_55774_and_54495() -> None:
    """No log of these two is here: the text is the one that is known, the frame is where it is raised."""
    activation = signature(log("ValueError: RecoverSSM query longer than the activation capacity", function="stage"))
    assert activation.title == "ValueError: RecoverSSM query longer than the activation capacity (stage)"
    message = "cannot access local variable 'active_non_spec_mask_cpu' where it is not associated with a value"
    unbound = signature(log(f"UnboundLocalError: {message}"))
    assert unbound.title == f"UnboundLocalError: {message} (build)"
    assert activation.id != unbound.id


# --- the faults of a real server on CPU


@pytest.mark.parametrize("release", ["0.29.0", "0.32.0"])
@pytest.mark.parametrize(
    ("fault", "shown", "words"),
    [
        ("unknown-flag", ("cli_usage", None, "spawn#1"), "usage error: unrecognized arguments: --no-such-flag 1"),
        ("missing-folder", ("hub_access", "HFValidationError", "config#1"), "Repo id must be in the form"),
        ("truncated-weights", ("weights", "SafetensorError", "weights#1"), "(safetensors_weights_iterator)"),
        (
            "unsupported-architecture",
            ("model_unsupported", "ValidationError", "config#1"),
            "['NoSuchForCausalLM'] are not supported",
        ),
        ("port-in-use", ("port_in_use", "OSError", "config#1"), "[Errno 98] Address already in use"),
        ("kv-cache-too-small", ("oom_kv_cache", "ValueError", "kv_cache#1"), "KV cache"),
        ("kill-engine-ready", ("killed_signal", None, "checks#1"), "EngineCore died without a word"),
    ],
)
def test_faults(release: str, fault: str, shown: tuple[Kind, str | None, str], words: str) -> None:
    found = sample(f"{release}-cpu-{fault}").signature
    assert found is not None
    assert (found.kind, found.exception, found.phase) == shown
    assert words in found.title
    assert "/" not in found.title.replace("'namespace/repo_name'", "")


def test_kills_name_the_process() -> None:
    starting = sample("0.32.0-cpu-kill-engine-starting").signature
    assert starting is not None
    assert (starting.title, starting.process, starting.exception) == (
        "EngineCore was killed by SIGKILL",
        "EngineCore",
        "SIGKILL",
    )
    worker = sample("0.32.0-cpu-kill-worker-ready").signature
    assert worker is not None
    assert (worker.title, worker.process) == ("Worker was killed by SIGKILL", "VllmWorker-0")
    silent = sample("0.32.0-cpu-kill-worker-starting").signature
    assert silent is not None
    assert (silent.title, silent.kind, silent.phase) == ("Worker died without a word", "killed_signal", "weights#1")


def test_two_ranks_show_it() -> None:
    found = sample("0.32.0-cpu-tp2-truncated-weights").signature
    assert found is not None
    assert (found.ranks, found.kind) == ("2/2", "weights")


@pytest.mark.parametrize(
    ("fault", "kind", "title"),
    [
        (
            "bad-choice",
            "cli_usage",
            "usage error: argument --kv-cache-dtype: invalid choice: 'nonsense' (choose from …)",
        ),
        (
            "max-model-len-too-long",
            "config_invalid",
            "ValidationError: User-specified max_model_len (<count>) is greater",
        ),
        ("config-not-json", "config_invalid", "OSError: It looks like the config file at '<path>' is not a valid JSON"),
        ("no-tokenizer", "tokenizer", "ValueError: Couldn't instantiate the backend tokenizer from one of"),
        ("no-weights", "weights", "RuntimeError: Cannot find any model weights with `<path>` (_prepare_weights)"),
        ("weights-wrong-shape", "weights", "RuntimeError: start (0) + length (320) exceeds dimension size (256)."),
    ],
)
def test_more_faults(fault: str, kind: Kind, title: str) -> None:
    found = sample(f"0.32.0-cpu-{fault}").signature
    assert found is not None
    assert found.kind == kind
    assert found.title.startswith(title)


def test_a_hang_leaves_no_word_and_the_last_phase() -> None:
    """SIGSTOP of a worker: the log shows nothing, so the signature is the harness's to give."""
    stopped = "0.32.0-cpu-stop-worker-starting"
    assert sample(stopped).signature is None
    last = timeline.read(RUNTIMES["vllm"].marks, lines_of(LOGS / "vllm" / f"{stopped}.log")).last
    assert last is not None
    assert (last.label, last.completed) == ("weights#1", False)


def test_messengers_are_told_apart() -> None:
    read = sample("0.29.0-cuda-tp2-replayssm-noprefixcache")
    assert [w[:39] for w in read.wrappers] == [
        "RuntimeError: Worker failed with error ",
        "RuntimeError: Engine core initializatio",
    ]
    assert read.evidence == ((72, 124), (125, 177), (180, 232), (233, 285))


# --- wrappers


def test_a_workers_message_is_unwrapped_where_nothing_else_is_left() -> None:
    found = signature(
        log(
            "RuntimeError: Worker failed with error 'CUDA out of memory', please check the stack trace above for"
            " the root cause"
        )
    )
    assert (found.message, found.kind, found.exception, found.confidence) == (
        "CUDA out of memory",
        "oom_gpu",
        None,
        0.5,
    )


def test_a_messenger_alone_is_a_failure_of_low_confidence() -> None:
    found = signature(
        log(
            "RuntimeError: Engine core initialization failed. See root cause above."
            " Failed core proc(s): {'EngineCore': 1}"
        )
    )
    assert (found.confidence, found.kind) == (0.3, "other")
    assert found.title == "EngineCore ended with exit code 1 and without a word"
    bare = signature(log("RuntimeError: WorkerProc initialization failed due to an exception in a background process."))
    assert (bare.confidence, bare.kind) == (0.2, "python_exception")


def test_teardown_noise_is_no_failure() -> None:
    stopped = "(APIServer pid=1) INFO 11-30 22:07:43 [launcher.py:129] [shutdown] API server: shutdown triggered\n"
    assert (
        triage.read((stopped + log("a.EngineDeadError: EngineCore encountered an issue.")).split("\n")).signature
        is None
    )
    for noise in (
        "asyncio.exceptions.CancelledError",
        "EOFError",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "KeyboardInterrupt",
    ):
        assert triage.read(log(noise).split("\n")).signature is None
    ignored = "Exception ignored in: <function X.__del__ at 0x7f>\n" + log("TypeError: late", tag="", stamp="")
    assert triage.read(ignored.split("\n")).signature is None


def test_a_dead_engine_that_nobody_stopped_is_a_failure() -> None:
    found = signature(log("a.EngineDeadError: EngineCore encountered an issue.", tag="(APIServer pid=1)"))
    assert (found.kind, found.process, found.title) == ("killed_signal", "EngineCore", "EngineCore died without a word")


def test_a_warning_with_a_traceback_is_harmless() -> None:
    text = log("ImportError: undefined symbol: _Z", stamp="WARNING 11-30 22:05:03 [import_utils.py:429] ")
    assert triage.read(text.split("\n")).signature is None
    assert signature(text + "\n" + log("ValueError: x")).title == "ValueError: x (build)"


# --- tracebacks


def test_interleaved_workers_are_two_tracebacks() -> None:
    one, two = (
        log("ValueError: first", tag="(Worker_TP0 pid=1)").split("\n"),
        log("KeyError: 'second'", tag="(Worker_TP1 pid=2)").split("\n"),
    )
    mixed = [line for pair in zip(one, two, strict=True) for line in pair]
    found = signature(mixed)
    assert (found.title, found.process) == ("ValueError: first (build)", "Worker_TP0")
    assert found.alternatives == ("KeyError: 'second' (build) [1/2 ranks]",)
    assert (found.ranks, found.confidence) == ("1/2", 0.9)


def test_chains() -> None:
    cause = log("HTTPError: 401 Client Error") + "\n(EngineCore pid=9) ERROR 11-30 21:56:37 [core.py:1374] \n"
    link = "(EngineCore pid=9) ERROR 11-30 21:56:37 [core.py:1374] {}\n"
    direct = link.format("The above exception was the direct cause of the following exception:") + link.format("")
    during = link.format("During handling of the above exception, another exception occurred:") + link.format("")
    after = log("OSError: cannot load the config")
    assert signature(cause + direct + after).title == "HTTPError: 401 Client Error (build)"
    assert signature(cause + during + after).title == "HTTPError: 401 Client Error (build)", "its kind says more"
    assert signature(cause + during + log("asyncio.CancelledError")).title == "HTTPError: 401 Client Error (build)"
    assert triage.read((cause + direct + after).split("\n")).wrappers == ("OSError: cannot load the config",)


def test_message_of_many_lines() -> None:
    found = signature(
        log(
            "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
            "CUDA kernel errors might be asynchronously\n\nFor"
        )
    )
    assert (
        found.message
        == "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously\n\nFor"
    )
    assert (found.kind, found.exception) == ("cuda_error", "AcceleratorError")


def test_pydantic_says_it_on_the_second_line() -> None:
    error = (
        "pydantic_core.ValidationError: 1 validation error for ParallelConfig\ntensor_parallel_size\n"
        "  Input should be greater than 0 [type=greater_than, input_value=-1, input_type=int]\n"
        "    For further information visit https://e/v/x"
    )
    assert (
        signature(log(error)).title == "ValidationError: tensor_parallel_size: Input should be greater than 0 (build)"
    )
    assert signature(log(error, tag="", stamp="")).normalised == "tensor_parallel_size: Input should be greater than 0"


@pytest.mark.parametrize("passing", ["sync_wrapper", "__torch_function__", "__torch_dispatch__", "__call__"])
def test_frames_deepest_then_own_then_libraries(passing: str) -> None:
    text = "\n".join(
        [
            RAISE,
            FRAME.format(file="v1/a.py", function="outer"),
            LIB,
            FRAME.format(file="v1/b.py", function=passing),
            LIB,
            "ValueError: x",
        ]
    )
    found = signature(text)
    assert [f.function for f in found.frames] == ["forward", passing, "outer", "forward"]
    assert (found.frames[0].file, found.frames[1].file) == ("torch/nn.py", "vllm/v1/b.py")
    assert found.title == "ValueError: x (outer)"


def test_a_log_that_is_cut() -> None:
    whole = log("ValueError: x").split("\n")
    cut = signature(whole[:-1])
    assert (cut.title, cut.kind, cut.confidence) == ("the log ends inside a traceback (build)", "other", 0.2)
    assert signature(whole[1:]).id == signature(whole).id, "its head is lost, its frames and its exception are not"
    assert triage.read([]).signature is None


# --- identity


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file /a/b/c.bin is bad", "file /x/y.bin is bad"),
        ("object at 0x7f20f7530ba8", "object at 0x1"),
        ("bind 127.0.0.1:8123", "bind 10.0.0.7:9"),
        ("took 1.5 s for 3.20 GiB of 1,024 tokens", "took 12 s for 4 GiB of 99,000 tokens"),
        ("max_model_len 100000 exceeds 4096", "max_model_len 131072 exceeds 8192"),
        ("rank 0 on cuda:0, pid=77", "rank 7 on cuda:7, pid=9"),
        ("run 6b1f6a2e-0000-4000-8000-0123456789ab", "run 00000000-1111-4222-8333-444444444444"),
    ],
)
def test_volatile_parts_make_no_new_bug(one: str, other: str) -> None:
    assert signature(log(f"ValueError: {one}")).id == signature(log(f"ValueError: {other}")).id


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("declares 4 states, but provides 2", "declares 4 states, but provides 3"),
        ("HTTP status 404", "HTTP status 503"),
        ("[Errno 2] x", "[Errno 13] x"),
        ("exit code 139", "exit code 137"),
        ("no attribute 'a'", "no attribute 'b'"),
    ],
)
def test_what_tells_bugs_apart_stays(one: str, other: str) -> None:
    assert signature(log(f"ValueError: {one}")).id != signature(log(f"ValueError: {other}")).id


def test_the_function_counts_only_where_the_message_says_nothing() -> None:
    assert signature(log("AssertionError", function="f")).id != signature(log("AssertionError", function="g")).id
    assert signature(log("KeyError: 0", function="f")).id != signature(log("KeyError: 0", function="g")).id
    assert signature(log("ValueError: words", function="f")).id == signature(log("ValueError: words", function="g")).id


def test_carriage_returns_and_colours_change_nothing() -> None:
    plain = log("ValueError: x")
    assert signature(plain.replace("\n", "\r\n")).id == signature(plain).id
    assert signature("\n".join(f"\x1b[31m{line}\x1b[0m" for line in plain.split("\n"))).id == signature(plain).id


# --- signatures without a log


def test_hang() -> None:
    found = triage.hang("weights", "silence")
    assert (found.kind, found.phase, found.title) == ("hang", "weights", "hang: no output and no CPU use")
    assert found.id == triage.hang("weights", "silence").id != triage.hang("capture", "silence").id


@pytest.mark.parametrize(
    ("how", "kind", "title", "fault"),
    [
        ("SIGKILL", "killed_signal", "the server was killed by SIGKILL", "node"),
        ("exit 137", "killed_signal", "the server was killed by SIGKILL", "node"),
        ("exit -9", "killed_signal", "the server was killed by SIGKILL", "node"),
        ("SIGSEGV", "killed_signal", "the server was killed by SIGSEGV", "product"),
        ("exit 0", "other", "the server ended by itself with exit 0, and its log does not say why", "product"),
        ("exit 1", "other", "the server ended by itself with exit 1, and its log does not say why", "product"),
    ],
)
def test_killed(how: str, kind: Kind, title: str, fault: str) -> None:
    found = triage.killed(how, "checks")
    assert (found.kind, found.title, triage.blame(found)) == (kind, title, fault)


@pytest.mark.parametrize("value", ["0.123", "-0.1234", "1536", "1536.5", "-9999.00", "1,536", "3.1e-05", "7"])
def test_check_failed_has_one_identity_however_many_digits(value: str) -> None:
    assert triage.check_failed("x", f"a {value} b").id == triage.check_failed("x", "a 0.12 b").id


def test_check_failed_keeps_its_id_over_nights() -> None:
    one = triage.check_failed("perplexity", "perplexity 4.12 is above 3.9 (token 77)")
    assert one.title == "check perplexity: perplexity <n> is above <n> (token <n>)"
    assert one.message == "perplexity 4.12 is above 3.9 (token 77)"
    assert (
        one.id
        == triage.check_failed("perplexity", "perplexity 5 is above 3.9 (token 1)").id
        != triage.check_failed("warmup", one.message).id
    )


def test_exit_without_a_word() -> None:
    healthy = lines_of(LOGS / "vllm" / "0.30.0-cpu-cold-healthy.log")
    assert triage.read(healthy, exit="exit 0").signature is None
    assert signature(healthy, exit="SIGKILL", phase="checks").title == "the server was killed by SIGKILL"
    assert signature(["(A pid=1) ERROR 11-30 21:56:37 [a.py:1] disk is odd"], exit="exit 1").title == "disk is odd"


def test_every_kind_has_its_blame() -> None:
    assert set(triage.BLAME) == set(get_args(Kind))
    theirs = {kind for kind, fault in triage.BLAME.items() if fault != "product"}
    clear = {rule.kind for rule in kinds.CLEAR}
    assert theirs | clear == set(triage.FIXES)


# --- output


def test_json_is_the_object_of_the_design() -> None:
    row = triage.to_json(sample("0.29.0-cuda-tp2-replayssm-noprefixcache"))
    assert list(row) == ["signature", "wrappers", "evidence"]
    assert list(row["signature"]) == [
        "id", "kind", "exception", "message", "normalised", "frames", "process", "phase", "ranks", "title",
        "alternatives", "confidence", "grouping",
    ]  # fmt: skip
    assert row["signature"]["frames"][0] == {
        "function": "_get_recoverssm_context", "file": "vllm/models/kimi_k3/nvidia/kda_metadata.py", "line": 346,
    }  # fmt: skip
    assert json.loads(json.dumps(row)) == json.loads(json.dumps(row))
    assert triage.to_json(triage.Triage()) == {"signature": None, "wrappers": [], "evidence": []}


def test_text_shows_no_control_sequences() -> None:
    text = triage.to_text(triage.read(log("ValueError: \x07 bell \u202e").split("\n")), name="x.log")
    assert text.startswith("x.log: ValueError: \\x07 bell \\u202e (build)\n")
    assert triage.to_text(triage.Triage()) == "no failure found"


def test_any_bytes_are_survived_in_linear_time() -> None:
    random.seed(1)
    parts = [
        RAISE,
        LIB,
        "ValueError: x",
        "(A pid=1) ",
        "\r",
        "\x1b[",
        " " * 50,
        "(" * 50,
        "\x00",
        "INFO 11-30 21:56:37 [a.py:1] ",
        "'",
        "[",
    ]
    lines = ["".join(random.choices(parts, k=random.randint(0, 8))) for _ in range(20_000)]
    begun = time.perf_counter()
    triage.read(lines)
    triage.read(["x" * 5_000_000, "(" * 1_000_000, "\r" * 100_000, "Supported architectures: " * 1000])
    assert time.perf_counter() - begun < 10.0


def test_import_is_light() -> None:
    heavy = "('requests', 'pydantic', 'yaml', 'rich', 'psutil')"
    heavy = f"import sys, harness.triage; print([m for m in {heavy} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


@pytest.mark.parametrize(
    ("stem", "blame"),
    [
        ("written-gpu-memory-held", "node"),
        ("written-inductor-oom", "product"),
        ("written-xid", "node"),
        ("written-cuda-asynchronous", "product"),
        ("0.32.0-cpu-hub-503", "node"),
        ("0.32.0-cpu-hub-404", "scenario"),
        ("0.32.0-cpu-segfault-own-worker", "product"),
        ("0.32.0-cpu-sigterm-engine-ready", "node"),
        ("written-kernel-oom", "node"),
    ],
)
def test_whose_fault(stem: str, blame: str) -> None:
    found = sample(stem).signature
    assert found is not None
    assert triage.blame(found) == blame


def test_an_asynchronous_stack_is_not_trusted() -> None:
    """The next call reports it: two nights, two functions, one bug."""
    error = (
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    )
    one, other = signature(log(error, function="forward")), signature(log(error, function="sample"))
    assert one.id == other.id
    assert "not to be trusted" in one.title
    assert one.confidence < 0.7
    assert one.frames[0].function == "forward", "kept, for whoever knows better"
