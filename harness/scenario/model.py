"""A scenario as the rest of the harness sees it: merged, validated, local paths absolute."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from harness.errors import ScenarioError
from harness.scenario.merge import merge_plain

if TYPE_CHECKING:
    from harness.checks.base import Params
    from harness.scenario.format import Budgets, EnvValue, Expect, Needs, When


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One question to a build: a server to start, and what must be true of it. Variant and `--set` are merged in."""

    name: str
    variant: str | None
    description: str
    refs: tuple[str, ...]
    runtime: str
    model: str
    """Id on the hub, or the absolute path of a folder."""
    revision: str | None
    serve: Mapping[str, Any]
    """Flag (kebab-case, no dashes in front) to value; no nulls, local paths absolute."""
    env: Mapping[str, EnvValue]
    needs: Needs
    budgets: Budgets
    subject: tuple[str, ...]
    checks: Mapping[str, Params]
    """By name, in the order of the file, but `warmup` first: its first request must be the first."""
    when: tuple[When, ...]
    expect: Expect | None
    starts: tuple[str, ...]
    path: Path
    """The file, absolute."""
    fingerprint: str
    """12 hex digits of what is asked: the same on every machine; `when` rules count as written, descriptions not."""
    parallel_flags: tuple[str, ...] = field(default=(), repr=False)
    """Of its runtime: the flags whose product is the number of GPUs."""
    local: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Local paths that it names: (`file:line:column: key`, absolute path)."""
    remarks: tuple[str, ...] = field(default=(), repr=False)
    """What is allowed but looks like a slip: `file:line:column: sentence`."""

    @property
    def title(self) -> str:
        """`NAME` or `NAME[VARIANT]`."""
        return f"{self.name}[{self.variant}]" if self.variant else self.name

    @property
    def label(self) -> str:
        """`NAME` or `NAME.VARIANT`, for names of folders."""
        return f"{self.name}.{self.variant}" if self.variant else self.name

    @property
    def world_size(self) -> int:
        """GPUs that one launch takes: the product of the parallel sizes."""
        return math.prod(self.serve.get(flag, 1) for flag in self.parallel_flags)

    def resolved(self) -> dict[str, Any]:
        """All of it as JSON with the keys of the file, for the record; durations in seconds, secrets not masked."""
        plain = {
            name: getattr(self, name)
            for name in ("name", "variant", "description", "refs", "runtime", "model", "revision")
        }
        env = {key: value if isinstance(value, str) else {"from": value.from_} for key, value in self.env.items()}
        models: dict[str, Any] = {"needs": self.needs, "budgets": self.budgets, "expect": self.expect}
        return {
            "schema": 1,
            **plain,
            "refs": list(self.refs),
            "serve": dict(self.serve),
            "env": env,
            **{name: model and model.model_dump(mode="json", by_alias=True) for name, model in models.items()},
            "subject": list(self.subject),
            "checks": {name: params.model_dump(mode="json", by_alias=True) for name, params in self.checks.items()},
            "when": [rule.model_dump(mode="json", by_alias=True) for rule in self.when],
            "starts": list(self.starts),
        }

    def apply_when(self, version: str) -> tuple[Scenario, tuple[str, ...]]:
        """The scenario for a build of this version, and a sentence for each rule that changed it.

        Raises:
            ScenarioError: there are rules, but the version cannot be compared; or the GPUs no longer add up.
        """
        if not self.when:
            return self, ()
        try:
            parsed = Version(version)
        except InvalidVersion as error:
            raise ScenarioError(
                f'{self.path}: `when` rules cannot be applied: the build\'s version "{version}" cannot be compared',
                fix="name a build with a version, release:VERSION",
            ) from error
        changed, applied = self, []
        for rule in self.when:
            if rule.holds(parsed):
                changed = changed.overlaid(rule.serve, rule.env, why=f"for builds {rule.builds}")
                applied.append(_sentence(rule, version))
        return changed, tuple(applied)

    def hint(self, node: object) -> str:
        """What to run instead, where this node cannot run it."""
        from harness.scenario.find import smaller  # noqa: PLC0415 - it loads scenarios

        del node  # what is smaller does not depend on it
        return smaller(self)

    def overlaid(self, serve: Mapping[str, Any], env: Mapping[str, EnvValue | None], *, why: str) -> Scenario:
        """The scenario with flags and variables merged over its own; null removes one.

        Raises:
            ScenarioError: the GPUs no longer add up; `why` says what changed them.
        """
        changed = merge_plain(dict(self.serve), dict(serve))
        size = math.prod(changed.get(flag, 1) for flag in self.parallel_flags)
        if self.needs.gpus not in {None, size}:
            raise ScenarioError(
                f"{self.path}: `needs.gpus` is {self.needs.gpus}; {why} parallel sizes make {size}",
                fix="keep the parallel sizes there as they are",
            )
        variables = {key: value for key, value in {**self.env, **env}.items() if value is not None}
        return replace(self, serve=changed, env=variables)


def _sentence(rule: When, version: str) -> str:
    return f"builds {rule.builds} holds for {version}: {changes(rule.serve, rule.env)}"


def changes(serve: Mapping[str, Any], env: Mapping[str, Any]) -> str:
    """Overrides in words. Values of variables stay out: they may be secret."""
    flags = [f"serve.{k} {'removed' if v is None else f'= {json.dumps(v)}'}" for k, v in serve.items()]
    variables = [f"env.{k} {'removed' if v is None else 'set'}" for k, v in env.items()]
    return ", ".join((*flags, *variables))
