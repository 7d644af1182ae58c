"""The identity of a cause: its kind, its message without volatile parts, its id and its title. Pure.

Also the signatures that no log line gives: a hang, a kill, a failed check.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal

from harness.errors import Blame
from harness.signature import Frame, Kind, Signature
from harness.triage.kinds import BLAME, CLEAR, DUMPED_SIGNALS, KINDS, OWN_SIGNALS
from harness.triage.layouts import Traceback
from harness.triage.wording import (
    ASYNCHRONOUS,
    GENERIC,
    GROUPING,
    HEADLINES,
    NORMALISE,
    OWN_PACKAGES,
    PLUMBING,
    PYDANTIC,
    SHAPES,
    Replacement,
)

LONGEST = 4000
"""Characters of a message that are kept."""
MOST_OF_MESSAGE = 8000
"""Characters of a message in which its sentence is looked for."""
LONG_TITLE = 160
LONGEST_HEADLINE = 1000
"""Characters of a sentence that are read for its kind and its identity."""
SHORT_SENTENCE = 40
"""Characters: what ends before is no sentence but an abbreviation."""
LONGEST_TITLE = 300
HALF_QUOTED = re.compile(r"^(KeyError: )(?:\"(?!.*\"$)|'(?!.*'$))")
"""A KeyError prints its sentence in quotes; where the end of it is left out, the first quote goes too."""


def normalise(message: str) -> str:
    """A message without its volatile parts; see the table for what goes and what stays."""
    return _rewritten(message, NORMALISE).strip()


def _rewritten(text: str, table: tuple[tuple[re.Pattern[str], Replacement], ...]) -> str:
    for pattern, replacement in table:
        text = pattern.sub(replacement, text)
    return text


def make(
    *,
    kind: Kind,
    message: str,
    exception: str | None = None,
    headline: str | None = None,
    frames: tuple[Frame, ...] = (),
    function: str | None = None,
    library: str | None = None,
    process: str | None = None,
    phase: str | None = None,
    title: str | None = None,
    title_prefix: str | None = None,
    note: str = "",
    confidence: float = 1.0,
) -> Signature:
    said = normalise((headline if headline is not None else message)[:LONGEST_HEADLINE])
    normalised = _rewritten(said, SHAPES)
    generic = GENERIC.fullmatch(normalised) is not None
    identity = [GROUPING, kind, exception, normalised, (function, library) if generic else None]
    told = exception is None or message.startswith(exception) or (exception.startswith("SIG") and exception in message)
    words = title_prefix or ("" if told else f"{exception}: ")
    sentence = (words + said).rstrip(": ")
    return Signature(
        id=hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12],
        kind=kind,
        exception=exception,
        message=message[:LONGEST],
        normalised=normalised,
        frames=frames,
        process=process,
        phase=phase,
        ranks=None,
        title=title or (_clip(sentence) + (f" ({function})" if function else note)),
        confidence=confidence,
        grouping=GROUPING,
    )


def _clip(text: str) -> str:
    """One sentence: of a long message the first, its advice left to the message."""
    if len(text) > LONG_TITLE and (end := text.find(". ", SHORT_SENTENCE)) > 0:
        text = text[:end]
    text = text if len(text) <= LONGEST_TITLE else text[: LONGEST_TITLE - 1] + "…"
    return HALF_QUOTED.sub(r"\1", text)


def of_traceback(block: Traceback, phase: str | None) -> Signature:
    frames = _order(block)
    own = own_place(block)
    function = own or (frames[0] if frames else None)
    headline = headline_of(block.text)
    exception = DUMPED_SIGNALS.get(headline, block.name)
    kind = kind_of(exception, headline, own)
    # Whoever calls next reports it: the function is where it was noticed, and no part of its identity.
    trusted = kind != "cuda_error" or not ASYNCHRONOUS.search(block.text)
    name = function.function if function and trusted else None
    return make(
        kind=kind,
        exception=exception,
        message=block.text,
        headline=headline,
        frames=frames,
        function=name,
        library=_library(block) if name else None,
        process=block.process,
        phase=phase or block.phase,
        note="" if trusted else " (asynchronous: its stack is not to be trusted)",
        confidence=1.0 if trusted else 0.6,
    )


def of_cut(block: Traceback, phase: str | None) -> Signature:
    """Of a traceback whose exception is cut off: its function is all that is known."""
    frames = _order(block)
    function = own_place(block) or frames[0]
    return make(
        kind="other", message="the log ends inside a traceback", frames=frames, function=function.function,
        process=block.process, phase=phase or block.phase, confidence=0.2,
    )  # fmt: skip


def _deepest_first(block: Traceback) -> list[Frame]:
    return [Frame(function=f.function, file=_short(f.file), line=f.line) for f in reversed(block.frames)]


def _order(block: Traceback) -> tuple[Frame, ...]:
    """The deepest frame, then the server's own from the deepest up, then the libraries'."""
    deep = _deepest_first(block)
    own = [f for f in deep[1:] if _own(f.file)]
    return tuple(deep[:1] + own + [f for f in deep[1:] if not _own(f.file)])


def _own(file: str) -> bool:
    return file.split("/", 1)[0] in OWN_PACKAGES


def _library(block: Traceback) -> str | None:
    """The deepest function of an installed package that is not the server's: it tells which file was no JSON."""
    others = (f for f in reversed(block.frames) if "-packages/" in f.file and not _own(_short(f.file)))
    return next((f.function for f in others if f.function not in PLUMBING), None)


def own_place(block: Traceback) -> Frame | None:
    """The deepest frame in the server's own code."""
    return next((f for f in _deepest_first(block) if _own(f.file) and f.function not in PLUMBING), None)


def _short(file: str) -> str:
    """A path from its package on, so that it is the same on every node."""
    for mark in ("site-packages/", "dist-packages/"):
        if mark in file:
            return file.rsplit(mark, 1)[1]
    if found := re.search(r"/lib/python3\.\d+/(.*)", file):
        return found[1]
    for package in OWN_PACKAGES:
        if f"/{package}/" in file:
            return f"{package}/" + file.rsplit(f"/{package}/", 1)[1]
    return file.rsplit("/", 1)[-1] if file.startswith("/") else file


def headline_of(message: str) -> str:
    """The sentence of a message of many lines."""
    return _sentence(message[:MOST_OF_MESSAGE])[:LONGEST_HEADLINE]


def _sentence(message: str) -> str:
    first = message.split("\n", 1)[0]
    for says_nothing, where in HEADLINES:
        if says_nothing.match(first) and (found := where.match(message)) and found["said"].strip():
            lines = (line.strip().removeprefix("Value error, ") for line in PYDANTIC.sub("", found["said"]).split("\n"))
            words = [line for line in lines if line]
            said = " ".join(word if word[-1] in ".:;,!?)" else f"{word}:" for word in words[:-1])
            return f"{said} {words[-1]}".strip()
    return first


def kind_of(name: str, headline: str, own: Frame | None) -> Kind:
    where = f"{own.file}:{own.function}" if own else ""
    return next(
        r.kind for r in KINDS if r.exception.search(name) and r.message.search(headline) and r.where.search(where)
    )


def usage(message: str, phase: str | None) -> Signature:
    """Of a command line that was refused."""
    return make(
        kind="cli_usage", message=message, headline=headline_of(message), title_prefix="usage error: ", phase=phase
    )


def bare(
    message: str,
    *,
    process: str | None,
    phase: str | None,
    confidence: float,
    exception: str | None = None,
    kind: Kind = "other",
) -> Signature:
    """Of a message without a stack; its words say the kind where nobody else does."""
    found = kind_of(exception or "", message, None) if kind == "other" else kind
    kind = "other" if found == "python_exception" else found
    return make(kind=kind, exception=exception, message=message, process=process, phase=phase, confidence=confidence)


# --- signatures that no log line gives


def hang(phase: str, reason: str, *, process: str | None = None) -> Signature:
    """No progress in `phase`.

    `reason` is the budget that ran out (`silence`, `startup`, `request`), or `peer`: the log itself says that a process
    waited for another, and `process` is the one that says so.
    """
    said = {
        "silence": "no output and no CPU use",
        "startup": "not ready within the startup budget",
        "request": "a request got no answer within its budget",
        "peer": "a process waited for one that did not answer",
    }.get(reason, reason)
    return make(kind="hang", message=f"{said}, in {phase}", title=f"hang: {said}", process=process, phase=phase)


def killed(how: str, phase: str) -> Signature:
    """The leader ended as `how` says (`SIGKILL`, `exit 0`, `exit 137`) and no log line says why."""
    if name := signal_of(how):
        message = f"the server was killed by {name}"
        return make(kind="killed_signal", exception=name, message=message, title=message, phase=phase)
    message = f"the server ended by itself with {how}, and its log does not say why"
    return make(kind="other", message=message, title=message, phase=phase, confidence=0.3)


def check_failed(name: str, message: str) -> Signature:
    """A check's limit was broken, or its answer was wrong. Numbers that move from night to night are not in the id."""
    # 0.12, 0.123 and 1234 are words of three kinds to `normalise`: here they are one.
    stable = re.sub(r"-?(?:\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b|<(?:number|count)>(?:\.\d+)?)", "<n>", normalise(message))
    return make(
        kind="check_failed",
        message=message,
        headline=f"{name}: {stable}",
        title=f"check {name}: {stable}",
        phase="checks",
    )


def blame(signature: Signature) -> Blame:
    """Whose fault: the kind's, except for the signals that a program gives itself and what its words make clear."""
    if signature.kind == "killed_signal" and signature.exception in OWN_SIGNALS:
        return "product"
    clear = (rule.blame for rule in CLEAR if rule.kind == signature.kind and rule.message.search(signature.normalised))
    return next(clear, BLAME[signature.kind])


def signal_of(how: str) -> str | None:
    if how.startswith("SIG"):
        return how
    code = int(found[1]) if (found := re.fullmatch(r"exit (-?\d+)", how)) else 0
    return signal_name(signal_in(code)) if signal_in(code) else None


def signal_in(code: int) -> int:
    """The signal in an exit code: negative as Python says it, 128 + n as a shell does; 0 where there is none."""
    return -code if code < 0 else code - 128 if 128 < code <= 128 + 64 else 0  # noqa: PLR2004 - a shell's 128 + signal


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
