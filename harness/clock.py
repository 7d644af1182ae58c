"""The one owner of time: monotonic seconds for durations, UTC for the record, deadlines handed down."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass


def now() -> float:
    """Monotonic seconds; only differences mean anything."""
    return time.monotonic()


def utc() -> str:
    """Wall-clock time for records, ISO 8601 in UTC with milliseconds."""
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


def between(begun: str, ended: str) -> float:
    """Seconds between two times of records."""
    return (dt.datetime.fromisoformat(ended) - dt.datetime.fromisoformat(begun)).total_seconds()


def sleep(seconds: float) -> None:
    time.sleep(max(0.0, seconds))


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock, made once and handed down, so that nested waits share one budget."""

    at: float
    budget: float
    """The seconds that were allowed, for messages."""

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(at=now() + seconds, budget=seconds)

    @property
    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - now())

    @property
    def expired(self) -> bool:
        return now() >= self.at
