"""`commit:SHA`: the wheel that an index has of a commit, installed into the cache like a release.

The wheel is named by its URL, so neither another version nor a release of the package index can take its place; what it
depends on comes from where a release gets it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from packaging.version import Version

from harness.build import Accelerator, Build
from harness.environment import commit_index, content, installer
from harness.environment.envcache import Entry, full_disk
from harness.environment.model import Environment, Making
from harness.runtimes.vllm_recipes import PROGRAM, Recipe, of_wheel


def provide(build: Build, making: Making) -> Environment:
    """The environment of a commit's wheel, made once.

    Raises:
        UsageError: $HARNESS_COMMIT_INDEX or $HARNESS_COMMIT_WAIT is not as it must be.
        BuildError: the index has no wheel of the commit, or it cannot be installed.
        NodeError: the index cannot be read, the disk is full, or another process builds it for too long.
    """
    where = commit_index.index(build.ref)
    accelerator = build.accelerator or making.node.accelerator
    entry = Entry(cache=making.cache, name=_name(build, accelerator))
    noted = _noted(entry)
    if noted is None:
        with entry.building(deadline=making.deadline, on_wait=making.on_step) as fd:
            noted = _noted(entry) or _install(build, making, where, entry=entry, accelerator=accelerator, fd=fd)
    entry.touch()
    return _environment(build, entry, noted)


def _name(build: Build, accelerator: Accelerator) -> str:
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    index = hashlib.sha256(os.environ[commit_index.INDEX].encode()).hexdigest()[:8]  # another one, another wheel
    return f"{PROGRAM}-commit-{build.ref[:12]}+{accelerator}-{python}-{index}"


def _noted(entry: Entry) -> dict[str, Any] | None:
    """What is noted of a complete environment, unless releases like it are made by another recipe now."""
    noted = entry.read()
    return noted if noted and noted["recipe"] == _recipe(noted).digest else None


def _recipe(noted: Mapping[str, Any]) -> Recipe:
    return of_wheel(noted["distribution"], Version(noted["version"]), noted["accelerator"])


def _install(
    build: Build, making: Making, where: commit_index.Index, *, entry: Entry, accelerator: Accelerator, fd: int
) -> dict[str, Any]:
    wheel = commit_index.find(where, accelerator, deadline=making.deadline, on_step=making.on_step)
    making.on_step(f"{where.words} has {wheel.distribution} {wheel.version} of {build.ref}")
    site = installer.Site(
        entry=entry,
        recipe=of_wheel(wheel.distribution, wheel.version, accelerator),
        deadline=making.deadline,
        lock_fd=fd,
        on_step=making.on_step,
        wheel=wheel.url,
    )
    with full_disk(making.cache):
        noted = {
            **installer.made(site, replace(build, accelerator=accelerator)),
            "distribution": wheel.distribution,
            "version": str(wheel.version),
            "wheel": wheel.sha256 or build.ref,
        }
        entry.finish(noted)
    return noted


def _environment(build: Build, entry: Entry, noted: Mapping[str, Any]) -> Environment:
    return Environment(
        build=build,
        version=Version(noted["version"]).public,
        accelerator=noted["accelerator"],
        command=(str(entry.folder / "bin" / PROGRAM),),
        python=entry.python,
        packages=noted["packages"],
        python_version=noted["python"],
        content=content.of_wheel(_recipe(noted), noted["wheel"]),
        parts=(entry,),
    )
