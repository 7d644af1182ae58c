"""SCENARIO on a command line: a path, or the name of a file in a `scenarios` folder; `[VARIANT]` behind either."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import harness
from harness.errors import HarnessError, ScenarioError
from harness.scenario.loading import load_file
from harness.scenario.model import Scenario
from harness.scenario.problems import did_you_mean

VARIABLE = "HARNESS_SCENARIOS"
"""Adds folders, as PATH does."""
KNOWN_FAILURES = "known_failures.yaml"
"""Lies beside scenarios and is none."""
PROJECT = Path(harness.__file__).parent.parent / "scenarios"
_WORD = re.compile(r"(?P<name>.+?)\[(?P<variant>[^\[\]]*)\]")


def find(word: str, *, cwd: Path | None = None, extra: Sequence[Path] | None = None) -> tuple[Path, str | None]:
    """The file that SCENARIO or SCENARIO[VARIANT] names; whether the variant exists is seen when it is loaded.

    Looked up in this order: a file of that path; for a bare name the file NAME.yaml here; then, in all of them at once,
    `scenarios/` here, that of the project, and `extra` (None: the folders in HARNESS_SCENARIOS).

    Raises:
        ScenarioError: no such scenario (with the nearest name), or two of that name.
    """
    here = cwd or Path.cwd()
    if (here / word).is_file():
        return _shown(here / word, here), None
    match = _WORD.fullmatch(word)
    name, variant = (match["name"], match["variant"]) if match else (word, None)
    if match and not variant:
        raise ScenarioError(f"{word}: no variant between the brackets", fix=f"write {name}[VARIANT], or {name}")
    return _shown(_file(name, here, folders(here, extra)), here), variant


def folders(cwd: Path, extra: Sequence[Path] | None = None) -> tuple[Path, ...]:
    """Where bare names are looked up, each folder once, those that exist."""
    named = [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part] if extra is None else extra
    places = [cwd / "scenarios", PROJECT, *(cwd / folder for folder in named)]
    return tuple({place.resolve(): place for place in reversed(places) if place.is_dir()}.values())[::-1]


def available(*, cwd: Path | None = None, extra: Sequence[Path] | None = None) -> tuple[Path, ...]:
    """All scenario files that bare names reach, by name."""
    here = cwd or Path.cwd()
    files = [file for folder in folders(here, extra) for file in scenario_files(folder)]
    return tuple(_shown(file, here) for file in sorted(files, key=lambda file: (file.name, str(file))))


def scenario_files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.glob("*.yaml") if file.name != KNOWN_FAILURES)


def smaller(scenario: Scenario) -> str:
    """Variants of the same file that need less, and scenarios that need nothing: a sentence, or nothing."""
    words = [f"`--variant {name}` on {_gpus(count)}" for name, count in _smaller_variants(scenario)]
    words += [f"`{path.stem}`" for path in available() if path.stem != scenario.path.stem and _runs_anywhere(path)]
    return f"try {', or '.join(words)}" if words else ""


def _smaller_variants(scenario: Scenario) -> Iterator[tuple[str, int]]:
    file = load_file(scenario.path)
    for name in file.variants:
        gpus = file.scenario(name).needs.gpus or 0
        if name != scenario.variant and gpus < (scenario.needs.gpus or 0):
            yield name, gpus


def _gpus(count: int) -> str:
    return {0: "any node", 1: "one GPU"}.get(count, f"{count} GPUs")


def _runs_anywhere(path: Path) -> bool:
    try:
        scenario = load_file(path).scenario()
    except HarnessError:
        return False  # a hint is no place to complain about other files
    return scenario.needs.gpus is None and scenario.needs.gpu_memory_gib is None


def _file(name: str, here: Path, places: tuple[Path, ...]) -> Path:
    if (here / name).is_file():
        return here / name
    if (here / name).is_dir() and not _bare(name):
        raise ScenarioError(f"{name}: is a folder", fix="name a scenario file in it")
    if not _bare(name):
        return _same_folder(name, here)
    file = name if name.endswith(".yaml") else f"{name}.yaml"
    if (here / file).is_file():
        return here / file
    matches = {path.resolve(): path for folder in reversed(places) if (path := folder / file).is_file()}
    if len(matches) > 1:
        both = " and ".join(str(_shown(path, here)) for path in reversed(matches.values()))
        raise ScenarioError(
            f"{name}: there are {len(matches)} scenarios of this name, {both}", fix="name the path of one"
        )
    if not matches:
        known = sorted({path.stem for folder in places for path in scenario_files(folder)})
        raise _unknown(
            name, did_you_mean(name.removesuffix(".yaml"), known), f"known are {', '.join(known)}" if known else ""
        )
    return next(iter(matches.values()))


def _same_folder(name: str, here: Path) -> Path:
    path = here / name
    if path.with_name(f"{path.name}.yaml").is_file():
        return path.with_name(f"{path.name}.yaml")
    siblings = [file.name for file in scenario_files(path.parent)] if path.parent.is_dir() else []
    raise _unknown(name, did_you_mean(path.name, siblings), "name a scenario file")


def _unknown(name: str, near: str, fix: str) -> ScenarioError:
    return ScenarioError(f"{name}: no such scenario{near}", fix=fix or "name a scenario file")


def _bare(name: str) -> bool:
    return "/" not in name and os.sep not in name and name not in {".", ".."}


def _shown(path: Path, here: Path) -> Path:
    """Relative to where the user is, where that is shorter: positions in messages start with it."""
    return path.relative_to(here) if path.is_relative_to(here) and here == Path.cwd() else path
