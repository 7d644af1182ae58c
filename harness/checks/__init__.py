"""The checks, one file each; a new one is one file and one row here. `warmup` first: its first request is the first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from harness.checks.base import Check
from harness.checks.chat import Chat
from harness.checks.determinism import Determinism
from harness.checks.load import Load
from harness.checks.log_hygiene import LogHygiene
from harness.checks.memory import Memory
from harness.checks.perplexity import Perplexity
from harness.checks.prefix_cache import PrefixCache
from harness.checks.same_output import SameOutput
from harness.checks.spec_decode import SpecDecode
from harness.checks.startup_time import StartupTime
from harness.checks.warmup import Warmup

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "warmup": Warmup(),
        "perplexity": Perplexity(),
        "prefix_cache": PrefixCache(),
        "spec_decode": SpecDecode(),
        "determinism": Determinism(),
        "same_output": SameOutput(),
        "chat": Chat(),
        "load": Load(),
        "log_hygiene": LogHygiene(),
        "memory": Memory(),
        "startup_time": StartupTime(),
    }
)

CORPORA = Path(__file__).resolve().parents[1] / "corpora"
"""Folder of the texts that scenarios name without a path."""
