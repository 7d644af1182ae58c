"""Both output streams of a server into one file, as printed, with the time of every line; matching lines on the way.

    stdout ─pipe─┐                         ┌─▶ server.log     whole lines in order of arrival, secrets masked
                 ├─ read ─ mask ─ write ───┼─▶ server.times   `seconds stream offset length`, one row a written block
    stderr ─pipe─┘                         └─▶ on_line(Line)  only lines with one of a few literals

One thread serves both pipes, so the order in the file is the order of arrival. A line goes out whole; one that stays
unfinished for `PARTIAL_AFTER` (a progress bar) or grows beyond `LONGEST` goes out in pieces. Where the other stream
speaks up in the middle of such a line, we end it with a newline of our own (stream `-` in server.times).
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness import clock
from harness.bytesearch import lines_with
from harness.masking import Masker

PARTIAL_AFTER = 0.2
LONGEST = 1 << 20
"""Bytes of an unfinished line that are kept in memory."""
MATCHED = 1 << 16
"""Bytes of a line that are matched and handed over."""
_READ = 1 << 20

Stream = Literal["o", "e"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    t: float
    """Seconds since the spawn, when its last byte arrived."""
    stream: Stream
    text: str
    """Decoded with U+FFFD for what is not UTF-8, at most 64 KiB, without its line end."""


class _Pipe:
    """One stream's unfinished line: the part in memory and the part that is on disk already."""

    def __init__(self, fd: int, stream: Stream) -> None:
        self.fd, self.stream = fd, stream
        self.parts: list[bytes] = []
        self.size = 0
        self.shown = b""
        self.flush_at: float | None = None
        """When the part in memory must be shown; None: there is nothing new in it."""

    def keep(self, data: bytes) -> None:
        if data:
            self.parts.append(data)
            self.size += len(data)

    def take(self) -> bytes:
        """The part in memory, which is then ours no more."""
        whole = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        self.parts, self.size = [], 0
        return whole


class LogPump:
    """Starts reading at `start`, ends at the end of both streams or at `stop`. Never blocks the server for long."""

    def __init__(
        self,
        pipes: tuple[int, int],
        folder: Path,
        *,
        started: float,
        masker: Masker,
        literals: tuple[bytes, ...],
        on_line: Callable[[Line], None],
    ) -> None:
        self._pipes = [_Pipe(pipes[0], "o"), _Pipe(pipes[1], "e")]
        self._started, self._masker, self._literals, self._on_line = started, masker, literals, on_line
        self._log, self._times = ((folder / name).open("wb", buffering=0) for name in ("server.log", "server.times"))
        self._path = folder / "server.log"
        self._offset = 0
        self._unfinished: Stream | None = None  # whose unfinished line stands at the end of the file
        self._poll = select.poll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._settled = threading.Event()
        self._settling = self._stopping = self._ended = False
        self._thread = threading.Thread(target=self._run, name="log pump", daemon=True)
        self.last_output = started
        """Monotonic second of the last byte."""
        self.problem: Exception | None = None
        """The first thing that kept us from writing or matching; reading goes on, so that the server never blocks."""

    def start(self) -> None:
        for pipe in self._pipes:
            os.set_blocking(pipe.fd, False)
            self._poll.register(pipe.fd, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        self._thread.start()

    def settle(self, seconds: float) -> bool:
        """Wait until everything printed so far is on disk; False: a flood did not end in that time."""
        self._settled.clear()
        if self._ended:
            return True
        self._settling = True
        self._nudge()
        return self._settled.wait(seconds)

    def stop(self, seconds: float = 2.0) -> None:
        """Write what the pipes hold and end, even where a survivor keeps them open. Safe to call twice."""
        if self._thread.is_alive():
            self.settle(seconds)
            self._stopping = True
            self._nudge()
            self._thread.join(seconds)
        if self._wake >= 0 and not self._thread.is_alive():
            wake, self._wake = self._wake, -1
            os.close(wake)

    def tail(self, n: int) -> list[str]:
        """The last `n` lines on disk (of the last 64 KiB)."""
        with self._path.open("rb") as file:
            file.seek(max(0, self._offset - MATCHED))
            text = file.read(MATCHED).decode(errors="replace")
        lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        return [line for line in lines if line][-n:]

    def _nudge(self) -> None:
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        try:
            while self._pipes and not self._stopping:
                self._turn()
        finally:
            for pipe in self._pipes:
                self._flush(pipe)
                os.close(pipe.fd)
            for file in (self._log, self._times):
                file.close()
            self._ended = True
            self._settled.set()

    def _turn(self) -> None:
        ready = {fd for fd, _ in self._poll.poll(self._patience())}
        if self._wake in ready:
            os.eventfd_read(self._wake)
        readable = [pipe for pipe in self._pipes if pipe.fd in ready]
        for pipe in readable:
            self._read(pipe)
        settled = self._settling and not readable
        for pipe in self._pipes:
            if pipe.flush_at is not None and (settled or clock.now() >= pipe.flush_at):
                self._flush_part(pipe)
        if settled:
            self._settling = False
            self._settled.set()

    def _patience(self) -> float | None:
        """Milliseconds until an unfinished line must be shown."""
        if self._settling:
            return 0.0
        due = [pipe.flush_at for pipe in self._pipes if pipe.flush_at is not None]
        return max(0.0, min(due) - clock.now()) * 1000 + 1 if due else None

    def _read(self, pipe: _Pipe) -> None:
        try:
            data = os.read(pipe.fd, _READ)
        except BlockingIOError:
            return
        if data:
            self.last_output = clock.now()
            self._take(pipe, data)
            return
        self._flush(pipe)
        self._poll.unregister(pipe.fd)
        os.close(pipe.fd)
        self._pipes = [other for other in self._pipes if other is not pipe]

    def _take(self, pipe: _Pipe, data: bytes) -> None:
        cut = data.rfind(b"\n") + 1
        if cut:
            pipe.keep(data[:cut])
            self._emit(pipe, self._masker.raw(pipe.take()))
        pipe.keep(data[cut:])
        if not pipe.size:
            pipe.flush_at = None
        elif cut or pipe.flush_at is None:
            pipe.flush_at = self.last_output + PARTIAL_AFTER
        if pipe.size > LONGEST:
            self._flush_part(pipe)

    def _flush_part(self, pipe: _Pipe) -> None:
        """Show an unfinished line, except for what may be the first half of a secret."""
        masked = self._masker.raw(pipe.take())
        shown = len(masked) - self._masker.open_end(masked)
        part = masked[:shown]
        pipe.keep(masked[shown:])
        pipe.flush_at = None
        if part:
            self._emit(pipe, part)

    def _flush(self, pipe: _Pipe) -> None:
        if pipe.size:
            self._emit(pipe, self._masker.raw(pipe.take()))
        if pipe.shown:
            self._match(pipe, pipe.shown + b"\n")
        pipe.shown = b""

    def _emit(self, pipe: _Pipe, block: bytes) -> None:
        if self._unfinished not in (None, pipe.stream):
            self._write(b"\n", "-")
        self._write(block, pipe.stream)
        ends = block.endswith(b"\n")
        self._unfinished = None if ends else pipe.stream
        whole = pipe.shown + block if pipe.shown else block
        cut = len(whole) if ends else max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        pipe.shown = whole[cut : cut + MATCHED]
        if cut:
            self._match(pipe, whole if ends else whole[:cut])

    def _write(self, block: bytes, stream: str) -> None:
        try:
            view = memoryview(block)
            while view:
                view = view[self._log.write(view) or 0 :]
            row = f"{self.last_output - self._started:.6f} {stream} {self._offset} {len(block)}\n"
            self._times.write(row.encode())
            self._offset += len(block)
        except OSError as error:
            self.problem = self.problem or error

    def _match(self, pipe: _Pipe, block: bytes) -> None:
        try:
            for raw in lines_with(block, self._literals, longest=MATCHED):
                text = raw.decode(errors="replace")
                self._on_line(Line(t=self.last_output - self._started, stream=pipe.stream, text=text))
        except Exception as error:  # noqa: BLE001 - kept for `problem`; the server must not block because we stumbled
            self.problem = self.problem or error


def lines(folder: Path) -> Iterator[Line]:
    """Every line of a folder's server.log with its time and stream, after the run or during it.

    A line counts as arrived with the block that ended it. Memory: one block and one line.
    """
    with (folder / "server.log").open("rb") as log, (folder / "server.times").open(encoding="ascii") as times:
        start = b""
        seconds, stream = "0", "o"
        for row in times:
            if not row.endswith("\n"):  # being written right now
                break
            seconds, now_stream, _, length = row.split()
            stream = stream if now_stream == "-" else now_stream
            first, *more = log.read(int(length)).split(b"\n")
            start = start if len(start) > MATCHED else start + first
            for part in more:
                yield _line(seconds, stream, start)
                start = part
        if start:
            yield _line(seconds, stream, start)


def line_times(folder: Path) -> list[float]:
    """Seconds since the spawn of every line of server.log: index 0 is its first line."""
    return [line.t for line in lines(folder)]


def _line(seconds: str, stream: str, raw: bytes) -> Line:
    text = raw[:MATCHED].decode(errors="replace").rstrip("\r")
    return Line(t=float(seconds), stream="e" if stream == "e" else "o", text=text)
