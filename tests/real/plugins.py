"""Faults put into a real server by a plugin of its own kind, beside it and not in it."""

from __future__ import annotations

from pathlib import Path

ENTRY = "[vllm.general_plugins]\n{module} = {module}:register\n"
METADATA = "Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n"


def plugin(folder: Path, module: str, code: str) -> str:
    """Write a package whose `register()` the server calls in each of its processes; the words for `--set`."""
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{module}.py").write_text(code)
    (info / "entry_points.txt").write_text(ENTRY.format(module=module))
    (info / "METADATA").write_text(METADATA.format(module=module))
    return f"env.PYTHONPATH={folder}"
