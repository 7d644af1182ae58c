"""Which builds a command line means: two ends of a range, a list, one after the other."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from harness import node
from harness.bisect import sources
from harness.bisect.ranges import Range
from harness.build import Build, parse
from harness.errors import UsageError
from harness.runtimes.vllm_recipes import COMPARED, recipe

_ENDS = re.compile(r"([^,]*[^,./:])\.\.([^,./][^,]*)")
"""Two builds with dots between them; `../` in a path is none of that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """As named on the command line."""

    good: Build
    bad: Build
    fix: bool = False

    @property
    def older(self) -> Build:
        return self.bad if self.fix else self.good

    @property
    def newer(self) -> Build:
        return self.good if self.fix else self.bad


def listed(path: Path) -> tuple[Build, ...]:
    """The builds of a list file, one a line, oldest first; `#` begins a comment.

    Raises:
        UsageError: not readable, a line that names no build (says which), a build twice.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", fix="name a file with one build a line") from error
    builds: list[Build] = []
    for number, line in enumerate(lines, start=1):
        word = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if not word:
            continue
        try:
            build = parse(word)
        except UsageError as error:
            raise UsageError(f"{path}:{number}: {error.what}", fix=error.fix) from error
        if build in builds:
            raise UsageError(f"{path}:{number}: {build} is there twice", fix="name each build once")
        builds.append(build)
    if not builds:
        raise UsageError(f"{path} names no build", fix="write one build a line, the oldest first")
    return tuple(builds)


def of_list(path: Path, *, good: Build | None, bad: Build | None, fix: bool) -> tuple[Ends, Range]:
    """The part of a list between two of its builds; without ends, all of it.

    Raises:
        UsageError: an end is not in the list, or they are the wrong way round.
    """
    builds = listed(path)
    first, last = (bad, good) if fix else (good, bad)
    older, newer = first or builds[0], last or builds[-1]
    for end in (older, newer):
        if end not in builds:
            raise UsageError(f"{end} is not in {path}", fix="add it, or leave the end out: the list's own end counts")
    low, high = builds.index(older), builds.index(newer)
    if low > high:
        fix_hint = "the list has the oldest first; swap the ends" + ("" if fix else ", or --fix to find the repair")
        raise UsageError(f"{older} comes after {newer} in {path}", fix=fix_hint)
    chosen = Range(builds=builds[low : high + 1])
    return Ends(good=newer if fix else older, bad=older if fix else newer, fix=fix), chosen


def between(ends: Ends, *, repo: Path | None) -> Range:
    """The builds between two ends of one kind: releases, or commits of one repository.

    Raises:
        UsageError: the ends have no order between them.
        NodeError: the package index cannot be read.
    """
    kinds = {ends.good.kind, ends.bad.kind}
    if kinds == {"release"}:
        return _releases(ends, repo)
    if kinds == {"source"}:
        return sources.of_one_repository(ends.older, ends.newer)
    if kinds == {"commit"}:
        if repo is None:
            raise UsageError("commits have no order without their repository", fix="name a clone of it with --repo")
        return sources.of_wheels(ends.older, ends.newer, repo)
    raise UsageError(
        f"between {ends.good} and {ends.bad} there is no order that harness knows",
        fix="write the builds into a file, oldest first, and name it with --builds",
    )


def _releases(ends: Ends, repo: Path | None) -> Range:
    """Releases, then what led from one to the next: its candidates, and the commits where a repository is named."""
    from harness.bisect import releases  # noqa: PLC0415 - needs a library that an offline node may lack

    accelerators = {end.accelerator for end in (ends.good, ends.bad)}
    if len(accelerators) > 1:
        raise UsageError(f"{ends.good} and {ends.bad} are for different hardware", fix="write +cpu, +cuda or neither")
    accelerator = ends.older.accelerator or node.read().accelerator
    known = releases.available(recipe(ends.older.version, accelerator).distribution)
    found = releases.path(ends.older.version, ends.newer.version, known)

    def build(version: Version) -> Build:
        return replace(parse(str(version)), accelerator=ends.older.accelerator)

    def finer(before: Build, after: Build) -> Range | None:
        if before.kind != "release" or after.kind != "release":
            return None
        between = releases.pre_releases(before.version, after.version, known)
        if between:
            return Range(builds=(before, *map(build, between), after), finer=commits_between, log=log)
        return commits_between(before, after)

    def commits_between(before: Build, after: Build) -> Range | None:
        return sources.of_releases(before, after, repo) if repo else None

    def log(before: Build, after: Build) -> str:
        return COMPARED.format(before=before.version, after=after.version)

    return Range(
        builds=tuple(map(build, found.versions)),
        notes=found.notes,
        merge_base=build(found.branch_point) if found.branch_point else None,
        finer=finer,
        log=log,
    )


def swept(words: str, *, repo: Path | None) -> tuple[Build, ...]:
    """The builds of `--builds`: `A..B`, a list file, or builds with commas between them.

    Raises:
        UsageError: they name no builds.
    """
    if Path(words).is_file():
        return listed(Path(words))
    if ":" not in words and os.sep in words:
        raise UsageError(f"--builds {words}: there is no such list", fix="name a list, A..B, or builds with commas")
    if ends := _ENDS.fullmatch(words):
        return between(Ends(good=parse(ends[1]), bad=parse(ends[2])), repo=repo).builds
    return tuple(map(parse, words.split(",")))
