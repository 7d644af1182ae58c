"""Environments that nobody needs any more go away, and with them the content that no other environment shares."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import uv

from harness import locks
from harness.environment import envcache
from harness.environment.envcache import Entry, Listed
from harness.errors import NodeError, UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    removed: tuple[str, ...]
    in_use: tuple[str, ...]
    """Chosen, and kept because a run uses them or somebody builds them."""
    freed_bytes: int
    """Disk that became free; content that a kept environment shares is not counted."""


def prune(
    cache: Path,
    *,
    names: Collection[str] = (),
    everything: bool = False,
    keep: int | None = None,
    older_than: float | None = None,
) -> Pruned:
    """Remove environments: the named ones, all, all but the `keep` last used, or those unused for `older_than` seconds.

    Half-built ones always go. One in use is never removed.

    Raises:
        UsageError: a name that is not there.
        NodeError: a folder cannot be removed.
    """
    listed = envcache.list_environments(cache)
    if unknown := set(names) - {one.name for one in listed}:
        raise UsageError(f"there is no environment {', '.join(sorted(unknown))}", fix="`harness env list` names them")
    chosen = [one for one in listed if not one.complete or everything or one.name in names]
    chosen += _old(listed, keep=keep, older_than=older_than)
    before, versions = envcache.disk_bytes(cache), {one.name: _versions(one) for one in listed}
    removed = [one.name for one in dict.fromkeys(chosen) if _remove(Entry(cache=cache, name=one.name))]
    gone = {name for one in removed for name in versions[one]}
    kept = {name for one in listed if one.name not in removed for name in versions[one.name]}
    _clean_content(cache, gone - kept, everything=len(removed) == len(listed))
    return Pruned(
        removed=tuple(removed),
        in_use=tuple(one.name for one in dict.fromkeys(chosen) if one.name not in removed),
        freed_bytes=max(0, before - envcache.disk_bytes(cache)),
    )


def _old(listed: Collection[Listed], *, keep: int | None, older_than: float | None) -> list[Listed]:
    latest = sorted(listed, key=lambda one: one.used, reverse=True)
    beyond = latest[keep:] if keep is not None else []
    unused = [one for one in latest if older_than is not None and one.used < time.time() - older_than]
    return [*beyond, *unused]


def _remove(entry: Entry) -> bool:
    fd = locks.open_file(entry.lock)
    try:
        if not locks.try_lock(fd):
            return False
        locks.sign(fd, f"removes {entry.name}")
        entry.remove()
    except OSError as error:
        raise NodeError(f"cannot remove {entry.folder}: {error}", fix="remove that folder by hand") from error
    finally:
        os.close(fd)
    return True


def _versions(one: Listed) -> set[tuple[str, str]]:
    """The distributions whose content an environment holds; none for a half-built one."""
    noted = Entry(cache=one.folder.parent.parent, name=one.name).read()
    return set(noted["packages"].items()) if noted else set()


def _clean_content(cache: Path, gone: set[tuple[str, str]], *, everything: bool) -> None:
    """Drop from uv's cache what no environment holds any more: otherwise removing hard links frees nothing.

    uv drops a name with all its versions. An environment that holds another version keeps its own links to the
    content, so nothing is lost but a download should that version ever be installed once more.
    """
    folder = cache / "uv"
    names = sorted({name for name, _ in gone})
    if folder.is_dir() and (names or everything):
        argv = [uv.find_uv_bin(), "cache", "clean", *([] if everything else names)]
        done = subprocess.run(
            argv, env={**os.environ, "UV_CACHE_DIR": str(folder)}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NodeError(
                f"uv cannot clean {folder}: {json.dumps(done.stderr.strip()[-500:])}", fix="remove that folder by hand"
            )
