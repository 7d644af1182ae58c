"""Real git repositories, made on the fly."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


class Repository:
    """One in a folder; nothing of the person who runs the tests gets into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--template=", "--initial-branch=main", ".")

    def git(self, *words: str) -> str:
        when = f"{1_700_000_000 + 60 * self.count} +0000"
        who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in (
            ("NAME", "a"), ("EMAIL", "a@b.c"), ("DATE", when),
        )}  # fmt: skip
        env = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        done = subprocess.run(["git", "-C", self.folder, *words], env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def write(self, files: Mapping[str, str | None]) -> None:
        """None removes a file."""
        for name, text in files.items():
            path = self.folder / name
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, files: Mapping[str, str | None], *, tag: str = "") -> str:
        self.write(files)
        return self.commit_all(tag)

    def commit_all(self, tag: str = "") -> str:
        self.count += 1
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", f"commit {self.count}")
        if tag:
            self.git("tag", tag)
        return self.git("rev-parse", "HEAD")

    def merge(self, branch: str) -> str:
        self.count += 1
        self.git("merge", "--quiet", "--no-ff", "--message", f"merge {self.count}", branch)
        return self.git("rev-parse", "HEAD")
