"""The program `buildkite-agent`, as far as it is used: artifacts, annotations, steps, marks that a build keeps."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from harness.errors import NodeError

PROGRAM = "buildkite-agent"
BUILD = "BUILDKITE_BUILD_ID"
_ABSENT = 100
"""Exit code of `meta-data exists` for what is not there."""
_SECONDS = 600.0

Style = Literal["success", "info", "warning", "error"]


class Agent:
    """The agent of the job that this process is a part of."""

    @property
    def build(self) -> str:
        """The id of the build that the job belongs to; empty outside of one."""
        return os.environ.get(BUILD, "")

    def download(self, pattern: str, folder: Path, *, step: str) -> str:
        """Fetch the artifacts of a step, those of the last job where it was retried; why that failed, or nothing.

        A step that never began has none, and the agent says so with the code of every other failure.
        """
        folder.mkdir(parents=True, exist_ok=True)
        done = _call("artifact", "download", pattern, str(folder), "--step", step, allowed=None)
        return _last(done.stderr) or f"the agent ended with {done.returncode}" if done.returncode else ""

    def annotate(self, body: str, *, style: Style, context: str) -> None:
        """Show Markdown on the page of the build, in the place of what had the same context."""
        _call("annotate", "--style", style, "--context", context, given=body)

    def upload(self, file: Path) -> None:
        """Add the steps of a file to the build that is going."""
        _call("pipeline", "upload", str(file))

    def marked(self, name: str) -> bool:
        """Whether an earlier job of this build set a mark."""
        return _call("meta-data", "exists", name, allowed=(0, _ABSENT)).returncode == 0

    def mark(self, name: str) -> None:
        _call("meta-data", "set", name, "done")


def _call(
    *words: str, given: str | None = None, allowed: Collection[int] | None = (0,)
) -> subprocess.CompletedProcess[str]:
    """Run it; with `allowed` None every code is one to look at.

    Raises:
        NodeError: there is no such program, it takes too long, or it ends with another code.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise NodeError(
            f"there is no {PROGRAM} on PATH", fix="run --collect in a job of Buildkite; it is no command for people"
        )
    try:
        done = subprocess.run(
            [program, *words], input=given, capture_output=True, encoding="utf-8", errors="replace", check=False,
            timeout=_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise NodeError(f"{PROGRAM} {words[0]} took longer than {_SECONDS:g} s", fix="try again") from error
    if allowed is not None and done.returncode not in allowed:
        said = _last(done.stderr) or "it said nothing"
        raise NodeError(f"{PROGRAM} {' '.join(words[:2])} ended with {done.returncode}: {said}", fix="try again")
    return done


def _last(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
