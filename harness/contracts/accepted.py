"""The baseline: findings that somebody looked at and accepted, so that only new ones are red.

An entry accepts a finding by its key; `*` stands for any text. What was accepted while nobody ran into it (`latent`) is
new again when somebody does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import yaml
from packaging.version import InvalidVersion, Version
from pydantic import Field

from harness import record
from harness.contracts.contracts_file import read_as
from harness.contracts.model import Finding, State
from harness.scenario.format import Builds, Strict, Text, in_range

SHIPPED = Path(__file__).parent.parent / "runtimes" / "vllm_contracts_accepted.yaml"
_HEAD = """\
# Findings of `harness contracts` that were looked at and accepted: only others are red. Give each entry its reason.
"""


class Entry(Strict):
    """One accepted finding, or with `*` several."""

    finding: Text
    """Its key: `RULE:CLASS.MEMBER`."""
    reason: Text
    state: State = "latent"
    """Up to which it is accepted."""
    builds: Builds = ""
    """A range of releases: ">=0.29.0"; empty: all."""

    def accepts(self, finding: Finding, version: str) -> bool:
        known = self.state == "live" or finding.state == "latent"
        return known and self.names(finding) and self._concerns(version)

    def names(self, finding: Finding) -> bool:
        return re.fullmatch(".*".join(map(re.escape, self.finding.split("*"))), finding.key) is not None

    def _concerns(self, version: str) -> bool:
        try:
            return not self.builds or in_range(Version(version), self.builds)
        except InvalidVersion:
            return True  # a checkout has no release: accepted is what any release may have


class Baseline(Strict):
    """A file of accepted findings."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    accepted: tuple[Entry, ...]

    def reason(self, finding: Finding, version: str) -> str:
        """Why a finding is accepted; empty for one that is not."""
        return next((each.reason for each in self.accepted if each.accepts(finding, version)), "")

    def idle(self, findings: Iterable[Finding], version: str) -> tuple[str, ...]:
        """Entries for this version that no finding answers to any more."""
        found = list(findings)
        due = (each for each in self.accepted if each._concerns(version))  # noqa: SLF001 - its own module
        return tuple(each.finding for each in due if not any(each.names(finding) for finding in found))


NOTHING = Baseline.model_validate({"schema": 1, "accepted": ()})


def load(path: Path = SHIPPED) -> Baseline:
    """Read a baseline.

    Raises:
        ScenarioError: everything that is wrong in it, each line as file:line:column.
    """
    return read_as(path, Baseline)


def write(path: Path, before: Baseline, new: Iterable[Finding]) -> int:
    """Add findings to a baseline, and say how many; their reasons are for a person to write."""
    entries = [each.model_dump(by_alias=True, exclude_defaults=True) for each in before.accepted]
    fresh = [
        {"finding": each.key, "reason": each.message, **({"state": "live"} if each.state == "live" else {})}
        for each in new
    ]
    text = yaml.safe_dump({"schema": 1, "accepted": [*entries, *fresh]}, sort_keys=False, allow_unicode=True, width=120)
    record.replace_text(path, _HEAD + text)
    return len(fresh)
