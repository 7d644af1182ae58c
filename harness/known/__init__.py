"""Known failures: which signature on which builds, who reports it, and what gets past it to see what is behind."""

from __future__ import annotations

from harness.environment.copies import PYTHONPATH
from harness.known.catalogue import Known, KnownFailures, beside, load
from harness.known.format import Edit, Step
from harness.known.overlay import edited
from harness.known.patches import Patch
from harness.known.peel import peel, way_around
from harness.scenario.find import KNOWN_FAILURES

Change = Step | Patch
"""What a run can be made under."""

__all__ = [
    "KNOWN_FAILURES",
    "PYTHONPATH",
    "Change",
    "Edit",
    "Known",
    "KnownFailures",
    "Patch",
    "Step",
    "beside",
    "edited",
    "load",
    "peel",
    "way_around",
]
