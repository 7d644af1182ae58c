"""Node classes: which GPUs are alike enough to share what is normal. Pure.

The name that nvidia-smi prints, without what says nothing: `h100`, `h100-pcie`, `h100-nvl`, `rtx-pro-6000-server`. The
plain name is the one most in use, of the memory and the form that stand in `_PLAIN`; all else that the name says stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

CPU = "cpu"
"""The class of a node without GPUs, and of a run that uses none."""
_IDLE = frozenset({"nvidia", "tesla", "geforce", "generation", "edition", "blackwell"})
_PLAIN: Mapping[str, frozenset[str]] = {
    "v100": frozenset({"sxm2", "16gb"}),
    "a100": frozenset({"sxm4", "80gb"}),
    "a800": frozenset({"sxm4", "80gb"}),
    "h100": frozenset({"80gb", "hbm3"}),
    "h800": frozenset({"80gb", "hbm3"}),
    # 96 GB at the GPU whichever is named, which is the memory of the CPU; that with 144 GB names its own.
    "gh200": frozenset({"120gb", "480gb"}),
    "b300": frozenset({"sxm6", "ac"}),  # cooled by air
}


def class_of(names: Sequence[str]) -> str:
    """Node class of GPUs by their product names: `h200`; `cpu` without any, both joined by + where they differ."""
    return "+".join(sorted({_class(name) for name in names})) or CPU


def _class(name: str) -> str:
    words = [word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in _IDLE]
    plain = next((_PLAIN[word] for word in words if word in _PLAIN), frozenset())
    return "-".join(word for word in words if word not in plain) or "gpu"


def of_class(limits: Mapping[str, float], node_class: str) -> float | None:
    """The limit of a class; else of the class that it is a variant of (`h100` for `h100-nvl`), else `default`.

    A node of different GPUs has only a limit of its own or `default`.
    """
    words = [node_class] if "+" in node_class else node_class.split("-")
    names = ("-".join(words[:count]) for count in range(len(words), 0, -1))
    return next((limits[name] for name in (*names, "default") if name in limits), None)
