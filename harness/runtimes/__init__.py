"""The servers that the harness can drive: a literal registry, one line each."""

from __future__ import annotations

from collections.abc import Mapping

from harness.runtimes.base import Runtime
from harness.runtimes.vllm import VLLM

RUNTIMES: Mapping[str, Runtime] = {
    "vllm": VLLM,
}
