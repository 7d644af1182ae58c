"""From a config.json on disk to the folder of a mini model, and what is told about it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import __version__
from harness.errors import UsageError
from harness.record import replace_text, writable
from harness.report.text import visible
from harness.shrink import Mini, byte_tokenizer

SCHEMA = 1
CONFIG = "config.json"
REPORT = "shrink.json"
"""Beside the config.json of a mini model: what it was made from, and every decision."""
NAMES = (CONFIG, REPORT, *byte_tokenizer.NAMES)
"""All that is written into the folder of a mini model."""


def read(path: Path) -> tuple[dict[str, Any], str]:
    """A config.json, or the one in a folder, and the 64 hex digits of its SHA-256.

    Raises:
        UsageError: no such file, or it is not a JSON object.
    """
    file = path / CONFIG if path.is_dir() else path
    if file.exists() and not file.is_file():
        raise UsageError(f"{file} is no file", fix="name a config.json, or a model's folder that has one")
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


def check_places(models: Sequence[Path], folders: Sequence[Path]) -> None:
    """See that each mini model has a folder of its own, where nothing is but an older mini model.

    Raises:
        UsageError: two are one, one would be written over what is read, or there are files of somebody else.
    """
    sources = {_folder_of(model) for model in models}
    for folder in folders:
        if folder.resolve() in sources:
            raise UsageError(f"{folder} is the folder of the model that is read", fix="name another folder")
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is no folder", fix="name another one")
        there = [name for name in NAMES if (folder / name).exists()]
        if there and not _ours(folder / REPORT):
            raise UsageError(
                f"{folder} has a {there[0]} that `harness shrink` did not write", fix="name another folder"
            )
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError(f"{folders[0]} is the folder of both mini models", fix="give each one of its own")


def make(folders: Sequence[Path]) -> None:
    """All of them, before the first is filled.

    Raises:
        NodeError: one cannot be made.
    """
    for folder in folders:
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)


def _folder_of(model: Path) -> Path:
    return model.resolve() if model.is_dir() else model.resolve().parent


def write(mini: Mini, folder: Path, *, digest: str) -> None:
    """Write config.json, a byte-level tokenizer and `shrink.json`; `digest` is of the full model's config.json.

    Raises:
        NodeError: the folder cannot be written.
    """
    make([folder])
    with writable(folder):
        byte_tokenizer.write(folder)
        replace_text(folder / REPORT, _text(_report(mini, digest)))
        replace_text(folder / CONFIG, _text(mini.config))


def _ours(report: Path) -> bool:
    try:
        return "config_sha256" in json.loads(report.read_bytes())
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


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
    shown = [tuple(map(visible, row)) for row in rows]
    wide = [max(len(row[column]) for row in shown) for column in (0, 1)]
    for path, value, why in shown:
        yield f"    {path:<{wide[0]}}  {value:<{wide[1]}}  {why}".rstrip()


def _short(value: Any, most: int = 40) -> str:
    text = "absent" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 1]}…"
