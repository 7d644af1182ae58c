"""The file of a nightly: which scenarios, on which builds, how much may be searched, whom to tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from harness import build, scenario
from harness.errors import HarnessError, ScenarioError
from harness.scenario import Scenario, problems, yaml_source
from harness.scenario.format import NAME_PATTERN, Builds, Strict, Text
from harness.scenario.yaml_source import Node, Problem

FIX = "correct the file; `harness schema --nightly` prints the format, so that an editor completes it"
KINDS = ("releases", "commits", "list", "build")


class Commits(Strict):
    """Commits of a repository, as far as the index in $HARNESS_COMMIT_INDEX has a wheel of them."""

    repo: Text
    """A clone, which is read only: fetch before."""
    rev: Text = "HEAD"
    """Branch, tag or commit to begin at: origin/main."""
    depth: Annotated[int, Field(ge=1, le=1000)] = 50
    """Commits that are looked at, back along first parents, for the newest that has a wheel."""


class Watch(Strict):
    """Where new builds come from: exactly one of `releases`, `commits`, `list` and `build`."""

    releases: Builds | None = None
    """A range of releases, ">=0.27.0": the newest of them on the package index that is no candidate."""
    commits: Commits | None = None
    list: Text | None = None
    """A file with one build a line, oldest first: the last one."""
    build: Text | None = None
    """Always this build, such as venv:PATH or current; it has no order, so nothing is bisected."""
    accelerator: Literal["cpu", "cuda"] | None = None
    """For releases and commits; without it the node decides."""
    good: Text | None = None
    """A build to take for green as long as no night was."""
    repo: Text | None = None
    """For releases: a clone, so that searches go on into the commits."""


class Budget(Strict):
    """What searches may cost in one call; what is on disk already costs nothing."""

    probes: Annotated[int, Field(ge=0)] = 20
    """Runs."""
    gpu_minutes: Annotated[float, Field(ge=0)] = 240.0
    """Minutes of runs, times the GPUs of the scenario; one without GPUs counts as one."""


class Body(Strict):
    """A nightly."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    """Version of this format: 1."""
    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=80)]
    scenarios: Annotated[tuple[Text, ...], Field(min_length=1)]
    """SCENARIO or SCENARIO[VARIANT]; paths that start with ./ are relative to this file."""
    builds: Annotated[tuple[Watch, ...], Field(min_length=1)]
    budget: Budget = Budget()
    attempts: Annotated[int, Field(ge=1, le=10)] = 2
    """Runs that may end in an error of the node or of ours before a build is given up."""
    notify: tuple[Text, ...] = ()
    """A command and its words; it gets the news as JSON on its standard input. A first word with ./ is relative to this
    file. No shell reads it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    path: Path
    body: Body
    scenarios: tuple[Scenario, ...]

    def local(self, word: str) -> Path:
        """A path of the file: one that is relative begins at the folder of the file."""
        return self.path.parent / Path(word).expanduser()


def json_schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors."""
    made = Body.model_json_schema(by_alias=True)
    made["$defs"]["Watch"]["oneOf"] = [{"required": [kind]} for kind in KINDS]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def load(path: Path) -> Config:
    """Read the file, and every scenario that it names.

    Raises:
        ScenarioError: everything that is wrong in it, each line as file:line:column.
    """
    document = yaml_source.parse(yaml_source.read(path), str(path))
    found = [*document.problems]
    try:
        # From JSON, because there a strict model takes a list for a tuple.
        body = Body.model_validate_json(json.dumps(document.root.plain()))
    except ValidationError as error:
        problems.refuse([*found, *problems.problems(error, document.root, Body)], fix=FIX)
        raise ScenarioError(f"{path}: {error}", fix=FIX) from error
    problems.refuse([*found, *_rules(body, document.root)], fix=FIX)
    folder = path.absolute().parent
    scenarios, wrong = _scenarios(body, document.root, folder)
    problems.refuse(wrong, fix=FIX)
    return Config(path=path.absolute(), body=body, scenarios=scenarios)


def _rules(body: Body, root: Node) -> Iterator[Problem]:
    """What the types cannot say."""
    for number, (watch, node) in enumerate(zip(body.builds, _items(root, "builds"), strict=True)):
        where = f"builds[{number}]"
        given = [kind for kind in KINDS if getattr(watch, kind) is not None]
        if len(given) != 1:
            what = f"has {' and '.join(given)}" if given else "says no build"
            yield Problem.at(node.mark, f"`{where}` {what}: give it one of {', '.join(KINDS)}")
        if watch.accelerator and (watch.list or watch.build):
            yield _at(
                node, "accelerator", f"`{where}.accelerator` is for releases and commits: write +cpu behind a build"
            )
        if watch.repo and not watch.releases:
            yield _at(node, "repo", f"`{where}.repo` is for releases")
        if watch.good and watch.build:
            yield _at(node, "good", f"`{where}.good`: a build without an order has no good end")
        yield from (_word(node, key, where) for key in ("build", "good") if _is_wrong(getattr(watch, key)))


def _is_wrong(word: str | None) -> bool:
    try:
        return word is not None and not build.parse(word)
    except HarnessError:
        return True


def _word(node: Node, key: str, where: str) -> Problem:
    child = node.child(key)
    assert child is not None  # it has a value that is wrong
    return _at(node, key, f'`{where}.{key}`: "{child.value}" names no build; write {build.FORMS}')


def _at(node: Node, key: str, text: str) -> Problem:
    return Problem.at((node.child(key) or node).mark, text)


def _items(root: Node, key: str) -> list[Node]:
    node = root.child(key)
    return node.value if node and isinstance(node.value, list) else []


def _scenarios(body: Body, root: Node, folder: Path) -> tuple[tuple[Scenario, ...], list[Problem]]:
    loaded: list[Scenario] = []
    wrong: list[Problem] = []
    for word, node in zip(body.scenarios, _items(root, "scenarios"), strict=True):
        try:
            path, variant = scenario.find(str(folder / word) if word.startswith(("./", "../")) else word)
            one = scenario.load(path, variant=variant)
        except HarnessError as error:
            wrong.append(Problem.at(node.mark, f"{error.what}"))
            continue
        if any((one.path, one.variant) == (other.path, other.variant) for other in loaded):
            wrong.append(Problem.at(node.mark, f"{one.title} is named twice"))
        loaded.append(one)
    return tuple(loaded), wrong
