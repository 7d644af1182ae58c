"""The wheel of a commit, in an index that has one for each: a page of a package index, or a plain folder of wheels.

    HARNESS_COMMIT_INDEX=https://host/{commit}/       {commit} becomes the digits of `commit:SHA`
    HARNESS_COMMIT_WAIT=30m                           a fresh commit has no wheel yet: how long to ask again

Looked for in <index>/<distribution>/ and in <index> itself, and never anywhere else: the package index would have a
release of the same name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import requests
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version
from pypi_simple import DistributionPackage, ProjectPage, UnsupportedContentTypeError, UnsupportedRepoVersionError

from harness import clock, units
from harness.build import Accelerator
from harness.clock import Deadline
from harness.errors import BuildError, NodeError, UsageError
from harness.masking import Masker
from harness.runtimes.vllm_recipes import DISTRIBUTIONS, made_for

INDEX, WAIT = "HARNESS_COMMIT_INDEX", "HARNESS_COMMIT_WAIT"
_SECONDS = (10.0, 60.0)  # to connect, to answer
_PAUSES = (1.0, 30.0)  # between two questions: the first, the longest
_PROJECT, _PLAIN = "application/vnd.pypi.simple.v1+json, text/html;q=0.9", "text/html"
"""What is asked of a page for one distribution, and of a folder: the JSON of a whole index would list projects."""
_FULL = 40
_RANKS = {tag: rank for rank, tag in enumerate(sys_tags())}


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """One that fits this Python and machine."""

    distribution: str
    version: Version
    url: str
    sha256: str
    """Empty where the index does not say it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """Where the wheels of one commit are."""

    commit: str
    url: str
    """Ends with a slash."""
    wait: float
    """Seconds to ask again while there is none."""

    @property
    def words(self) -> str:
        """The URL without a password."""
        return Masker().text(self.url)


def index(commit: str) -> Index:
    """As the variables say.

    Raises:
        UsageError: one is not set, or is none.
    """
    template, wait = os.environ.get(INDEX, ""), os.environ.get(WAIT, "0")
    if "{commit}" not in template or urlparse(template).scheme not in ("http", "https", "file"):
        raise UsageError(
            f"{INDEX} is no URL with {{commit}} in it"
            if template
            else f"{INDEX}, where commits have wheels, is not set",
            fix=f"set {INDEX}, such as https://host/{{commit}}/, or name source:PATH@REV",
        )
    try:
        seconds = 0.0 if wait.strip() in ("", "0", "0s") else units.parse_duration(wait.strip())
    except units.UnitError as error:
        raise UsageError(f"{WAIT}: {error}", fix="write a duration such as 30m, or 0") from error
    return Index(commit=commit, url=template.replace("{commit}", commit).rstrip("/") + "/", wait=seconds)


def find(where: Index, accelerator: Accelerator, *, deadline: Deadline, on_step: Callable[[str], None]) -> Wheel:
    """The newest wheel of a commit for this machine; while there is none, asked for again.

    Raises:
        BuildError: there is none when the time is over.
        NodeError: the index cannot be read.
    """
    until, pause = Deadline.after(min(where.wait, deadline.left)), _PAUSES[0]
    while True:
        there = tuple(_packages(where.url))
        if fitting := [wheel for each in there if (wheel := _wheel(each, accelerator))]:
            return max(fitting, key=lambda found: found[0])[1]
        if until.expired:
            raise _missing(where, accelerator, [each.filename for each in there])
        on_step(f"{where.words} has no wheel of {where.commit} yet, asking again for {until.left:.0f} s")
        clock.sleep(min(pause, until.left))
        pause = min(2 * pause, _PAUSES[1])


def _missing(where: Index, accelerator: Accelerator, there: Sequence[str]) -> BuildError:
    others = f" (there are {', '.join(there)})" if there else ""
    what = f"{where.words} has no wheel of {where.commit} for Python on this machine and {accelerator}{others}"
    if len(where.commit) < _FULL:
        return BuildError(what, fix="write all 40 digits: most indexes know commits by nothing less")
    return BuildError(what, fix=f"let it be asked for longer ({WAIT}=30m), or name source:PATH@{where.commit[:12]}")


def _wheel(package: DistributionPackage, accelerator: Accelerator) -> tuple[tuple[Version, int], Wheel] | None:
    """A wheel with what makes it better than others: its version, how exactly it is for this machine."""
    try:
        name, version, _, tags = parse_wheel_filename(package.filename)
    except InvalidWheelFilename:
        return None
    rank = min((_RANKS[tag] for tag in tags if tag in _RANKS), default=None)
    if rank is None or made_for(name, version) != accelerator:
        return None
    sha256 = package.digests.get("sha256", "")
    return (version, -rank), Wheel(distribution=name, version=version, url=package.url, sha256=sha256)


def _packages(url: str) -> Iterator[DistributionPackage]:
    """All wheels of the server in an index; none: it does not have the commit."""
    read = _in_folder if urlparse(url).scheme == "file" else _on_page
    for distribution in DISTRIBUTIONS:
        found = read(distribution, f"{url}{distribution}/", _PROJECT) or read(distribution, url, _PLAIN)
        for package in found:
            if canonicalize_name(package.filename.partition("-")[0]) == distribution:
                yield package


def _on_page(distribution: str, url: str, accept: str) -> Sequence[DistributionPackage]:
    masked = Masker().text(url)
    fix = f"try again, or correct {INDEX}"
    try:
        answer = requests.get(url, headers={"Accept": accept}, timeout=_SECONDS)
        if answer.status_code in (requests.codes.not_found, requests.codes.gone):
            return ()
        answer.raise_for_status()
        return ProjectPage.from_response(answer, distribution).packages
    except requests.HTTPError as error:
        raise NodeError(f"{masked} answers with {error.response.status_code}", fix=fix) from error
    except (requests.RequestException, UnsupportedContentTypeError, UnsupportedRepoVersionError, ValueError) as error:
        raise NodeError(f"{masked} cannot be read: {Masker().text(str(error))}", fix=fix) from error


def _in_folder(distribution: str, url: str, _accept: str) -> Sequence[DistributionPackage]:
    folder = Path(unquote(urlparse(url).path))
    page = folder / "index.html"
    if page.is_file():
        return ProjectPage.from_html(distribution, page.read_text(encoding="utf-8"), base_url=url).packages
    links = (f'<a href="{file.as_uri()}#sha256={_sha256(file)}">{file.name}</a>' for file in folder.glob("*.whl"))
    return ProjectPage.from_html(distribution, "\n".join(links)).packages


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
