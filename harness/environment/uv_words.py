"""How uv is told where wheels come from, and what of the environment it may see."""

from __future__ import annotations

import os
import re
from pathlib import Path

from harness.runtimes.vllm_recipes import Recipe

# Of uv's own variables only those that say how an index is reached; the others would silently change what is installed.
_UV_KEPT = re.compile(
    r"UV_(DEFAULT_INDEX|INDEX|EXTRA_INDEX|OFFLINE|HTTP|.*CERT|.*TLS|INSECURE|KEYRING|CONCURRENT|FIND_LINKS|LOCK)"
)
_DROPPED = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")


def index_options(recipe: Recipe) -> list[str]:
    """Where wheels come from besides the index: folders of $PIP_FIND_LINKS, and the server's torch if none has it."""
    places = find_links()
    options = [option for place in places for option in ("--find-links", place)]
    for backend in recipe.values("torch_backend"):
        if not any(_has_torch(place, backend) for place in places):
            options += ["--torch-backend", backend]
    return options


def find_links() -> list[str]:
    """$PIP_FIND_LINKS, which uv does not read itself; folders that are not there are left out, as pip does."""
    words = os.environ.get("PIP_FIND_LINKS", "").split()
    return [word for word in words if "://" in word or Path(word).is_dir()]


def _has_torch(place: str, backend: str) -> bool:
    return any(f"+{backend}" in wheel.name.replace("%2B", "+") for wheel in Path(place).glob("torch-*.whl"))


def variables(cache: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED and _uv_may_see(name)}
    own = {
        "UV_CACHE_DIR": str(cache / "uv"),
        "UV_LINK_MODE": "hardlink",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    return {**kept, **own}


def _uv_may_see(name: str) -> bool:
    return not name.startswith("UV_") or bool(_UV_KEPT.match(name))
