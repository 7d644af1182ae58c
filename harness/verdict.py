"""What was found, turned into a verdict: the product's failures are FAIL, everybody else's are ERROR. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from harness import triage
from harness.conduct import Finding
from harness.errors import Blame
from harness.record import Teardown, Verdict
from harness.scenario import Expect


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    verdict: Verdict
    reason: str
    fix: str = ""
    blame: Blame | None = None


def judge(finding: Finding, teardown: Teardown, *, expect: Expect | None) -> Judgement:
    """`expect`: the scenario reproduces a known failure, and passes when it fails as foretold."""
    if expect:
        return _reproduction(expect.signature, finding)
    if finding.signature is None:
        return _passed(finding, teardown)
    blame = triage.blame(finding.signature)
    if blame == "product":
        return Judgement(verdict="FAIL", reason=finding.reason, blame=blame)
    fix = triage.FIXES.get(finding.signature.kind, "repair the node or the scenario and run it again")
    return Judgement(verdict="ERROR", reason=finding.reason, fix=fix, blame=blame)


def _passed(finding: Finding, teardown: Teardown) -> Judgement:
    held = (*teardown.survivors, *(left for left in teardown.left if left.startswith("GPU")))
    if not held:
        return Judgement(verdict="PASS", reason=finding.reason)
    return Judgement(
        verdict="ERROR",
        reason=f"passed, but was not taken down: {'; '.join(held)}",
        fix="free the node before the next run",
        blame="node",
    )


def _reproduction(word: str, finding: Finding) -> Judgement:
    found = finding.signature
    if found and (found.id.startswith(word) or found.title == word):
        return Judgement(verdict="PASS", reason=f"reproduced: {found.title}")
    got = f"got {found.id}: {finding.reason}" if found else f"but nothing failed: {finding.reason}"
    return Judgement(verdict="FAIL", reason=f"expected signature {word}, {got}", blame="product")
