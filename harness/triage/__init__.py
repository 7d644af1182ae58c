"""Log + exit + phase → signature: the root cause, not the messenger. Rules are tables, the algorithm is small."""

from harness.triage.identify import blame, check_failed, hang, killed, normalise
from harness.triage.reading import Triage, read, to_json, to_text
from harness.triage.rules import BLAME, FIXES

__all__ = [
    "BLAME",
    "FIXES",
    "Triage",
    "blame",
    "check_failed",
    "hang",
    "killed",
    "normalise",
    "read",
    "to_json",
    "to_text",
]
