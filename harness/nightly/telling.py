"""Tell what is new, once: a command gets it as JSON on its standard input.

    news = what is worth telling, without told.json ─▶ command ─▶ exit 0 ─▶ told.json

Killed while the command runs, nobody can know what it did: the next call gives it the same news with the same `id`, by
which it can see that it has them already.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import NodeError
from harness.nightly import story
from harness.nightly.config import Config
from harness.nightly.story import Story
from harness.record import replace_text, writable

FILE = "told.json"
SECONDS = 120.0
"""For the command."""


def tell(told: Story, config: Config, folder: Path) -> tuple[str, ...]:
    """Call the command with what it was not given yet; the lines of that.

    Raises:
        NodeError: it cannot be started, takes too long or ends with another code than 0; the next call tries again.
    """
    file = folder / FILE
    known, keys = _read(file), told.keys()
    # A trouble that went away is worth telling when it comes back; all else has in its key what makes it new.
    known = [key for key in known if key in keys or not key.startswith("trouble ")]
    news = {key: line for key, line in keys.items() if key not in known}
    if news and config.body.notify:
        _call(config, _message(told, news, folder))
    with writable(folder):
        replace_text(file, json.dumps([*known, *news], indent=1, ensure_ascii=False) + "\n")
    return tuple(news.values())


def _message(told: Story, news: dict[str, str], folder: Path) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps(sorted(news)).encode()).hexdigest()[:12]
    return {"id": digest, "news": list(news.values()), "folder": str(folder.absolute()), **story.to_json(told)}


def _read(file: Path) -> list[str]:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise NodeError(
            f"{file} cannot be read: {error}", fix="remove it: everything is told once more then"
        ) from error
    return [str(key) for key in known] if isinstance(known, list) else []


def _call(config: Config, message: dict[str, Any]) -> None:
    words = _argv(config)
    fix = "correct `notify`; the next call tells it again"
    try:
        done = subprocess.run(
            words, input=json.dumps(message, ensure_ascii=False), capture_output=True, encoding="utf-8",
            errors="replace", timeout=SECONDS, check=False,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise NodeError(f"{words[0]} cannot be started: {error}", fix=fix) from error
    except subprocess.TimeoutExpired as error:
        raise NodeError(f"{words[0]} took longer than {SECONDS:g} s", fix=fix) from error
    if done.returncode:
        said = next(iter(reversed(done.stderr.strip().splitlines())), "it said nothing")
        raise NodeError(f"{words[0]} ended with {done.returncode}: {said}", fix=fix)


def _argv(config: Config) -> Sequence[str]:
    first, *rest = config.body.notify
    return [str(config.local(first)) if first.startswith(("./", "../")) else first, *rest]
