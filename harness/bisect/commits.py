"""The commits between two revisions of a repository, as they came to the line that leads to the bad one.

good ●──●──●──●──●──● bad        first parents: what was merged comes with its merge
         └─────┘

●──●──stem──●──●──● bad          good left that line: the commits run from where it did, and that
       └──● good                 commit, `merge_base`, is judged before all others
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import git
from harness.errors import UsageError
from harness.git import GitError
from harness.runtimes.vllm_sources import NATIVE

_DIGITS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitRange:
    """Commits by their 40 digits, oldest first, both ends included."""

    commits: tuple[str, ...]
    """From the good one, or from the merge base, to the bad one."""
    merge_base: str | None = None
    """Where the good commit left the line of first parents that leads to the bad one; None: it is on it."""
    notes: tuple[str, ...] = ()
    """What whoever reads the result must know."""


def between(repo: Path, good: str, bad: str, *, paths: Sequence[str] = ()) -> CommitRange:
    """The line of first parents from one revision to the other; with `paths`, only commits that change one of them.

    Raises:
        UsageError: no repository, no such revision, both are the same, the bad one is the older one, they have nothing
            in common, or no commit between them changes one of `paths`.
    """
    old, new = _commit(repo, good), _commit(repo, bad)
    if old == new:
        raise UsageError(f"{good} and {bad} are the same commit {old[:_DIGITS]}", fix="name two different ones")
    line = _line(repo, old, new)
    if not line:
        raise UsageError(
            f"{bad} is an ancestor of {good}: there is nothing between them in this order",
            fix="swap the ends, or find the commit that repaired it with --fix",
        )
    stem = _stem(repo, line[0], good=good, bad=bad)
    chosen = _that_change(repo, old, new, paths) if paths else line
    if paths and not chosen:
        where = " ".join(paths)
        raise UsageError(f"no commit between {good} and {bad} changes {where}", fix="name other paths, or none")
    return CommitRange(
        commits=tuple(dict.fromkeys((stem, *chosen, new))),
        merge_base=stem if stem != old else None,
        notes=(_aside(repo, old, new, stem, good=good, bad=bad),) if stem != old else (),
    )


def nearest_base(repo: Path, rev: str, lo_tag: str, hi_tag: str) -> str:
    """Of the tags of two releases the one from which fewer native files of a commit differ; of equals the lower one.

    Raises:
        UsageError: no such revision, or neither tag is there.
    """
    commit = _commit(repo, rev)
    there = [tag for tag in dict.fromkeys((lo_tag, hi_tag)) if git.has_tag(repo, tag)]
    if not there:
        raise UsageError(f"{repo} has neither a tag {lo_tag} nor {hi_tag}", fix="fetch its tags: git fetch --tags")
    return min(there, key=lambda tag: len(git.changed(repo, f"refs/tags/{tag}", commit, NATIVE)))


def log(repo: Path, first: str, last: str) -> str:
    """One line for each commit after `first` up to `last`, the newest first, those that were merged included.

    Raises:
        UsageError: no repository, or no such revision.
    """
    words = f"{_commit(repo, first)}..{_commit(repo, last)}"
    return git.ask(repo, "log", "--oneline", "--no-decorate", f"--abbrev={_DIGITS}", words)


def _commit(repo: Path, rev: str) -> str:
    try:
        git.ask(repo, "rev-parse", "--git-dir")
    except GitError as error:
        raise UsageError(f"{repo} is not a git repository: {error}", fix="name a clone of the server's") from error
    try:
        return git.commit(repo, rev)
    except GitError as error:
        raise UsageError(f"{repo} has no commit {rev}", fix=git.to_have_it(repo)) from error


def _line(repo: Path, old: str, new: str) -> tuple[str, ...]:
    """The first parents of a commit, oldest first, until one that is in the other one's history."""
    return tuple(git.ask(repo, "rev-list", "--first-parent", "--reverse", f"{old}..{new}").splitlines())


def _that_change(repo: Path, old: str, new: str, paths: Sequence[str]) -> tuple[str, ...]:
    words = ("rev-list", "--first-parent", "--reverse", f"{old}..{new}", "--", *paths)
    return tuple(git.ask(repo, *words).splitlines())


def _stem(repo: Path, first: str, *, good: str, bad: str) -> str:
    """The commit on the line that the good one has too."""
    try:
        return git.commit(repo, f"{first}^1")
    except GitError as error:
        raise UsageError(f"{good} and {bad} have no commit in common", fix="name two of one history") from error


def _aside(repo: Path, old: str, new: str, stem: str, *, good: str, bad: str) -> str:
    is_ancestor = git.ask(repo, "merge-base", old, new) == old
    what = f"was merged on the way to {bad}" if is_ancestor else f"is not an ancestor of {bad}"
    return f"{good} {what}: the commits run from {stem[:_DIGITS]}, where it left that line"
