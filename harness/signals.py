"""Orders to stop, wherever the main thread waits."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from harness.errors import Interrupted


@contextmanager
def interrupting() -> Iterator[None]:
    """SIGTERM, SIGINT and SIGHUP become `Interrupted` in the main thread, wherever it waits."""

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        raise Interrupted(signal.Signals(number).name)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
