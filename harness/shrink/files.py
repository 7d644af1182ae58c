"""From a config.json on disk to the folder of a mini model, and what is told about it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import __version__
from harness.errors import UsageError
from harness.record import replace_text, writable
from harness.shrink import Mini, byte_tokenizer

SCHEMA = 1
REPORT = "shrink.json"
"""Beside the config.json of a mini model: what it was made from, and every decision."""


def read(path: Path) -> tuple[dict[str, Any], str]:
    """A config.json, or the one in a folder, and the 64 hex digits of its SHA-256.

    Raises:
        UsageError: no such file, or it is not a JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        raw = file.read_bytes()
        config = json.loads(raw)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}", fix="name a config.json, or a model's folder that has one"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no JSON: {error}", fix="correct it at that place") from error
    if not isinstance(config, dict):
        raise UsageError(f"{file} is no JSON object", fix="name the config.json of a model")
    return config, hashlib.sha256(raw).hexdigest()


def write(mini: Mini, folder: Path, *, digest: str) -> None:
    """Write config.json, a byte-level tokenizer and `shrink.json`; `digest` is of the full model's config.json.

    Raises:
        UsageError: a model that is no mini model is there already.
        NodeError: the folder cannot be written.
    """
    if (folder / "config.json").exists() and not (folder / REPORT).exists():
        raise UsageError(
            f"{folder} has a config.json that `harness shrink` did not write", fix="name another folder for --out"
        )
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        byte_tokenizer.write(folder)
        replace_text(folder / REPORT, _text(_report(mini, digest)))
        replace_text(folder / "config.json", _text(mini.config))


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _report(mini: Mini, digest: str) -> dict[str, Any]:
    ranks = {"tensor_parallel_size": mini.ranks.mini, "full_tensor_parallel_size": mini.ranks.full}
    rest = {name: value for name, value in asdict(mini).items() if name not in ("config", "ranks")}
    return {"schema": SCHEMA, "harness": __version__, "config_sha256": digest, **ranks, **rest}


def words(mini: Mini, folder: Path) -> Iterator[str]:
    """What a person reads: what was changed and why, what is unknown, what does not run."""
    ranks = f"a rank of {mini.ranks.mini} is like one of the full model's {mini.ranks.full}"
    yield f"{folder}: {len(mini.layers)} layers; {ranks}"
    yield from _table("changed", [(c.path, f"{_short(c.before)} → {_short(c.after)}", c.why) for c in mini.changes])
    yield from _table("unknown, kept", [(u.path, _short(u.value), u.hint) for u in mini.unknown])
    yield from _table("not run", [(lost, "", "") for lost in mini.not_run])
    yield f"  kept         {len(mini.kept)} fields, each with its reason in {REPORT}"


def _table(title: str, rows: list[tuple[str, str, str]]) -> Iterator[str]:
    if not rows:
        return
    yield f"  {title}"
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for path, value, why in rows:
        yield f"    {path:<{wide[0]}}  {value:<{wide[1]}}  {why}".rstrip()


def _short(value: Any, most: int = 40) -> str:
    text = "absent" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 1]}…"
