"""The users' words stay out of the server's log.

Text that nobody else can have written (a canary) is sent as a prompt, whole and streamed, and in a request that must be
refused, whose error is logged by some. It may not appear in the log, neither as text nor as the ids of its tokens.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from harness import clock
from harness.checks.base import MOST_TOKENS, CheckContext, CheckResult, Measurement, Params
from harness.client.answers import BadAnswer

if TYPE_CHECKING:
    from harness.client.server_client import ServerClient

NAME = "log_hygiene"
LETTERS, LENGTH = "abcdef", 32
"""Of the canary: one in 6^32 texts has it. Letters only, which JSON, URLs and Python's repr write as they are; and such
that triage takes it for a hash, so that an error of the server that repeats it has one identity."""
QUIET_SECONDS, LONGEST_WAIT = 0.3, 5.0
"""The log is read when it has not grown for so long, or after the longest wait."""
PIECE_BYTES = 16 << 20
"""A line that is longer is read in pieces."""
ACROSS_BYTES = 4096
"""Of a piece, read again with the next one: what is looked for may lie across the cut."""
SHOWN_BYTES, SHOWN_LINES = 300, 5


class LogHygieneParams(Params):
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 4
    """Tokens that each request generates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A line of the log with the canary in it."""

    number: int
    """Counted from 1."""
    form: str
    """`text` or `token ids`."""
    line: str
    """Its beginning."""


class LogHygiene:
    name = NAME
    params: type[Params] = LogHygieneParams

    def prepare(self, params: LogHygieneParams, *, model: str, corpora: Path) -> None:
        """Nothing: it needs no file."""

    def run(self, context: CheckContext) -> CheckResult:
        canary = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        tokens = context.client.tokenize(canary)
        before = _size(context.log)
        number = context.client.requests + 1
        refused = _ask(context.client, canary, context.params.max_tokens)
        _wait_until_quiet(context.log)
        found = tuple(search(context.log, canary, tokens))
        return judge(found, read=_size(context.log), grown=_size(context.log) - before, refused=refused, number=number)


def _ask(client: ServerClient, canary: str, max_tokens: int) -> bool:
    """Send it in every way; whether the request that cannot be met was refused."""
    whole = partial(client.complete, canary, max_tokens=max_tokens)
    streamed = partial(client.stream_completion, canary, max_tokens=max_tokens)
    client.together([whole, streamed])
    try:
        client.complete(canary, max_tokens=max_tokens, top_p=-1.0)
    except BadAnswer as answer:
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status < HTTPStatus.BAD_REQUEST:
            raise
        return True
    return False


def _size(log: Path) -> int:
    return log.stat().st_size if log.is_file() else 0


def _wait_until_quiet(log: Path) -> None:
    deadline = clock.Deadline.after(LONGEST_WAIT)
    size, since = _size(log), clock.now()
    while clock.now() - since < QUIET_SECONDS and not deadline.expired:
        clock.sleep(0.05)
        if (grown := _size(log)) != size:
            size, since = grown, clock.now()


def search(log: Path, canary: str, tokens: Sequence[int]) -> Iterator[Found]:
    """Every line of the log that has the canary, as text or as the ids of its tokens in a row."""
    wanted = {"text": canary.encode(), "token ids": ", ".join(map(str, tokens)).encode()}
    if len(tokens) < 4:  # noqa: PLR2004 - as few numbers in a row may be there by chance
        del wanted["token ids"]
    with log.open("rb") as file:
        number, told, rest = 1, 0, b""
        while piece := file.readline(PIECE_BYTES):
            line = rest + piece
            form = next((form for form, word in wanted.items() if word in line), None)
            if form and told != number:  # once a line, in however many pieces it is read
                shown = line[:SHOWN_BYTES].decode("utf-8", "replace").rstrip()
                yield Found(number=number, form=form, line=shown)
                told = number
            ended = piece.endswith(b"\n")
            number += ended
            rest = b"" if ended else line[-ACROSS_BYTES:]


def judge(found: Sequence[Found], *, read: int, grown: int, refused: bool, number: int) -> CheckResult:
    """`read`: bytes of the log; `grown`: those among them since the first request; `number` is that of it. Pure."""
    measurements = (
        Measurement(name="lines_with_prompt", value=len(found), unit="lines", limit=0, ok=not found),
        Measurement(name="log_read", value=read, unit="bytes"),
        Measurement(name="log_grown", value=grown, unit="bytes"),
        Measurement(name="refused", value=int(refused), unit="requests"),
    )
    shown = [{"line": each.number, "form": each.form, "text": each.line} for each in found[:SHOWN_LINES]]
    if not read:
        message = "the server's log is empty, so nothing can be said of what it holds"
        return CheckResult(name=NAME, outcome="not_tested", message=message, measurements=measurements)
    if found:
        message = f"the text of a request stands in the server's log, in {len(found)} lines"
        return CheckResult(
            name=NAME, outcome="fail", message=message, measurements=measurements, request=number,
            detail={"found": shown},
        )  # fmt: skip
    message = f"the text of {3 if refused else 2} requests is nowhere in {read} bytes of log"
    return CheckResult(name=NAME, outcome="pass", message=message, measurements=measurements)
