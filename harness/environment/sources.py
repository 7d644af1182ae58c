"""`source:PATH@REV`: the Python sources of a commit over the binaries of a release, without compiling anything.

    envs/vllm-source-TREE-KEY/site-packages/vllm/      PYTHONPATH of the launch begins here
      v1/core.py         as in the commit; where the release has the very same, with its time and its byte code
      _C.abi3.so         ──▶ link into the release, as all that is neither Python nor in the commit
      _version.py        copied from it: a file that the repository ignores is one that a build generates
      old.py             in the release only: left out

Two commits with the same package and the same base are one overlay.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from harness import clock, git
from harness.build import Build, parse
from harness.environment import checkout, content, copies, installer, interpreter
from harness.environment.checkout import Snapshot
from harness.environment.envcache import Entry, full_disk
from harness.environment.model import Environment, Making
from harness.errors import BuildError
from harness.runtimes.vllm_recipes import PACKAGE, PROGRAM, recipe
from harness.runtimes.vllm_sources import GENERATED, NATIVE, tag_of, version_of_tag

_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class _Over:
    """Sources, and what they are laid over."""

    taken: Snapshot
    base: Environment
    tag: str
    """Of the base's release; empty where the repository has none."""

    @property
    def base_entry(self) -> Entry:
        return self.base.parts[0]

    @property
    def key(self) -> str:
        """All that decides what is in the overlay."""
        return f"{self.taken.tree} {self.taken.ignore} {self.base_entry.name} {self.tag}"


def provide(build: Build, making: Making, *, release: Callable[[Build], Environment]) -> Environment:
    """The base, with an overlay of the sources in front; `release` makes a release runnable.

    Raises:
        BuildError: no such commit, no release to lay it over, or that one cannot be made.
        NodeError: the disk is full, there is no git, or another process builds it for too long.
    """
    with checkout.snapshot(Path(build.ref), build.rev) as taken:
        base = release(_base(build, taken, making.on_step))
        with base.parts[0].using():
            over = _Over(taken=taken, base=base, tag=_tag(taken, base.version))
            _warn(over, making.on_step)
            entry = _entry(over, making)
            if not _is_complete(entry, over):
                _make(entry, over, build, making)
            entry.touch()
    return replace(
        base,
        build=build,
        env=copies.in_front(entry.folder / copies.SITE, base.env),
        content=content.of_sources(f"{over.taken.tree} {over.taken.ignore} {over.tag}", base.content),
        parts=(*base.parts, entry),
    )


# --- what they are laid over


def _base(build: Build, taken: Snapshot, on_step: Callable[[str], None]) -> Build:
    if build.base:
        return Build(kind="release", ref=build.base, accelerator=build.accelerator)
    version = _nearest(taken)
    if version is None:
        raise BuildError(
            f"no tag of a release, such as v0.30.0, leads to {taken.words} of {taken.top}",
            fix=f"name the release whose binaries it gets: {build},base=VERSION",
        )
    on_step(f"{taken.words} is laid over {version}, the last release before it")
    return parse(f"release:{version}")


def _nearest(taken: Snapshot) -> Version | None:
    """The release with the fewest commits since it, or since its branch left; of several on one branch the first."""
    found = {tag: version for tag in git.release_tags(taken.top) if (version := version_of_tag(tag))}
    since = {tag: count for tag in found if (count := _commits_since(taken, tag)) is not None}
    near = sorted(since, key=lambda tag: (since[tag], found[tag]))
    return next((found[tag] for tag in near if _has_common(taken, tag)), None)


def _commits_since(taken: Snapshot, tag: str) -> int | None:
    """None: the tag came later than the commit."""
    count = int(git.ask(taken.top, "rev-list", "--count", f"refs/tags/{tag}..{taken.commit}"))
    return count if count or git.commit(taken.top, f"refs/tags/{tag}") == taken.commit else None


def _has_common(taken: Snapshot, tag: str) -> bool:
    """Whether a tag is of the same history."""
    return bool(git.ask(taken.top, "merge-base", f"refs/tags/{tag}", taken.commit, allowed=(0, 1)))


def _tag(taken: Snapshot, version: str) -> str:
    tag = tag_of(version)
    return tag if git.has_tag(taken.top, tag) else ""


def _warn(over: _Over, on_step: Callable[[str], None]) -> None:
    """What an overlay cannot show: changes in what is compiled."""
    if not over.tag:
        wanted = tag_of(over.base.version)
        on_step(f"{over.taken.top} has no tag {wanted}, so whether native files changed since then is not known")
    elif changed := over.taken.changed_since(over.tag, NATIVE):
        shown = ", ".join(changed[:_SHOWN]) + (" …" if len(changed) > _SHOWN else "")
        files = "native file differs" if len(changed) == 1 else "native files differ"
        on_step(f"{len(changed)} {files} between {over.tag} and {over.taken.words}, and stay as in {over.tag}: {shown}")


# --- the overlay


def _entry(over: _Over, making: Making) -> Entry:
    digest = hashlib.sha256(over.key.encode()).hexdigest()[:8]
    return Entry(cache=making.cache, name=f"{PROGRAM}-source-{over.taken.tree[:12]}-{digest}")


def _is_complete(entry: Entry, over: _Over) -> bool:
    """Whether it is there, and its links lead into the base that is there now."""
    noted = entry.read()
    return noted is not None and noted["base"] == _base_mark(over)


def _base_mark(over: _Over) -> list[str]:
    noted = over.base_entry.read()
    return [over.base_entry.name, noted["created"] if noted else ""]


def _make(entry: Entry, over: _Over, build: Build, making: Making) -> None:
    with entry.building(deadline=making.deadline, on_wait=making.on_step) as fd:
        if _is_complete(entry, over):  # made by the process that we waited for
            return
        making.on_step(f"laying {over.taken.words} over {over.base.version} in {entry.folder}")
        how = recipe(Version(over.base.version), over.base.accelerator)
        place = installer.Site(entry=entry, recipe=how, deadline=making.deadline, lock_fd=fd, on_step=making.on_step)
        with full_disk(making.cache):
            if entry.folder.exists():  # half built by a process that was killed, or over a base that is gone
                entry.remove()
            site = entry.folder / copies.SITE
            site.mkdir(parents=True)
            _lay(over, site)
            installer.compile_below(place, site / PACKAGE, over.base.python)
            entry.finish(
                {
                    "build": str(build),
                    "commit": over.taken.commit,
                    "base": _base_mark(over),
                    "interpreter": str(over.base.python),
                    "created": clock.utc(),
                    "packages": {},
                }
            )


def _lay(over: _Over, site: Path) -> None:
    home = next(
        path for path in interpreter.inspect(over.base.python).paths if (path / PACKAGE / "__init__.py").is_file()
    )
    over.taken.check_out(site)
    theirs = tuple(_python_files(home))
    same = {file for file in theirs if _is_same(home / file, site / file)}
    kept = same | _generated(site, [file for file in theirs if not os.path.lexists(site / file)])
    gone = set(over.taken.changed_since(over.tag, (PACKAGE,), only="D")) if over.tag else set()

    def wanted(file: str) -> bool:
        if os.path.lexists(site / file) or file in gone:
            return False
        return (copies.compiled_from(file) or file) in kept if file.endswith((".py", ".pyc")) else True

    copies.mirror(home / PACKAGE, site / PACKAGE, wanted=wanted)
    copies.link_libraries(home, site)
    (site / checkout.IGNORE).unlink(missing_ok=True)


def _python_files(home: Path) -> Iterator[str]:
    for folder, _, names in os.walk(home / PACKAGE):
        below = os.path.relpath(folder, home)
        yield from (f"{below}/{name}" for name in names if name.endswith(".py"))


def _is_same(theirs: Path, ours: Path) -> bool:
    """Whether both are one text; then ours gets its time, which the byte code that is there names."""
    if ours.is_symlink() or not ours.is_file() or not filecmp.cmp(theirs, ours, shallow=False):
        return False
    status = theirs.stat()
    os.utime(ours, ns=(status.st_atime_ns, status.st_mtime_ns))
    return True


def _generated(site: Path, files: list[str]) -> frozenset[str]:
    """Of files that only the base has, those that a build makes."""
    return checkout.ignored(site, files) | frozenset(files).intersection(GENERATED)
