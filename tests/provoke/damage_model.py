"""Changes to a copy of the model's folder."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any


def config(**values: Any) -> Callable[[Path], None]:
    """Values of config.json; `...` removes one."""
    return json_file("config.json", **values)


def json_file(name: str, **values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        now = {**json.loads((folder / name).read_text()), **values}
        (folder / name).write_text(json.dumps({k: v for k, v in now.items() if v is not ...}))

    return change


def text(name: str, content: str | bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return change


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def both(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for one in changes:
            one(folder)

    return change


def safetensors_header(edit: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """Change the header of model.safetensors: eight bytes of length, then JSON, then the data."""

    def change(folder: Path) -> None:
        whole = (folder / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", whole[:8])
        header = json.loads(whole[8 : 8 + length])
        edit(header)
        packed = json.dumps(header).encode()
        packed += b" " * (-len(packed) % 8)
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(packed)) + packed + whole[8 + length :])

    return change


def rename_tensor(old: str, new: str) -> Callable[[Path], None]:
    def edit(header: dict[str, Any]) -> None:
        header[new] = header.pop(old)

    return safetensors_header(edit)
