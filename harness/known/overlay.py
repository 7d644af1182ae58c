"""A build with edits: an edited copy of one package, put in front of the environment, which stays as it is.

overlays/<name>/site-packages/vllm/       a copy as `environment.copies` makes it
  v1/worker/mamba_utils.py                edited: a new file, its byte code left out
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.environment import Environment, copies, interpreter, scratch
from harness.environment.copies import PYTHONPATH
from harness.errors import NodeError, ScenarioError
from harness.known import edits as textual
from harness.known import patches as diffs
from harness.known.format import Edit
from harness.known.patches import Patch

DIFF = "edits.diff"
"""What was changed, as a file beside the run's record."""


@contextmanager
def edited(
    environment: Environment, edits: Sequence[Edit], *, folder: Path, patches: Sequence[Patch] = ()
) -> Iterator[Environment]:
    """The environment with edited copies of its packages in front, patches on top; gone when the block ends.

    `folder` gets the difference as `edits.diff`. Without any of them it is the environment itself.

    Raises:
        ScenarioError: an edit or a patch does not fit these sources.
        NodeError: the copy cannot be written.
    """
    if not edits and not patches:
        yield environment
        return
    roots = _roots(environment)
    named = dict.fromkeys((*map(_package, edits), *_patched_packages(patches, roots)))
    homes = {package: _home(package, roots) for package in named}
    texts = _edited_texts(edits, homes)
    with scratch.folder("overlays") as place:
        site = place / copies.SITE
        try:
            for package, home in homes.items():
                _copy(package, home, site, texts)
                copies.link_libraries(home, site)
            if patches:
                _forget_byte_code(site, patches)
                diffs.apply(patches, site, tuple(homes))
            told = _difference(texts) + "".join(patch.text for patch in patches)
            (folder / DIFF).write_text(told, encoding="utf-8")
        except OSError as error:
            raise _unwritable(error) from error
        yield replace(environment, env=copies.in_front(site, environment.env))


def _roots(environment: Environment) -> tuple[Path, ...]:
    """Where the server's interpreter looks for packages, in its order."""
    before = [Path(part) for part in environment.env.get(PYTHONPATH, "").split(os.pathsep) if part]
    return (*before, *interpreter.inspect(environment.python).paths)


def _home(package: str, roots: Sequence[Path]) -> Path:
    home = next((root for root in roots if (root / package / "__init__.py").is_file()), None)
    if home is None:
        raise ScenarioError(f"the build has no package {package} to edit", fix=textual.FIX)
    return home


def _patched_packages(patches: Sequence[Patch], roots: Sequence[Path]) -> Iterator[str]:
    """The installed packages that patches change. A patch also has tests and docs, which nobody installs."""
    for patch in patches:
        firsts = dict.fromkeys(_first(file) for file in patch.files)
        found = [name for name in firsts if any((root / name / "__init__.py").is_file() for root in roots)]
        if not found:
            raise ScenarioError(f"{patch.words} changes no package of this build: {', '.join(firsts)}", fix=textual.FIX)
        yield from found


def _forget_byte_code(site: Path, patches: Sequence[Patch]) -> None:
    for file in {site / name for patch in patches for name in patch.files}:
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()


def _edited_texts(edits: Sequence[Edit], homes: Mapping[str, Path]) -> dict[str, tuple[str, str]]:
    """Of every file that is edited: its text before and after, edits applied in their order."""
    texts: dict[str, tuple[str, str]] = {}
    for edit in edits:
        before, now = texts.get(edit.file) or (_source(homes[_package(edit)] / edit.file, edit),) * 2
        texts[edit.file] = before, textual.apply(now, edit)
    return texts


def _source(file: Path, edit: Edit) -> str:
    try:
        return file.read_bytes().decode("utf-8")  # line ends stay as they are
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{edit.file} cannot be read in the build: {error}", fix=textual.FIX) from error


def _copy(package: str, home: Path, site: Path, texts: Mapping[str, tuple[str, str]]) -> None:
    """The package without the files that are edited, and their byte code; then these, written new."""
    copies.mirror(
        home / package,
        site / package,
        wanted=lambda file: file not in texts and copies.compiled_from(file) not in texts,
    )
    for file, (_, text) in texts.items():
        if _first(file) == package:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).write_bytes(text.encode("utf-8"))


def _difference(texts: Mapping[str, tuple[str, str]]) -> str:
    return "".join(
        line
        for file, (before, after) in texts.items()
        for line in difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{file}", f"b/{file}")
    )


def _unwritable(error: OSError) -> NodeError:
    return NodeError(
        f"cannot copy the sources to edit: {error}", fix="make room, or set HARNESS_CACHE to another folder"
    )


def _package(edit: Edit) -> str:
    return _first(edit.file)


def _first(file: str) -> str:
    return file.split("/", 1)[0]
