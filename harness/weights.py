"""Weights made ready before the spawn: fetched, or checked present, in a step and a budget of its own.

A missing model is never the server's failure, and the seconds of a download are never start-up seconds. The hub is
asked by the build's own `huggingface_hub`, in a process of the build's own environment, so that cache layout and
credentials are the ones that the server will use.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from harness.environment import Environment
from harness.errors import ModelError, NodeError
from harness.scenario import Scenario

# Prints one JSON line. The HTTP status, where there is one, tells a refusal (the scenario's fault) from an outage.
_SNAPSHOT = """
import json, sys
from huggingface_hub import snapshot_download
repo, revision, light = sys.argv[1], sys.argv[2] or None, sys.argv[3] == "light"
heavy = ["*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "original/*"]
try:
    print(json.dumps({"path": snapshot_download(repo, revision=revision, ignore_patterns=heavy if light else None)}))
except Exception as error:
    status = getattr(getattr(error, "response", None), "status_code", None)
    print(json.dumps({"error": type(error).__name__, "message": str(error), "status": status}))
"""

FORBIDDEN = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
CONFIGS = ("config.json", "params.json")
"""What makes a folder a model: the hub's file, or Mistral's own."""
UNKNOWN = ("RepositoryNotFoundError", "RevisionNotFoundError", "HFValidationError")
"""Errors of huggingface_hub that no other network and no later hour would change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    model: str
    revision: str | None
    """The resolved revision; None for a local folder."""


def wanted(scenario: Scenario) -> Iterator[tuple[str, str | None, str]]:
    """Every model that a launch reads: (path or hub id, revision, where the scenario names it)."""
    yield scenario.model, scenario.revision, "model"
    for flag in ("tokenizer", "hf-config-path"):
        if isinstance(value := scenario.serve.get(flag), str):
            yield value, None, f"serve.{flag}"
    draft = scenario.serve.get("speculative-config")
    if isinstance(draft, Mapping) and isinstance(draft.get("model"), str):
        yield draft["model"], draft.get("revision"), "serve.speculative-config.model"


def present(scenario: Scenario) -> None:
    """Check the local folders that a scenario names; costs nothing, needs no build.

    Raises:
        ModelError: a folder is not there, or holds no model.
    """
    for model, _, where in wanted(scenario):
        if Path(model).is_absolute():
            _check_folder(Path(model), where)


def _check_folder(folder: Path, where: str) -> None:
    if not folder.exists():
        raise ModelError(f"{where}: the folder {folder} does not exist", fix="make it, or correct the scenario")
    if where.endswith("model") and folder.is_dir() and not any((folder / name).is_file() for name in CONFIGS):
        raise ModelError(f"{where}: {folder} holds no {CONFIGS[0]}", fix="name the folder that holds the model's files")


def fetch(
    scenario: Scenario, environment: Environment, env: Mapping[str, str], *, seconds: float
) -> tuple[Fetched, ...]:
    """Have every model of the scenario on disk: check local ones, download the others (no weights for `dummy`).

    `seconds` is the budget for all of them together.

    Raises:
        ModelError: a folder is missing, or the hub refuses (401, 403, 404) or has no such revision.
        NodeError: the hub cannot be reached, or the budget is spent.
    """
    present(scenario)
    light = scenario.serve.get("load-format") == "dummy"
    remote = {(m, r, w) for m, r, w in wanted(scenario) if not Path(m).is_absolute()}
    local = tuple(Fetched(model=m, revision=None) for m, _, _ in wanted(scenario) if Path(m).is_absolute())
    return local + tuple(
        _snapshot(m, r, where=w, light=light, environment=environment, env=env, seconds=seconds)
        for m, r, w in sorted(remote, key=str)
    )


def _snapshot(
    model: str,
    revision: str | None,
    *,
    where: str,
    light: bool,
    environment: Environment,
    env: Mapping[str, str],
    seconds: float,
) -> Fetched:
    argv = [str(environment.python), "-c", _SNAPSHOT, model, revision or "", "light" if light else "all"]
    try:
        done = subprocess.run(
            argv, env=dict(env), capture_output=True, text=True, errors="replace", timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NodeError(
            f"{where}: {model} was not downloaded within its budget of {seconds:.0f} s",
            fix="raise budgets.download, or fetch it first with `harness fetch`",
        ) from error
    answer = _last_json(done.stdout) or {
        "error": f"exit {done.returncode}",
        "message": done.stderr[-2000:],
        "status": None,
    }
    if "path" in answer:
        return Fetched(model=model, revision=Path(answer["path"]).name)
    raise _refused(answer, model=model, where=where, offline=env.get("HF_HUB_OFFLINE") == "1")


def _last_json(text: str) -> dict[str, Any] | None:
    line = next((line for line in reversed(text.splitlines()) if line.startswith("{")), None)
    return json.loads(line) if line else None


def _refused(answer: Mapping[str, Any], *, model: str, where: str, offline: bool) -> ModelError | NodeError:
    first = str(answer["message"]).strip().split("\n", 1)[0]
    words = f"{where}: {model} cannot be had: {answer['error']}: {first}"
    if answer["status"] in FORBIDDEN:
        return ModelError(words, fix="ask for access to the model and give a token that has it (HF_TOKEN)")
    if answer["status"] == HTTPStatus.NOT_FOUND or answer["error"] in UNKNOWN:
        return ModelError(words, fix="correct the name or revision of the model, or give a token that may see it")
    if offline:
        return ModelError(words, fix="HF_HUB_OFFLINE=1 and it is not in the cache: `harness fetch` it with a network")
    return NodeError(words, fix="the hub cannot be reached from here: try later, or name a local folder as model")
