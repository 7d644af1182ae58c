"""All rules over one build, in their order. Pure but for reading the sources."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from harness.contracts import counts, dropped, imports, never_set, overrides
from harness.contracts.calls import Calls
from harness.contracts.contracts_file import Contracts, Count, Hierarchy
from harness.contracts.hierarchy import Classes, Klass
from harness.contracts.index import Index
from harness.contracts.model import Finding, Report
from harness.contracts.reading import Sources
from harness.contracts.typed import Typed


def check(sources: Sources, contracts: Contracts, *, build: str) -> Report:
    """What is broken in a package, by the hierarchies and rules of a file."""
    run = _Run(sources, contracts)
    with _uncollected():
        found = _merged(run.findings())
    return Report(
        build=build,
        version=sources.version,
        content=sources.content,
        files=len(sources.names),
        findings=tuple(found),
        classes=run.classes_by_name,
        notes=tuple(run.notes),
        unread=tuple(f"{file} cannot be read: {why}" for file, why in sorted(run.index.unreadable.items())),
    )


def _merged(findings: Iterable[Finding]) -> Iterator[Finding]:
    """One finding a key, by key: several faults of one parameter are one, and live if one of them is."""
    by_key: dict[str, list[Finding]] = {}
    for each in findings:
        by_key.setdefault(each.key, []).append(each)
    for key in sorted(by_key):
        several = sorted(by_key[key], key=lambda each: each.state != "live")
        words = "; ".join(dict.fromkeys(each.message for each in several))
        uses = dict.fromkeys(use for each in several for use in each.uses)
        yield replace(several[0], message=words, uses=tuple(uses))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Millions of nodes that all stay: looking for garbage among them would take a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Run:
    def __init__(self, sources: Sources, contracts: Contracts) -> None:
        self._contracts = contracts
        self.index = Index(sources)
        self._classes = Classes(self.index)
        self._typed, self._calls = Typed(self._classes), Calls(self.index)
        self.notes: list[str] = []
        self.classes_by_name: dict[str, int] = {}

    def findings(self) -> Iterator[Finding]:
        for hierarchy in self._contracts.hierarchies:
            yield from self._in_hierarchy(hierarchy)
        yield from self._counts()
        if self._contracts.imports:
            yield from self._imports()

    def _in_hierarchy(self, hierarchy: Hierarchy) -> Iterator[Finding]:
        family = self._family(hierarchy.name, hierarchy.roots)
        self._told(hierarchy.name, family)
        rules = {
            "dropped-argument": lambda: dropped.check(self._classes, family, self._typed),
            "never-set": lambda: never_set.check(self._classes, family),
            "override": lambda: overrides.check(self._classes, family, self._calls),
        }
        for rule in hierarchy.rules:
            for found in rules[rule]():
                yield replace(found, hierarchy=hierarchy.name, refs=hierarchy.refs)

    def _family(self, name: str, roots: tuple[str, ...]) -> list[Klass]:
        found: dict[str, Klass] = {}
        for root in roots:
            below = self._classes.below(root)
            found.update((each.path, each) for each in below)
            if not below:
                self.notes.append(f"{name}: this build has no {root}")
        self.classes_by_name[name] = len(found)
        return list(found.values())

    def _told(self, name: str, found: list[Klass]) -> None:
        vague = sum(bool(self._classes.vague(each.path)) for each in found)
        if vague:
            self.notes.append(f"{name}: attributes of {vague} of {len(found)} classes cannot be known")

    def _counts(self) -> Iterator[Finding]:
        for count in self._contracts.counts:
            if counts.applies(self._classes, count.where):
                family = self._family(count.name, count.roots)
                self._told_sides(count, family)
                yield from (replace(each, hierarchy=count.name) for each in counts.check(self._classes, family, count))
            elif count.where:
                self.notes.append(f"{count.name}: {count.where.function} does not assert it in this build")

    def _told_sides(self, count: Count, family: list[Klass]) -> None:
        methods = {name for each in family for name in each.body.methods}
        for side in (count.sides[0], count.sides[2]):
            if side not in methods:
                self.notes.append(f"{count.name}: no class of it has a method {side}")

    def _imports(self) -> Iterator[Finding]:
        apart = [module for each in self._contracts.not_in_every_build for module in each.modules]
        passed = 0
        for found in imports.check(self.index):
            if any(found.member == module or found.member.startswith(f"{module}.") for module in apart):
                passed += 1
            else:
                yield found
        if passed:
            self.notes.append(f"{passed} imports of modules that not every build has were left out")
