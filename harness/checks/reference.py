"""Stored log-probabilities of a corpus, computed by another implementation: what the server's are compared with.

{"schema": 1, "weights": {"model.safetensors": "<sha256>"}, "corpus": {"name", "sha256", "bytes"},
 "dtype": "float32", "made_with": {"torch": …, "transformers": …}, "prefix": [256],
 "windows": [{"tokens": [256, 65, …], "logprobs": [null, -3.25, …]}]}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from harness.checks.scoring import Value, Window, values
from harness.errors import ScenarioError

REMAKE = "make it again, as make_reference.py beside the tiny model does, or name another file"


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class StoredCorpus(_Stored):
    name: str
    sha256: str
    bytes: int


class StoredWindow(_Stored):
    tokens: tuple[int, ...]
    logprobs: tuple[float | None, ...]

    @model_validator(mode="after")
    def _aligned(self) -> StoredWindow:
        if len(self.tokens) != len(self.logprobs) or None in self.logprobs[1:]:
            raise ValueError("a window needs one logprob for each token after its first")
        return self


class Reference(_Stored):
    schema_: int
    weights: Mapping[str, str]
    """SHA-256 by file name: whose probabilities these are."""
    corpus: StoredCorpus
    dtype: str
    made_with: Mapping[str, str]
    prefix: tuple[int, ...]
    windows: tuple[StoredWindow, ...]

    @property
    def longest(self) -> int:
        return max(len(window.tokens) for window in self.windows)

    @property
    def corpus_tokens(self) -> tuple[int, ...]:
        return tuple(token for window in self.windows for token in window.tokens[len(self.prefix) :])

    def cut(self) -> tuple[Window, ...]:
        return tuple(Window(tokens=window.tokens, prefix=len(self.prefix)) for window in self.windows)

    def scored(self) -> list[Value]:
        stored = enumerate(zip(self.cut(), self.windows, strict=True), start=1)
        return [value for number, (window, given) in stored for value in values(window, number, given.logprobs)]


def load(path: Path) -> Reference:
    """Read a reference.

    Raises:
        ScenarioError: no such file, or not a reference of schema 1.
    """
    try:
        data = json.loads(path.read_bytes())
        if not isinstance(data, dict) or data.get("schema") != 1:
            raise ScenarioError(f"{path} is not a reference of schema 1", fix=REMAKE)
        data["schema_"] = data.pop("schema")
        return Reference.model_validate_json(json.dumps(data))
    except OSError as error:
        raise ScenarioError(f"the reference {path} cannot be read: {error.strerror}", fix=REMAKE) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "reference"
        raise ScenarioError(f"{path} is not a usable reference: {where}: {first['msg']}", fix=REMAKE) from error
    except ValueError as error:
        raise ScenarioError(f"{path} is not JSON: {error}", fix=REMAKE) from error


def check_fits(reference: Reference, path: Path, *, corpus: bytes, model: str) -> None:
    """Refuse a reference that was made for another text or, where the model is a folder here, for other weights.

    Raises:
        ScenarioError: it was.
    """
    if reference.corpus.sha256 != hashlib.sha256(corpus).hexdigest():
        raise ScenarioError(f"{path} was made for another corpus, {reference.corpus.name}", fix=REMAKE)
    folder = Path(model)
    if not folder.is_dir():
        return
    for name, expected in reference.weights.items():
        file = folder / name
        if not file.is_file():
            raise ScenarioError(f"{path} was made for weights {name}, which {folder} does not have", fix=REMAKE)
        if _sha256(file) != expected:
            raise ScenarioError(f"{path} was made for other weights than {file}", fix=REMAKE)


def _sha256(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def first_mismatch(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int | None:
    """Index of the first token that differs, also where one list ends before the other; None: equal."""
    if ours == theirs:
        return None
    pairs = zip(ours, theirs, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
