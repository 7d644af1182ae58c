"""What was found, turned into a verdict: the product's failures are FAIL, everybody else's are ERROR. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness import triage, wanted
from harness.conduct import Finding
from harness.errors import Blame
from harness.known import Known
from harness.record import Teardown, Verdict
from harness.scenario import Expect
from harness.signature import Signature
from harness.xid import Xid

DRAIN = "drain the node, see its kernel log, reset the GPU or reboot, and run it again"
_SHOWN_XIDS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    verdict: Verdict
    reason: str
    fix: str = ""
    blame: Blame | None = None


def judge(finding: Finding, teardown: Teardown, *, expect: Expect | None, xids: Sequence[Xid] = ()) -> Judgement:
    """`expect`: the scenario reproduces a known failure, and passes when it fails as foretold; its word is resolved.

    `xids` are those of the kernel's log; what counts are hardware's, on GPUs that the run had. A failure accuses the
    product, so any of them takes the accusation back: run it elsewhere. A pass accuses nobody, so it stands beside a
    corrected error or a remapped row; but where data was lost or the GPU must be reset, right answers are luck and the
    times are not those of the product, and the next run must not get that node: ERROR too.
    """
    return _on_sound_gpus(_of_server(finding, teardown, expect), teardown, xids)


def _of_server(finding: Finding, teardown: Teardown, expect: Expect | None) -> Judgement:
    found = finding.signature
    if found and expect and wanted.named(expect.signature, found):
        return _passed(f"reproduced: {found.title}", "reproduced", teardown)
    judged = _passed(finding.reason, "passed", teardown) if found is None else _failed(found, finding.reason)
    if expect is None or judged.verdict == "ERROR":
        return judged
    got = f"got {found.id}: {finding.reason}" if found else f"but nothing failed: {finding.reason}"
    return Judgement(verdict="FAIL", reason=f"expected signature {expect.signature}, {got}", blame="product")


def _on_sound_gpus(judged: Judgement, teardown: Teardown, xids: Sequence[Xid]) -> Judgement:
    """Take back what was judged where the GPUs themselves failed; an ERROR stays what it is."""
    if judged.verdict == "ERROR":
        return judged
    bad = [xid for xid in xids if xid.own and xid.meaning.fault == "hardware"]
    if judged.verdict == "PASS":
        bad = [xid for xid in bad if xid.meaning.fatal]
    told = "; ".join(dict.fromkeys(xid.words for xid in bad[:_SHOWN_XIDS]))
    if not told and not teardown.gpus_lost:
        return judged
    why = told or f"the GPUs cannot be read any more ({teardown.gpus_lost})"
    reason = f"{why}, so this says nothing of the product: {judged.reason}"
    return Judgement(verdict="ERROR", reason=reason, fix=DRAIN, blame="node")


def is_expected(judged: Judgement, met: Known | None, due: Sequence[Known]) -> bool:
    """Whether a failure is one that may be there today: due for this scenario, or known without a place of its own."""
    if judged.verdict != "FAIL" or met is None:
        return False
    return met in due or not (due or met.scenarios)


def missed(judged: Judgement, met: Known | None, due: Sequence[Known]) -> Judgement:
    """FAIL where a known failure was due and another thing happened; `due` has those that this scenario must meet."""
    if not due or met in due or judged.verdict not in ("PASS", "FAIL"):
        return judged
    refs = " or ".join(", ".join(known.refs) for known in due)
    what = "it passed" if judged.verdict == "PASS" else "it failed otherwise"
    return replace(
        judged,
        verdict="FAIL",
        reason=f"the known failure {refs} did not show, {what}: {judged.reason}",
        fix=f"if it is fixed, narrow its `builds` or take the scenario out: {', '.join(known.where for known in due)}",
        blame="product",
    )


def _failed(found: Signature, reason: str) -> Judgement:
    blame = triage.blame(found)
    if blame == "product":
        return Judgement(verdict="FAIL", reason=reason, blame=blame)
    fix = triage.FIXES.get(found.kind, "repair the node or the scenario and run it again")
    return Judgement(verdict="ERROR", reason=reason, fix=fix, blame=blame)


def _passed(reason: str, word: str, teardown: Teardown) -> Judgement:
    if not teardown.held:
        return Judgement(verdict="PASS", reason=reason)
    return Judgement(
        verdict="ERROR",
        reason=f"{word}, but was not taken down: {'; '.join(teardown.held)}",
        fix="free the node before the next run",
        blame="node",
    )
