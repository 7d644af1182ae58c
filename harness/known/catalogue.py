"""`known_failures.yaml`, read and asked: which failure is known, and which one must a scenario meet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from packaging.version import InvalidVersion, Version
from pydantic import ValidationError

from harness import wanted
from harness.errors import ScenarioError
from harness.known import format as form
from harness.known.format import Entry, Step
from harness.record import KnownFailure
from harness.scenario import Scenario, yaml_source
from harness.scenario import problems as found_by
from harness.scenario.find import KNOWN_FAILURES, PROJECT
from harness.scenario.format import in_range, registered
from harness.scenario.yaml_source import Node, Problem
from harness.signature import Signature

FIX = "correct the file; CONTRIBUTING.md says what stands in it"


@dataclass(frozen=True, kw_only=True)
class Known:
    """One failure that somebody reported."""

    signatures: tuple[str, ...]
    """Ids, and titles in which `*` stands for any text."""
    refs: tuple[str, ...]
    builds: str
    fixed: str | None
    scenarios: tuple[str, ...]
    """Those that must meet it; empty: it may turn up anywhere."""
    workaround: tuple[Step, ...]
    where: str
    """`file:line:column`."""

    def is_seen_in(self, signature: Signature) -> bool:
        return any(wanted.named(word, signature) or _glob(word, signature.title) for word in self.signatures)

    def affects(self, version: str | None) -> bool:
        """Whether builds of this version have it; one that cannot be read has nothing."""
        try:
            return in_range(Version(version or ""), self.builds)
        except InvalidVersion:
            return False

    def concerns(self, scenario: Scenario) -> bool:
        """Whether the entry says that this scenario meets it."""
        return any(_glob(word, name) for word in self.scenarios for name in (scenario.name, scenario.title))

    def stages(self) -> tuple[tuple[Step, ...], ...]:
        """What to try, one after the other: every edit at once, because edits take the least away, then overrides."""
        edits = tuple(step for step in self.workaround if step.edit)
        return (*([edits] if edits else []), *((step,) for step in self.workaround if not step.edit))

    def recorded(self, title: str) -> KnownFailure:
        return KnownFailure(refs=self.refs, fixed=self.fixed, title=title, builds=self.builds)


@dataclass(frozen=True, kw_only=True)
class KnownFailures:
    entries: tuple[Known, ...] = ()

    def met(self, signature: Signature | None, version: str | None) -> Known | None:
        """The first entry that knows this failure on builds of this version."""
        here = (entry for entry in self.entries if entry.affects(version))
        return next((entry for entry in here if signature and entry.is_seen_in(signature)), None)

    def due(self, scenario: Scenario, version: str | None) -> tuple[Known, ...]:
        """The entries one of which this scenario must meet on builds of this version."""
        return tuple(entry for entry in self.entries if entry.concerns(scenario) and entry.affects(version))


def beside(scenario: Path) -> KnownFailures:
    """Those in the folder of a scenario file, else the project's; none where there is no such file.

    Raises:
        ScenarioError: everything that is wrong in the file, each line as file:line:column.
    """
    file = file_beside(scenario)
    return load(file) if file else KnownFailures()


def file_beside(scenario: Path) -> Path | None:
    """The file that `beside` reads."""
    return next((f for f in (scenario.with_name(KNOWN_FAILURES), PROJECT / KNOWN_FAILURES) if f.is_file()), None)


def load(path: Path) -> KnownFailures:
    """Read a `known_failures.yaml`.

    Raises:
        ScenarioError: everything that is wrong in it, each line as file:line:column.
    """
    return _validated(str(path), yaml_source.read(path))


@lru_cache(maxsize=16)  # by content, as scenarios
def _validated(source: str, text: str) -> KnownFailures:
    document = yaml_source.parse(text, source)
    root = _listed(document.root)
    problems: list[Problem] = [*document.problems, *form.problems(root, registered())]
    try:
        # From JSON, because there a strict model takes a list for a tuple.
        body = form.Body.model_validate_json(json.dumps(root.plain()))
    except ValidationError as error:
        found_by.refuse([*problems, *found_by.problems(error, root, form.Body)], fix=FIX)
        raise ScenarioError(f"{source}: {error}", fix=FIX) from error
    found_by.refuse(problems, fix=FIX)
    return KnownFailures(
        entries=tuple(_known(entry, node) for entry, node in zip(body.known, _nodes(root), strict=True))
    )


def _known(entry: Entry, node: Node) -> Known:
    return Known(
        signatures=entry.signature,
        refs=entry.refs,
        builds=entry.builds,
        fixed=entry.fixed,
        scenarios=entry.scenarios,
        workaround=entry.workaround,
        where=str(node.mark),
    )


def _nodes(root: Node) -> Iterable[Node]:
    known = root.child("known")
    return known.value if known and isinstance(known.value, list) else ()


def _listed(node: Node, key: str = "") -> Node:
    """The tree with a list of one where `signature`, `removes` or `scenarios` is a single text."""
    if isinstance(node.value, dict):
        values = {name: _listed(value, name) for name, value in node.value.items()}
        return Node(values, node.mark, keys=node.keys)
    if isinstance(node.value, list):
        return Node([_listed(value) for value in node.value], node.mark)
    alone = key in {"signature", "removes", "scenarios"} and isinstance(node.value, str)
    return Node([node], node.mark) if alone else node


def _glob(pattern: str, text: str) -> bool:
    """`*` is any text and nothing else is special: titles have brackets and question marks of their own."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None
