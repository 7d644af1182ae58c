"""The releases of a server between two of them, as its package index has them.

Version order is by branch. The first release of each minor version stands on the trunk; the patch releases after it are
on a branch of their own, and nothing in 0.27.1 need be in 0.28.0:

    0.27.0 ── 0.28.0 ── 0.29.0 ── 0.30.0 ──▶ trunk             from 0.27.1 to 0.30.2:
       └ 0.27.1    └ 0.28.1          └ 0.30.1 ─ 0.30.2         0.27.1, 0.28.0, 0.29.0, 0.30.0, 0.30.1, 0.30.2
                                                               and 0.27.0, where 0.27.1 left the trunk, is judged first
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import requests
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version
from pypi_simple import (
    DistributionPackage,
    NoSuchProjectError,
    ProjectPage,
    PyPISimple,
    UnsupportedContentTypeError,
    UnsupportedRepoVersionError,
)

from harness.environment.uv_words import find_links
from harness.errors import NodeError, UsageError
from harness.masking import Masker

SECONDS = 60.0
_URLS = ("UV_INDEX", "UV_EXTRA_INDEX_URL")
_DEFAULTS = ("UV_DEFAULT_INDEX", "UV_INDEX_URL")


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    version: Version
    yanked: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasePath:
    """Releases from one to another, both included, the older first."""

    versions: tuple[Version, ...]
    notes: tuple[str, ...] = ()
    branch_point: Version | None = None
    """Where the older end left the trunk, if it did and the index has that release."""


def path(older: Version, newer: Version, releases: Iterable[Release]) -> ReleasePath:
    """The releases through which a change came from one to the other.

    Pre-releases and yanked releases are left out, ends excepted.

    Raises:
        UsageError: an end is not among them (the nearest are named), or the older one is the newer.
    """
    known = sorted({each.version: each for each in releases}.values(), key=lambda each: each.version)
    for end in (older, newer):
        if end not in {each.version for each in known}:
            raise UsageError(f"there is no release {end} for this Python and machine", fix=_nearest(end, known))
    if older >= newer:
        raise UsageError(f"{older} is not older than {newer}", fix="swap the ends, or --fix to find a repair")
    usable = [each.version for each in known if each.version in (older, newer) or _plain(each)]
    chosen = [version for version in usable if older <= version <= newer and _on_the_way(version, older, newer, usable)]
    first = _on_trunk(_minor(older), usable)
    left = None if _minor(older) == _minor(newer) or first >= older else first
    return ReleasePath(versions=tuple(chosen), notes=tuple(_notes(known, older, newer, left)), branch_point=left)


def pre_releases(before: Version, after: Version, releases: Iterable[Release]) -> tuple[Version, ...]:
    """The release candidates that led from one release to the next, in order."""
    found = {
        each.version for each in releases if not each.yanked and each.version.pre and not each.version.is_devrelease
    }
    return tuple(sorted(v for v in found if before < v < after and v.release == after.release))


def _plain(release: Release) -> bool:
    return not (release.yanked or release.version.is_prerelease)


def _minor(version: Version) -> tuple[int, ...]:
    return (version.epoch, *version.release[:2])


def _on_the_way(version: Version, older: Version, newer: Version, usable: Sequence[Version]) -> bool:
    """Whether a release between the ends is an ancestor of the newer one: it is on its branch, or on the trunk."""
    return version == older or _minor(version) == _minor(newer) or version == _on_trunk(_minor(version), usable)


def _on_trunk(minor: tuple[int, ...], usable: Sequence[Version]) -> Version:
    """The first release of a minor version; one of its candidates only where there is no other."""
    of_it = [version for version in usable if _minor(version) == minor]
    return next((version for version in of_it if not version.is_prerelease), of_it[0])


def _notes(known: Sequence[Release], older: Version, newer: Version, left: Version | None) -> Iterator[str]:
    between = [each for each in known if older < each.version < newer]
    if yanked := [str(each.version) for each in between if each.yanked]:
        yield f"yanked, so left out: {', '.join(yanked)}"
    if left:
        yield f"{older} is on a branch of its own since {left}: what was repaired there need not be in later releases"


def _nearest(end: Version, known: Sequence[Release]) -> str:
    below = [each.version for each in known if each.version < end][-1:]
    above = [each.version for each in known if each.version > end][:1]
    named = " and ".join(map(str, (*below, *above)))
    return f"the nearest are {named}" if named else "the index has no release at all"


# --- the index


def available(distribution: str) -> tuple[Release, ...]:
    """All releases that have a wheel for this Python and machine, in the indexes that uv uses.

    Raises:
        NodeError: an index cannot be reached or read.
    """
    found: dict[Version, Release] = {}
    for version, yanked in (*_in_indexes(distribution), *_in_folders(distribution)):
        known = found.get(version)
        found[version] = Release(version=version, yanked=yanked and (known is None or known.yanked))
    return tuple(sorted(found.values(), key=lambda each: each.version))


def _in_indexes(distribution: str) -> Iterator[tuple[Version, bool]]:
    extra = [url for name in _URLS for url in os.environ.get(name, "").split()]
    default = next((os.environ[name] for name in _DEFAULTS if os.environ.get(name)), None)
    for url in (default, *(each.partition("=")[2] if _is_named(each) else each for each in extra)):
        for package in _packages(distribution, url):
            if version := _fits(package.filename, package.requires_python):
                yield version, package.is_yanked


def _is_named(url: str) -> bool:
    """`NAME=URL`, as uv takes it."""
    return "=" in url.partition("://")[0]


def _packages(distribution: str, url: str | None) -> Sequence[DistributionPackage]:
    try:
        if url and urlparse(url).scheme == "file":
            return _local(distribution, Path(unquote(urlparse(url).path)))
        with PyPISimple(url) if url else PyPISimple() as index:
            return index.get_project_page(distribution, timeout=SECONDS).packages
    except NoSuchProjectError:
        return ()
    except (requests.RequestException, UnsupportedContentTypeError, UnsupportedRepoVersionError, OSError) as error:
        raise NodeError(
            f"the releases of {distribution} cannot be listed: {Masker().text(str(error))}",
            fix="let the package index be reached, name a mirror in UV_DEFAULT_INDEX, or list the builds with --builds",
        ) from error


def _local(distribution: str, index: Path) -> Sequence[DistributionPackage]:
    page = index / canonicalize_name(distribution) / "index.html"
    return ProjectPage.from_html(distribution, page.read_text(encoding="utf-8")).packages if page.is_file() else ()


def _in_folders(distribution: str) -> Iterator[tuple[Version, bool]]:
    """Wheels in the folders that the installer looks into beside the index: ours, and uv's own."""
    for place in (*find_links(), *filter(None, os.environ.get("UV_FIND_LINKS", "").split(","))):
        for wheel in Path(place).glob("*.whl") if "://" not in place else ():
            ours = canonicalize_name(wheel.name.partition("-")[0]) == canonicalize_name(distribution)
            if ours and (version := _fits(wheel.name, None)):
                yield version, False


def _fits(filename: str, python: str | None) -> Version | None:
    """The version of a wheel that can be installed here."""
    try:
        _, version, _, tags = parse_wheel_filename(filename)
        fits = python is None or SpecifierSet(python).contains(platform.python_version(), prereleases=True)
    except (InvalidWheelFilename, InvalidSpecifier):
        return None
    return Version(version.public) if fits and not tags.isdisjoint(_TAGS) else None


_TAGS = frozenset(sys_tags())
