"""All faults; a readable registry."""

from __future__ import annotations

from first import FIRST
from second import SECOND

FAULTS = (*FIRST, *SECOND)
