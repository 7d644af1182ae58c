"""Questions to git about somebody's repository. Nothing in it is ever changed, its index included."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import NodeError

# Set by git for its hooks and by `git rebase --exec`: they name another repository than the one asked about.
_LOCAL = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE", "GIT_NAMESPACE", "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
)  # fmt: skip
# What people set for themselves must not change an answer.
_SETTINGS = (
    "core.autocrlf=false", "core.excludesFile=/dev/null", "core.fsmonitor=false", "core.splitIndex=false",
    "color.ui=never", "diff.noprefix=false", "diff.renames=false", "log.showSignature=false",
)  # fmt: skip
_ENV = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


class GitError(Exception):
    """Git refused: the first line of what it said. Who asked knows whose fault that is."""


def ask(
    repo: Path,
    *words: str,
    env: Mapping[str, str] | None = None,
    given: str | None = None,
    allowed: Sequence[int] = (0,),
) -> str:
    """What `git WORDS` prints when started in a folder; without the last line end.

    Raises:
        GitError: it ends with another code than those `allowed`.
        NodeError: there is no git.
    """
    done = subprocess.run(
        _argv(repo, words),
        env={**_variables(), **(env or {})},
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",  # a path is bytes
        check=False,
    )
    if done.returncode not in allowed:
        raise _refusal(words, done.returncode, done.stderr)
    return done.stdout.removesuffix("\n")


def archive(repo: Path, commit: str, folder: str) -> bytes:
    """The files below a folder as they were in a commit: a tar file.

    Raises:
        GitError: there is no such commit, or it has no such folder.
        NodeError: there is no git.
    """
    words = ("archive", "--format=tar", commit, "--", folder)
    done = subprocess.run(
        _argv(repo, words), env=_variables(), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode:
        raise _refusal(words, done.returncode, done.stderr.decode(errors="replace"))
    return done.stdout


def _argv(repo: Path, words: Sequence[str]) -> list[str]:
    git = shutil.which("git")
    if git is None:
        raise NodeError("there is no git, which knows the commits of a repository", fix="install git")
    return [git, "-C", str(repo), *(option for each in _SETTINGS for option in ("-c", each)), *words]


def _variables() -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if name not in _LOCAL}, **_ENV}


def _refusal(words: Sequence[str], code: int, said: str) -> GitError:
    lines = said.strip().splitlines() or [f"git {words[0]} ended with {code}"]
    return GitError(lines[0].removeprefix("fatal: "))


def names(printed: str) -> tuple[str, ...]:
    """The paths in the output of a command with `-z`."""
    return tuple(filter(None, printed.split("\0")))


def commit(repo: Path, rev: str) -> str:
    """The 40 digits of the commit that a revision names.

    Raises:
        GitError: there is no such commit, or no repository.
    """
    return ask(repo, "rev-parse", "--verify", "--end-of-options", f"{rev}^{{commit}}")


def has_tag(repo: Path, tag: str) -> bool:
    """Whether there is a tag of that name."""
    return bool(ask(repo, "for-each-ref", f"refs/tags/{tag}"))


def changed(repo: Path, one: str, other: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Files below `paths` (git's pathspecs) that differ between two commits.

    Raises:
        GitError: one of them is not there.
    """
    return names(ask(repo, "diff", "--name-only", "-z", "--end-of-options", one, other, "--", *paths))


def release_tags(repo: Path) -> tuple[str, ...]:
    """Tags that are called like a version: `v0.30.0`."""
    return tuple(ask(repo, "for-each-ref", "--format=%(refname:strip=2)", "refs/tags/v[0-9]*").splitlines())


def to_have_it(repo: Path) -> str:
    """What to do about a commit that a repository lacks."""
    shallow = ask(repo, "rev-parse", "--is-shallow-repository") == "true"
    return "the clone is shallow: `git fetch --unshallow`" if shallow else "fetch it, or correct its name"
