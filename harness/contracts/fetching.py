"""The sources of a build, from wherever they can be had without installing it.

an environment that is there            its site-packages
a release, or the wheel of a commit     the wheel alone, without what it depends on, unpacked once into the cache
a commit of a repository                git's archive, in memory
a wheel, a folder                       as it is
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import uv

from harness import clock, git, node
from harness.build import Build
from harness.contracts import reading
from harness.contracts.reading import Archive, Sources
from harness.environment import elsewhere, from_lock
from harness.environment.envcache import Entry, cache_root, full_disk
from harness.environment.uv_words import find_links, variables
from harness.errors import BuildError
from harness.masking import Masker
from harness.runtimes.vllm_recipes import Recipe, recipe

SECONDS = 1800.0
_TAIL = 5


def of_build(build: Build, package: str, *, on_step: Callable[[str], None] = lambda _: None) -> Sources:
    """The sources of a package in a build.

    Raises:
        BuildError: it is not there, or has no such package.
        NodeError: the disk is full, there is no git, or another process fetches it for too long.
    """
    if build.kind == "lock":
        build = from_lock(Path(build.ref))
    if build.kind == "release":
        return _release(build, package, on_step)
    if build.kind == "commit":
        return _commit(build, package, on_step)
    if build.kind == "source":
        return _source(build, package)
    if build.kind == "tree":
        return _tree(build, package)
    folder = elsewhere.current(build, node.read()).python.parent.parent if build.kind == "current" else Path(build.ref)
    return reading.at(folder, package)


def _tree(build: Build, package: str) -> Sources:
    folders = map(Path, build.ref.split(","))
    first = next((each for each in folders if (each / package / "__init__.py").is_file()), None)
    if first is None:
        raise BuildError(f"no folder of {build} has a package {package!r}", fix=f"name the one that holds {package}/")
    return reading.at(first, package)


def _source(build: Build, package: str) -> Sources:
    repo = Path(build.ref)
    if not build.rev:
        return reading.at(repo, package)
    try:
        commit = git.commit(repo, build.rev)
        packed = git.archive(repo, commit, package)
    except git.GitError as error:
        raise BuildError(f"{build}: {error}", fix="name a commit of that repository which has the package") from error
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        files = {each.name: tar.extractfile(each) for each in tar.getmembers() if each.isfile()}
        return Archive({name: file.read() for name, file in files.items() if file}, package, version="")


# --- wheels


def _release(build: Build, package: str, on_step: Callable[[str], None]) -> Sources:
    accelerator = build.accelerator or node.read().accelerator
    how = recipe(build.version, accelerator)
    installed = _environment(how)
    return (
        reading.at(installed, package) if installed else _unpacked(how.requirement, str(how.version), package, on_step)
    )


def _environment(how: Recipe) -> Path | None:
    """An environment of this release in the cache, whatever Python it is for."""
    folders = sorted((cache_root() / "envs").glob(f"vllm-{how.version}+{how.accelerator}-py*"))
    ready = (each for each in folders if Entry(cache=cache_root(), name=each.name).read())
    return next(ready, None)


def _commit(build: Build, package: str, on_step: Callable[[str], None]) -> Sources:
    from harness.environment import commit_index  # noqa: PLC0415 - needs a library that an offline node may lack

    where = commit_index.index(build.ref)
    accelerator = build.accelerator or node.read().accelerator
    wheel = commit_index.find(where, accelerator, deadline=clock.Deadline.after(SECONDS), on_step=on_step)
    return _unpacked(f"{wheel.distribution} @ {wheel.url}", f"{build.ref}-{accelerator}", package, on_step)


def _unpacked(asked: str, name: str, package: str, on_step: Callable[[str], None]) -> Sources:
    """The files of a wheel in the cache, fetched once."""
    entry = Entry(cache=cache_root(), name=f"files-{asked.partition('=')[0].partition(' ')[0]}-{name}")
    files = entry.folder / "files"
    if not entry.read():
        with entry.building(deadline=clock.Deadline.after(SECONDS), on_wait=on_step), full_disk(entry.cache):
            if not entry.read():
                _fetch(asked, files, on_step)
                entry.finish({"build": f"files of {name}", "interpreter": sys.executable})
    return reading.at(files, package)


def _fetch(asked: str, files: Path, on_step: Callable[[str], None]) -> None:
    on_step(f"fetching the files of {Masker().text(asked)}")
    shutil.rmtree(files, ignore_errors=True)
    links = [option for place in find_links() for option in ("--find-links", place)]
    argv = [uv.find_uv_bin(), "pip", "install", "--no-deps", "--target", str(files), "--python", sys.executable]
    done = subprocess.run(
        [*argv, *links, asked],
        env={**variables(cache_root()), "PATH": os.environ.get("PATH", "")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        said = Masker().text(" ".join(done.stderr.strip().splitlines()[-_TAIL:]))
        raise BuildError(
            f"the wheel of {Masker().text(asked)} cannot be had: {said}", fix="+cuda or +cpu names the other"
        )
