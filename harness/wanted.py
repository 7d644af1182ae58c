"""A signature as people name it: its id, a prefix of that, its title, or `@run.json`, the one of a recorded run."""

from __future__ import annotations

import re
from pathlib import Path

from harness import record
from harness.errors import ScenarioError, UsageError
from harness.record import Run
from harness.signature import Signature

_PREFIX = re.compile("[0-9a-f]{4,12}")
"""Shorter ones would name one failure in sixteen, or in 256."""


def resolve(word: str) -> str:
    """The id behind `@run.json` (or `@FOLDER`); any other word as it is.

    Raises:
        ScenarioError: there is no such record, or it has no signature.
    """
    if not word.startswith("@"):
        return _checked(word)
    found = recorded(word).signature
    assert found is not None, "a run without one is refused"
    return found.id


def recorded(word: str) -> Run:
    """The run that failed behind `@run.json` (or `@FOLDER`).

    Raises:
        ScenarioError: there is no such record, or it has no signature.
    """
    try:
        run = record.load(Path(word[1:]))
    except UsageError as error:
        raise ScenarioError(error.what, fix="name the run.json of a run that failed, after the @") from error
    if run.signature is None:
        raise ScenarioError(f"{word[1:]} has no signature: nothing failed in it", fix="name a run that failed")
    return run


def _checked(word: str) -> str:
    """A word that can name something."""
    if not word.strip():
        raise UsageError("a signature without a word names nothing", fix="name an id, a title or @run.json")
    if re.fullmatch("[0-9a-fA-F]{1,12}", word) and not _PREFIX.fullmatch(word):
        raise UsageError(f"{word!r} is no id: it has 4 to 12 digits 0-9 and a-f", fix="copy it from a report")
    return word


def named(word: str, signature: Signature) -> bool:
    """Whether a resolved word names this signature."""
    return signature.title == word or bool(_PREFIX.fullmatch(word) and signature.id.startswith(word))
