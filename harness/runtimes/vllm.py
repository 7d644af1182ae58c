"""vLLM: its command line and environment. What its log says: `vllm_marks.py`, `vllm_choices.py`, `vllm_facts.py`.

serve:                                        vllm serve MODEL --revision R
  enable-prefix-caching: true                      --enable-prefix-caching
  enable-chunked-prefill: false                    --no-enable-chunked-prefill
  max-model-len: null                              (inherited flag removed)
  speculative-config: {method: dspark}             --speculative-config {"method":"dspark"}
  lora-modules: [a=/x, b=/y]                       --lora-modules a=/x b=/y
  middleware: {repeat: [a.b, c.d]}                 --middleware a.b --middleware c.d
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.client import prometheus
from harness.client.prometheus import Metrics
from harness.runtimes import vllm_choices, vllm_facts, vllm_marks
from harness.runtimes.base import ChoiceRule, CounterNames, MarkRule, Reference, SubjectRule, WatchRule

DROPPED: Mapping[str, str] = {
    "PYTHONDONTWRITEBYTECODE": "without byte code every start takes 44 s instead of 20 s (0.27.1 to 0.32.0)",
    "PYTHONPATH": "packages of the harness's own environment would shadow the build's",
    "PYTHONHOME": "names another interpreter's library",
    "PYTHONSTARTUP": "a person's interactive start file is no part of a server",
    "VIRTUAL_ENV": "tools called by the server would look into the harness's own environment",
    "VLLM_API_KEY": "requests to /v1 would be refused: the key belongs to somebody's other server",
    "VLLM_PORT": "moves internal ports, so that two servers of one node collide",
    "VLLM_LOGGING_CONFIG_PATH": "another log format hides the phases",
    "VLLM_LOGGING_PREFIX": "another log format hides the phases",
    "VLLM_CONFIGURE_LOGGING": "another log format hides the phases",
    "VLLM_LOGGING_LEVEL": "phases are read from INFO lines; a scenario may set it under env",
}
ENV: Mapping[str, str] = {
    # Nobody learns anything from a test's usage report, and without network it is a thread that waits.
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # A block-buffered last line would arrive after the crash that it explains.
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True)
class Vllm:
    """Everything particular to vLLM."""

    name: str = "vllm"
    health_path: str = "/health"
    own_flags: frozenset[str] = frozenset({"host", "port", "served-model-name", "api-key"})
    # Decode context parallelism is not here: it splits the GPUs of tensor parallelism, it takes no more.
    parallel_flags: tuple[str, ...] = (
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "data-parallel-size",
        "prefill-context-parallel-size",
    )

    @property
    def env(self) -> Mapping[str, str]:
        return ENV

    @property
    def dropped_env(self) -> Mapping[str, str]:
        return DROPPED

    @property
    def marks(self) -> tuple[MarkRule, ...]:
        return vllm_marks.MARKS

    @property
    def watch(self) -> tuple[WatchRule, ...]:
        return vllm_facts.WATCH

    @property
    def choices(self) -> tuple[ChoiceRule, ...]:
        return vllm_choices.CHOICES

    @property
    def subjects(self) -> Mapping[str, SubjectRule]:
        return vllm_facts.SUBJECTS

    @property
    def counters(self) -> CounterNames:
        return vllm_facts.COUNTERS

    @property
    def switches(self) -> Mapping[str, tuple[str, ...]]:
        return vllm_facts.SWITCHES

    @property
    def references(self) -> Mapping[str, Reference]:
        return vllm_facts.REFERENCES

    def accepted(self, message: str) -> Mapping[str, Any] | None:
        return vllm_choices.accepted(message)

    def block_tokens(
        self, *, choices: Mapping[str, tuple[str, ...]], metrics: Metrics, serve: Mapping[str, Any]
    ) -> int | None:
        """The block of one rank, times the ranks that share a context: they hold every n-th token of it each."""
        logged = choices.get("attention_block_tokens")
        said = logged[0] if logged else prometheus.label(metrics, *vllm_facts.BLOCK)
        if said is None or not said.isdecimal():
            return None
        return math.prod((int(said), *(int(serve.get(flag, 1)) for flag in vllm_facts.CONTEXT_FLAGS)))

    @property
    def literals(self) -> tuple[bytes, ...]:
        # Precise ones: a busy server prints "KV cache usage" every few seconds, and each hit costs a regex a rule.
        tables = (self.marks, self.watch, self.choices, tuple(self.subjects.values()))
        return tuple(sorted({rule.literal for table in tables for rule in table}))

    def argv(
        self,
        *,
        command: tuple[str, ...],
        model: str,
        revision: str | None,
        serve: Mapping[str, Any],
        host: str,
        port: int,
        served_model_name: str,
    ) -> tuple[str, ...]:
        """`command` is the build's console script, such as `("/env/bin/vllm",)`."""
        own = ("--host", host, "--port", str(port), "--served-model-name", served_model_name)
        pinned = ("--revision", revision) if revision is not None else ()
        asked = (word for flag, value in serve.items() for word in _words(flag, value))
        return (*command, "serve", model, *pinned, *asked, *own)

    def cache_env(self, caches: Path) -> Mapping[str, str]:
        # Inductor and Triton have caches of their own in the temporary folder and in HOME, which a teardown may wipe.
        return {
            **ENV,
            "VLLM_CACHE_ROOT": str(caches),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "TRITON_CACHE_DIR": str(caches / "triton"),
        }


def _words(flag: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and set(value) == {"repeat"}:
        for item in value["repeat"]:
            yield from (f"--{flag}", _text(item))
    elif value is True:
        yield f"--{flag}"
    elif value is False:
        yield f"--no-{flag}"
    elif isinstance(value, (list, tuple)):
        yield from (f"--{flag}", *map(_text, value))
    elif isinstance(value, str) and value.startswith("-"):
        yield f"--{flag}={value}"  # as a word of its own it would be read as the next flag
    elif value is not None:
        yield from (f"--{flag}", _text(value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Mappings and tuples of any make, as what `json` knows."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


VLLM = Vllm()
