"""From a file, a variant and `--set` words to one validated Scenario.

bytes ─ read ─▶ Node tree ─ merge ─▶ Node tree ─┬─ types (format.py) ─┬─ all problems at once ─▶ ScenarioError
                 base, variants, --set          └─ rules (rules.py) ──┴─▶ Scenario
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from harness.checks.base import kebab
from harness.errors import ScenarioError
from harness.scenario import overlays, problems, rules, yaml_source
from harness.scenario.format import Body, Registry, body_model, registered
from harness.scenario.merge import merge
from harness.scenario.model import Scenario
from harness.scenario.yaml_source import Node, Problem
from harness.units import DurationPerNodeClass, class_slips

if TYPE_CHECKING:
    from harness.checks.base import Params

_WITH_PATHS = ("model", "serve", "env", "checks", "when", "expect")


@dataclass(frozen=True, kw_only=True)
class ScenarioFile:
    """A file all of whose variants are valid."""

    path: Path
    name: str
    description: str
    variants: tuple[str, ...]
    _scenarios: Mapping[str | None, Scenario] = field(repr=False)
    _root: Node = field(repr=False)
    _registry: Registry = field(repr=False)

    def scenario(self, variant: str | None = None, sets: Sequence[str] = ()) -> Scenario:
        """The scenario itself, or one of its variants; each of `sets` is `serve.x=y`.

        Raises:
            ScenarioError: no such variant, or a `--set` that makes the scenario invalid.
            UsageError: a `--set` that is not PATH=VALUE.
        """
        if variant not in self._scenarios:
            known = f"its variants are {', '.join(self.variants)}" if self.variants else "it has no variants"
            near = problems.did_you_mean(variant or "", self.variants)
            raise ScenarioError(f"{self.path}: there is no variant `{variant}`{near}", fix=known)
        if not sets:
            return self._scenarios[variant]
        root = overlays.variant_root(self._root, variant)
        found: list[Problem] = []
        for words in sets:
            overlay = overlays.set_overlay(words)
            found += [
                Problem.at(n.mark, f"there is no `{name}` to remove")
                for name, n in overlays.removes_nothing(root, overlay)
            ]
            root = merge(root, overlay)
        resolution = _Resolution(root, self.path, variant, self._registry)
        problems.refuse([*found, *resolution.problems])
        return resolution.scenario()


def load(
    path: Path, *, variant: str | None = None, sets: Sequence[str] = (), registry: Registry | None = None
) -> Scenario:
    """Read a scenario file and give the scenario, or one of its variants, with `--set` words (`serve.x=y`) applied.

    Raises:
        ScenarioError: everything that is wrong in the file, each line as file:line:column; or no such variant.
        UsageError: a `--set` that is not PATH=VALUE.
    """
    return load_file(path, registry=registry).scenario(variant, sets)


def load_file(path: Path, *, registry: Registry | None = None) -> ScenarioFile:
    """Read a scenario file and validate it with all its variants.

    Raises:
        ScenarioError: everything that is wrong in it, each line as file:line:column.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow a link away from its models
    return _validated(path, absolute, yaml_source.read(path), registry or registered())


@lru_cache(maxsize=256)  # by content: a command asks for a file, then for each of its variants
def _validated(path: Path, absolute: Path, text: str, registry: Registry) -> ScenarioFile:
    document = yaml_source.parse(text, str(path))
    found = [*document.problems, *overlays.shape(document.root)]
    if not isinstance(document.root.value, dict):
        problems.refuse(found)
    names = overlays.variant_names(document.root)
    roots = {name: overlays.variant_root(document.root, name) for name in (None, *names)}
    resolutions = {name: _Resolution(root, absolute, name, registry) for name, root in roots.items()}
    problems.refuse([*found, *(problem for each in resolutions.values() for problem in each.problems)])
    base = resolutions[None].scenario()
    return ScenarioFile(
        path=base.path,
        name=base.name,
        description=base.description,
        variants=names,
        _scenarios={name: each.scenario(overlays.idle(document.root, name)) for name, each in resolutions.items()},
        _root=document.root,
        _registry=registry,
    )


def warnings(scenario: Scenario) -> tuple[str, ...]:
    """What `harness validate` should mention: allowed, but it will not work here or looks like a slip."""
    absent = [f"{where} {path} does not exist here" for where, path in scenario.local if not Path(path).exists()]
    return (*absent, *scenario.remarks)


class _Resolution:
    """One merged tree, validated: what is wrong with it, or the scenario that it is."""

    def __init__(self, root: Node, path: Path, variant: str | None, registry: Registry) -> None:
        self._local: dict[str, str] = {}
        self._root = _anchored(root, path.parent, self._local)
        self._path = path
        self._variant = variant
        self._registry = registry
        self._body: Body | None = None
        self.problems = [*self._types(), *rules.problems(self._root, registry)]

    def _types(self) -> list[Problem]:
        model = body_model(self._registry)
        try:
            # From JSON, because there a strict model takes a list for a tuple.
            self._body = model.model_validate_json(json.dumps(self._root.plain()))
        except ValidationError as error:
            return list(problems.problems(error, self._root, model))
        return []

    def scenario(self, remarks: Iterable[str] = ()) -> Scenario:
        body = self._body
        assert body is not None  # whoever asks has refused the problems
        return Scenario(
            **{name: getattr(body, name) for name in Body.model_fields if name not in {"schema_", "checks"}},
            variant=self._variant,
            checks=self._checks(body),
            path=self._path,
            fingerprint=_fingerprint(body, self._path.parent, set(self._local.values())),
            parallel_flags=self._registry.runtimes[body.runtime].parallel_flags,
            local=tuple(self._local.items()),
            remarks=(*remarks, *self._remarks(body)),
        )

    def _checks(self, body: Body) -> dict[str, Params]:
        node = self._root.child("checks")
        names = list(node.value) if node and isinstance(node.value, dict) else []
        return {name: getattr(body.checks, name) for name in sorted(names, key=lambda name: name != "warmup")}

    def _remarks(self, body: Body) -> Iterator[str]:
        node = self._root.child("budgets") or self._root
        if body.budgets.silence >= body.budgets.startup:
            yield f"{node.mark}: `budgets.silence` is not below `budgets.startup`, so no hang is found by its silence"
        yield from self._limits()

    def _limits(self) -> Iterator[str]:
        """Of limits by class of node: a slip in a key is a limit that limits nothing."""
        checks = self._root.child("checks") or self._root
        for check, params in self._registry.checks.items():
            for name, given in params.model_fields.items():
                node = (checks.child(check) or self._root).child(key := kebab(name))
                if node and isinstance(node.value, dict) and _is_per_class(given):
                    for slip, text in class_slips(node.value):
                        at = node.keys[slip] if slip else node.mark
                        yield f"{at}: `checks.{check}.{key}`: {text}"


def _is_per_class(given: FieldInfo) -> bool:
    return DurationPerNodeClass in (given.annotation, *get_args(given.annotation))


def _anchored(root: Node, folder: Path, local: dict[str, str]) -> Node:
    """The tree with local paths made absolute; `local` gets each one, by `file:line:column: key`."""

    def visit(node: Node, path: str) -> Node:
        if isinstance(node.value, dict):
            values = {key: visit(value, f"{path}.{key}") for key, value in node.value.items()}
            return Node(values, node.mark, keys=node.keys)
        if isinstance(node.value, list):
            return Node([visit(value, f"{path}[{index}]") for index, value in enumerate(node.value)], node.mark)
        at = "@" if path == "expect.signature" and str(node.value).startswith("@") else ""
        if isinstance(node.value, str) and (at or node.value.startswith(("./", "../"))):
            absolute = os.path.normpath(folder / node.value.removeprefix(at))
            local[f"{node.mark}: `{path}`"] = absolute
            return Node(at + absolute, node.mark)
        return node

    assert isinstance(root.value, dict)
    values = {key: visit(node, key) if key in _WITH_PATHS else node for key, node in root.value.items()}
    return Node(values, root.mark, keys=root.keys)


def _fingerprint(body: Body, folder: Path, local: set[str]) -> str:
    """Of what is asked, local paths as seen from the file.

    Without defaults, so that a new parameter of a check changes no old fingerprint.
    """

    def visit(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: visit(each) for key, each in value.items()}
        if isinstance(value, list):
            return [visit(each) for each in value]
        at = "@" if isinstance(value, str) and value.startswith("@") else ""
        if isinstance(value, str) and value.removeprefix(at) in local:
            return f"{at}./{os.path.relpath(value.removeprefix(at), folder)}"
        return value

    asked = body.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"description", "refs"})
    return hashlib.sha256(json.dumps(visit(asked), sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]
