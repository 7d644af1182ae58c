"""Damaged copies of a model: its safetensors file edited with nothing but the standard library."""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BF16_BYTES = 2
NAN = b"\xc0\x7f"
"""Of bfloat16, little-endian."""
HEAD = 64
"""Width of one head of the tiny model."""


@dataclass
class Weights:
    """The bytes of every tensor, to be changed in place."""

    header: dict[str, dict[str, object]]
    data: bytearray

    def fill(self, name: str, value: bytes = b"\0\0", columns: range | None = None) -> None:
        """Set a bfloat16 tensor, or some columns of a matrix, to one value."""
        begin, shape = self.header[name]["data_offsets"][0], self.header[name]["shape"]
        rows, width = math.prod(shape[:-1]), shape[-1]
        for row in range(rows):
            for column in columns or range(width):
                at = begin + BF16_BYTES * (row * width + column)
                self.data[at : at + BF16_BYTES] = value


Edit = Callable[[Weights], None]


def edited(model: Path, out: Path, edit: Edit) -> Path:
    """A copy of the model's folder, without its reference, with edited weights."""
    shutil.copytree(model, out, ignore=shutil.ignore_patterns("reference.json", "*.xz", "*.py"))
    file = out / "model.safetensors"
    raw = file.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    weights = Weights(header=header, data=bytearray(raw[8 + size :]))
    edit(weights)
    file.write_bytes(raw[: 8 + size] + weights.data)
    return out


def drop_head(weights: Weights) -> None:
    """The last layer's second head says nothing."""
    weights.fill("model.layers.2.self_attn.o_proj.weight", columns=range(HEAD, 2 * HEAD))


def zero_layer(weights: Weights) -> None:
    """The last layer passes on what it gets."""
    weights.fill("model.layers.2.self_attn.o_proj.weight")
    weights.fill("model.layers.2.mlp.down_proj.weight")


def nan_weights(weights: Weights) -> None:
    """One norm is NaN, and so is every answer."""
    weights.fill("model.norm.weight", NAN)
