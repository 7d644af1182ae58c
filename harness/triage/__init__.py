"""Log + exit + phase → signature: the root cause, not the messenger. Rules are tables, the algorithm is small."""

from harness.signature import similar
from harness.triage.answer import Explained, Triage
from harness.triage.identify import blame, check_failed, hang, killed, normalise
from harness.triage.kinds import BLAME, FIXES
from harness.triage.printing import to_json, to_reasons, to_text, visible
from harness.triage.reading import read

__all__ = [
    "BLAME",
    "FIXES",
    "Explained",
    "Triage",
    "blame",
    "check_failed",
    "hang",
    "killed",
    "normalise",
    "read",
    "similar",
    "to_json",
    "to_reasons",
    "to_text",
    "visible",
]
