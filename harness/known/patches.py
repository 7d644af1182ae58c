"""A user's patch: a unified diff of a build's Python sources, applied to a copy of them by git."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from harness import git
from harness.errors import ScenarioError, UsageError
from harness.git import GitError

_FIX = "write it against the build's own sources, paths as seen from site-packages (a/vllm/…), or give it an @RANGE"
_NAMED = re.compile(r"(?m)^(?:---|\+\+\+) (?:[ab]/)?([^\t\r\n]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    """One `--patch FILE[@RANGE]`; stands beside `Step` wherever a run is made under something."""

    name: str
    """Its file's name."""
    text: str
    builds: str = ""
    """The builds that it is for: `>=0.29.0,<0.30.0` or `FIRST..LAST`; empty for all."""
    serve: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    edit: None = None
    taken: tuple[str, ...] = ()

    touches_sources = True

    @property
    def words(self) -> str:
        return f"patch {self.name}"

    @property
    def key(self) -> str:
        """All that it does: the same key, the same change."""
        return self.text

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it names, as seen from site-packages."""
        return tuple(dict.fromkeys(name for name in _NAMED.findall(self.text) if name != "/dev/null"))


def read(word: str) -> Patch:
    """A patch as named on the command line: `FILE` or `FILE@RANGE`.

    Raises:
        UsageError: no such file, or nothing in it that looks like a unified diff.
    """
    name, at, builds = word.rpartition("@") if not Path(word).is_file() and "@" in word else (word, "", "")
    if at:
        _check_range(word, builds)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--patch {word}: {name} cannot be read: {error}", fix="name a unified diff") from error
    made = Patch(name=Path(name).name, text=text, builds=builds)
    if not made.files:
        raise UsageError(f"--patch {word}: {name} is no unified diff", fix="make it with `git diff` or `diff -u`")
    return made


def _check_range(word: str, builds: str) -> None:
    fix = "write FILE@'>=0.29.0,<0.30.0', FILE@FIRST..LAST, or FILE alone for all builds"
    first, dots, last = builds.partition("..")
    if not builds or (dots and not (first and last)):
        raise UsageError(f"--patch {word}: the range names no builds", fix=fix)
    try:
        SpecifierSet("" if dots else builds)
    except InvalidSpecifier as error:
        raise UsageError(f"--patch {word}: {builds!r} is no range of versions", fix=fix) from error


def apply(patches: Sequence[Patch], site: Path, packages: Sequence[str]) -> None:
    """Apply them in order to the packages copied into `site`; what they change elsewhere (tests, docs) is left out.

    Raises:
        ScenarioError: one does not fit these sources.
        NodeError: there is no git.
    """
    include = [f"--include={package}/*" for package in packages]
    # git looks upwards for a repository, and in one would take the paths for its own.
    env = {"GIT_CEILING_DIRECTORIES": str(site.parent)}
    for patch in patches:
        try:
            git.ask(site, "apply", "--whitespace=nowarn", *include, "-", env=env, given=patch.text)
        except GitError as error:
            raise ScenarioError(f"{patch.words} does not fit this build: {error}", fix=_FIX) from error
