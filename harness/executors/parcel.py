"""What a run needs and another node does not have: the scenario's own files, known failures, values of variables.

    here: /home/me/scenarios/models/tiny    there: CACHE/sent/DIGEST/home/me/scenarios/models/tiny

Files are sent by value, and the scenario's paths changed to where they lie then: named by their content, so that what
a server compiled for a model is found again. Builds that are paths, and what is too large, must be there as here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from harness import known, run, wanted
from harness.baseline.history import History
from harness.environment import cache_root
from harness.errors import NodeError
from harness.executors.base import Ask
from harness.known.catalogue import file_beside
from harness.scenario import Expect, FromEnv

SENT_BYTES = 64 << 20
"""Of one file or folder that a scenario names; larger ones are weights, and nobody wants them copied for each run."""
WITH_PATHS = ("model", "serve", "env", "checks", "when", "local")
"""Fields of a scenario that may hold paths."""
PATHS = ("source", "venv", "tree", "lock")
"""Kinds of builds whose reference is a path, or several with commas."""


KEPT_SECONDS = 30 * 86400.0
"""What was sent and not used for so long is removed when something else arrives."""

Files = Mapping[str, bytes]
"""By absolute path, as where they come from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parcel:
    """One run, on its way."""

    ask: Ask
    reproduce: str
    files: Mapping[str, Files] = field(repr=False)
    """By what the scenario names, or by its own path."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Absolute paths that must be there, and why they are not sent."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the scenario takes from the environment of whoever asks."""
    history: bytes = field(default=b"", repr=False)
    """What is normal where it is asked: a node alone would have nothing to compare with."""


# --- here


def pack(ask: Ask) -> Parcel:
    """Everything that a node must be given to make this run."""
    scenario = ask.scenario
    files: dict[str, Files] = {str(scenario.path): dict(_of_scenario(scenario.path))}
    shared = dict(_of_build(ask))
    for _, path in scenario.local:
        found = list(_files(Path(path)))
        size = sum(file.stat().st_size for file in found)
        if size > SENT_BYTES:
            shared[path] = f"with {size >> 20} MiB it is not sent, only what has at most {SENT_BYTES >> 20}"
        elif found:
            files[path] = {str(file): file.read_bytes() for file in found}
    expect = scenario.expect and Expect(signature=wanted.resolve(scenario.expect.signature))
    return Parcel(
        ask=replace(ask, scenario=replace(scenario, expect=expect)),
        reproduce=run.command(scenario, ask.build, ask.sets, ask.handling),
        files=files,
        shared=shared,
        variables=_variables(ask),
        history=zlib.compress(History().snapshot(), 1),
    )


def _of_scenario(path: Path) -> Iterator[tuple[str, bytes]]:
    """The file itself, and the known failures that hold for it, beside it."""
    if path.is_file():
        yield str(path), path.read_bytes()
    if beside := file_beside(path):
        yield str(path.with_name(known.KNOWN_FAILURES)), beside.read_bytes()


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for place, _, names in os.walk(path, followlinks=True):
        yield from (file for name in names if (file := Path(place, name)).is_file())


def _of_build(ask: Ask) -> Iterator[tuple[str, str]]:
    if ask.build.kind in PATHS:
        for path in ask.build.ref.split(",") if ask.build.kind == "tree" else [ask.build.ref]:
            yield path, f"the build {ask.build} is not sent"


def _variables(ask: Ask) -> dict[str, str]:
    names = {value.from_ for value in ask.scenario.env.values() if isinstance(value, FromEnv)}
    return {name: os.environ[name] for name in sorted(names) if name in os.environ}


# --- there


def unpack(parcel: Parcel) -> Ask:
    """The run as it is asked on this node, its files in the cache.

    Raises:
        NodeError: a path that must be here is not, or the cache cannot be written.
    """
    for path, why in parcel.shared.items():
        if not Path(path).exists():
            fix = "put it at the same path on every node (a shared file system), or name something that a node can get"
            raise NodeError(f"{path} is not on this node, and {why}", fix=fix)
    place = cache_root() / "sent"
    try:
        paths = {path: str(_put(files, place) / Path(path).relative_to("/")) for path, files in parcel.files.items()}
    except OSError as error:
        fix = "make room, or set HARNESS_CACHE to another folder"
        raise NodeError(f"cannot write what was sent to {place}: {error}", fix=fix) from error
    scenario = parcel.ask.scenario
    changed = {name: moved(getattr(scenario, name), paths) for name in WITH_PATHS}
    return replace(parcel.ask, scenario=replace(scenario, path=Path(paths[str(scenario.path)]), **changed))


def _put(files: Files, place: Path) -> Path:
    """A folder with all of these; whoever sees it sees all of it, and two that write it write the same."""
    root = place / _digest(files)
    if root.is_dir():
        os.utime(root)
        return root
    part = place / f".{root.name}-{uuid.uuid4().hex[:6]}"
    part.mkdir(parents=True)
    for path, data in files.items():
        file = part / Path(path).relative_to("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    try:
        part.rename(root)
    except OSError:
        if not root.is_dir():
            raise
        shutil.rmtree(part)  # the other one was first
    _forget(place)
    return root


def _digest(files: Files) -> str:
    total = hashlib.sha256()
    for path, data in sorted(files.items()):
        total.update(f"{path}\0{len(data)}\0".encode() + data)
    return total.hexdigest()[:16]


def _forget(place: Path) -> None:
    oldest = time.time() - KEPT_SECONDS
    for old in place.iterdir():
        with suppress(FileNotFoundError):  # somebody else forgets too
            if old.stat().st_mtime < oldest:
                shutil.rmtree(old, ignore_errors=True)


def moved(value: Any, paths: Mapping[str, str]) -> Any:
    """A value of a scenario with every text that is one of these paths replaced."""
    if isinstance(value, str):
        return paths.get(value, value)
    if isinstance(value, Mapping):
        return {key: moved(each, paths) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(moved(each, paths) for each in value)
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: moved(getattr(value, name), paths) for name in type(value).model_fields})
    return value
