"""Ranges of commits: between two of one repository, and between the tags of two releases."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness import git
from harness.bisect import commits
from harness.bisect.commits import CommitRange
from harness.bisect.ranges import Range
from harness.build import Build
from harness.environment.commit_index import INDEX
from harness.errors import UsageError


def of_one_repository(older: Build, newer: Build) -> Range:
    """The commits between two `source:` builds.

    Raises:
        UsageError: they are of two repositories or two bases, or one is a working tree, which has no place in an order.
    """
    for end in (older, newer):
        if not end.rev:
            raise UsageError(f"{end} is a working tree, which has no place in an order", fix="commit it, and name @REV")
    if (older.ref, older.base, older.accelerator) != (newer.ref, newer.base, newer.accelerator):
        raise UsageError(f"{older} and {newer} are not of one repository and base", fix="name the same for both")
    found = commits.between(Path(older.ref), older.rev, newer.rev)
    return _range(Path(older.ref), found, lambda sha: replace(newer, rev=sha), older=older, newer=newer)


def of_wheels(older: Build, newer: Build, repo: Path) -> Range:
    """The commits between two `commit:` builds, in the order that a clone of their repository has them.

    Raises:
        UsageError: as `commits.between`.
    """
    found = commits.between(repo, older.ref, newer.ref)
    return _range(repo, found, lambda sha: replace(newer, ref=sha), older=older, newer=newer)


def of_releases(older: Build, newer: Build, repo: Path) -> Range | None:
    """The commits between the tags of two releases; None where no commit lies between.

    They are run as wheels where $HARNESS_COMMIT_INDEX says where those are, else as sources over the binaries of the
    release from which fewer native files differ.

    Raises:
        UsageError: the repository lacks a tag.
    """
    tags = [f"v{release.ref}" for release in (older, newer)]
    for tag in tags:
        if not git.has_tag(repo, tag):
            raise UsageError(f"{repo} has no tag {tag}", fix="fetch its tags: git fetch --tags")
    found = commits.between(repo, f"refs/tags/{tags[0]}", f"refs/tags/{tags[1]}")

    def build(sha: str) -> Build:
        if os.environ.get(INDEX):
            return Build(kind="commit", ref=sha, accelerator=newer.accelerator)
        base = commits.nearest_base(repo, sha, *tags).removeprefix("v")
        return Build(kind="source", ref=str(repo.absolute()), rev=sha, base=base, accelerator=newer.accelerator)

    made = _range(repo, found, build, older=older, newer=newer)
    return made if len(made.builds) > 2 else None  # noqa: PLR2004 - the two ends


def _range(repo: Path, found: CommitRange, build: Callable[[str], Build], *, older: Build, newer: Build) -> Range:
    """The ends stay as they were named: they are what was, or will be, verified."""
    first, *between, last = found.commits
    shas = {older: first, newer: last, **{build(sha): sha for sha in between}}

    def log(before: Build, after: Build) -> str:
        return commits.log(repo, shas[before], shas[after])

    stem = build(found.merge_base) if found.merge_base else None
    if stem:
        shas[stem] = first
    return Range(builds=(older, *map(build, between), newer), notes=found.notes, merge_base=stem, log=log)
