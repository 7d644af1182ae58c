"""The server's package as a commit of a repository has it, or the working tree with what nobody has committed yet.

.git/index ──copy──▶ index of our own ── add what changed ──▶ one tree hash: the same digits, the same sources
.git/objects ◀─reads─ objects of our own, gone in the end          └─ checked out wherever we like
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import git
from harness.errors import BuildError
from harness.git import GitError
from harness.runtimes.vllm_recipes import PACKAGE

IGNORE = ".gitignore"
_FIX = "name a clone of the server's repository and a commit in it: source:PATH@REV"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Sources that stay as they are while the repository moves on."""

    top: Path
    """The folder of the working tree; of a bare repository, itself."""
    git_dir: Path
    commit: str
    """40 digits; of a working tree, the commit that it is based on."""
    is_working_tree: bool
    tree: str
    """Git's hash of all that is in the package."""
    ignore: str
    """Git's hash of the repository's .gitignore; empty where there is none."""
    variables: Mapping[str, str]

    @property
    def words(self) -> str:
        """The commit in short, or that it is a working tree."""
        return f"the working tree {self.top}" if self.is_working_tree else f"commit {self.commit[:12]}"

    def changed_since(self, tag: str, paths: Sequence[str], *, only: str = "") -> tuple[str, ...]:
        """Files below pathspecs that differ from those of a tag; `only="D"`: those that are no longer there."""
        kinds = [f"--diff-filter={only}"] if only else []
        words = ["diff-index", "--cached", "--name-only", "-z", *kinds, f"refs/tags/{tag}", "--", *paths]
        return git.names(self._ask(*words))

    def check_out(self, site: Path) -> None:
        """Write the package, and the repository's .gitignore, into a folder that is there.

        Raises:
            BuildError: git refuses.
        """
        env = {**self.variables, "GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(site)}
        files = self._ask("ls-files", "-z", "--", PACKAGE, IGNORE)
        with _refused(self.top):
            git.ask(site, "checkout-index", "--quiet", "-z", "--stdin", env=env, given=files)

    def _ask(self, *words: str) -> str:
        with _refused(self.top):
            return git.ask(self.top, *words, env=self.variables)


@contextmanager
def snapshot(repo: Path, rev: str) -> Iterator[Snapshot]:
    """The sources of a commit, or for an empty `rev` of the working tree: tracked files, and new ones not ignored.

    Raises:
        BuildError: no repository, no such commit, or no package of the server in it.
    """
    with tempfile.TemporaryDirectory(prefix="hns-git-") as folder:
        with _refused(repo):
            taken = _taken(repo, rev, Path(folder))
        yield taken


@contextmanager
def _refused(repo: Path) -> Iterator[None]:
    try:
        yield
    except GitError as error:
        raise BuildError(f"git cannot read {repo}: {error}", fix=_FIX) from error


def _taken(repo: Path, rev: str, folder: Path) -> Snapshot:
    top, git_dir = _places(repo, bare=bool(rev))
    commit = _commit(top, rev)
    variables = _variables(top, folder)
    if rev:
        git.ask(top, "read-tree", commit, env=variables)
    else:
        _add_changes(top, Path(variables["GIT_INDEX_FILE"]), variables)
    if not git.ask(top, "ls-files", "--", f"{PACKAGE}/__init__.py", env=variables):
        raise BuildError(f"{rev or 'the working tree'} of {repo} has no package {PACKAGE}", fix=_FIX)
    ignore = git.ask(top, "ls-files", "--stage", "--", IGNORE, env=variables).split()
    return Snapshot(
        top=top,
        git_dir=git_dir,
        commit=commit,
        is_working_tree=not rev,
        tree=git.ask(top, "write-tree", f"--prefix={PACKAGE}/", env=variables),
        ignore=ignore[1] if ignore else "",
        variables=variables,
    )


def _places(repo: Path, *, bare: bool) -> tuple[Path, Path]:
    git_dir = Path(git.ask(repo, "rev-parse", "--absolute-git-dir"))
    if bare and git.ask(repo, "rev-parse", "--is-inside-work-tree") == "false":
        return git_dir, git_dir
    return Path(git.ask(repo, "rev-parse", "--show-toplevel")), git_dir


def _commit(top: Path, rev: str) -> str:
    try:
        return git.commit(top, rev or "HEAD")
    except GitError as error:
        raise BuildError(f"{top} has no commit {rev or 'yet'}", fix=git.to_have_it(top)) from error


def _variables(top: Path, folder: Path) -> dict[str, str]:
    objects = str(Path(top, git.ask(top, "rev-parse", "--git-path", "objects")))
    (folder / "objects").mkdir()
    return {
        "GIT_INDEX_FILE": str(folder / "index"),
        "GIT_OBJECT_DIRECTORY": str(folder / "objects"),
        # The list has colons between its paths; one that has a colon itself is quoted.
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": json.dumps(objects, ensure_ascii=False) if ":" in objects else objects,
    }


def _add_changes(top: Path, index: Path, variables: Mapping[str, str]) -> None:
    own = Path(top, git.ask(top, "rev-parse", "--git-path", "index"))
    if own.is_file():
        shutil.copyfile(own, index)  # with it comes which files need not be read again
    git.ask(top, "add", "--update", "--", ".", env=variables)
    if (top / PACKAGE).is_dir():
        git.ask(top, "add", "--all", "--", PACKAGE, env=variables)


def ignored(site: Path, files: Iterable[str]) -> frozenset[str]:
    """Which of these paths the .gitignore files that lie in a folder name.

    Raises:
        BuildError: git refuses.
    """
    # In a repository of its own: what a person ignores in theirs says nothing of what a build generates.
    with tempfile.TemporaryDirectory(prefix="hns-git-") as folder, _refused(site):
        git.ask(Path(folder), "init", "--quiet", "--template=", ".")
        env = {"GIT_DIR": str(Path(folder, ".git")), "GIT_WORK_TREE": str(site)}
        given = "\0".join(files)
        said = git.ask(site, "check-ignore", "--no-index", "-z", "--stdin", env=env, given=given, allowed=(0, 1))
        return frozenset(git.names(said))
