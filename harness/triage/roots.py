"""Which of a log's tracebacks are causes, and which only report one. Pure; what it knows stands in `messengers.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.triage.identify import headline_of, kind_of, own_place
from harness.triage.kinds import PLAIN
from harness.triage.layouts import Traceback
from harness.triage.messengers import (
    ACCIDENTS,
    COMMON_WORDS,
    HARMLESS_HEADER,
    HARMLESS_LEVELS,
    LOOKUPS,
    MESSENGERS,
    MISSING,
    TRANSPORT,
    WORD,
    MessengerRule,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sorted:
    """One traceback, or one link of a chain, and what it was taken for."""

    block: Traceback
    role: str
    """root, messenger, collateral, hang, teardown, harmless, request (one that failed, the server goes on), or link: of
    a chain whose other link is the cause."""
    rule: str
    """What said so."""
    fatal: bool = False


def sort(blocks: Sequence[Traceback], *, shutdown: int | None, stops: Sequence[tuple[int, int]] = ()) -> list[Sorted]:
    """Every link of every chain with its role, in the order of the log.

    `shutdown`: the line from which on the server was told to stop; what fails after it is noise. `stops`: the same of
    earlier attempts, each up to the next start.
    """
    rows: list[Sorted] = []
    harmless = [block for block in blocks if _harmless(block)]
    for block in blocks:
        if _harmless(block):
            rows.append(Sorted(block=block, role="harmless", rule=f"logged as {block.level or block.header[:40]}"))
            continue
        root = root_of(block)
        rows.append(_judged(root, shutdown, stops))
        rows += [
            Sorted(block=link, role="link", rule="of the same chain") for link in block.chain() if link is not root
        ]
    return _with_missing(rows, harmless)


def _judged(block: Traceback, shutdown: int | None, stops: Sequence[tuple[int, int]]) -> Sorted:
    if (rule := messenger(block)) is not None:
        return Sorted(block=block, role=rule.role, rule=rule.name, fatal=rule.fatal)
    stopping = any(begin < block.first < end for begin, end in stops)
    if stopping or (shutdown is not None and block.first > shutdown):
        return Sorted(block=block, role="teardown", rule="after the server was told to stop")
    if (block.phase or "").startswith("checks") and of_a_request(block):
        return Sorted(block=block, role="request", rule="one request failed in the API server")
    return Sorted(block=block, role="root", rule="no messenger")


def of_a_request(block: Traceback) -> bool:
    """Whether the API server raised it for one request, and not the engine or a worker."""
    own = own_place(block)
    return (
        block.process in (None, "APIServer")
        and own is not None
        and own.file.startswith(("vllm/entrypoints/", "vllm/renderers/"))
    )


def _harmless(block: Traceback) -> bool:
    return block.level in HARMLESS_LEVELS or HARMLESS_HEADER.match(block.header) is not None


def messenger(block: Traceback) -> MessengerRule | None:
    where = f"{block.frames[-1].file}:{block.frames[-1].function}" if block.frames else ""
    return next(
        (
            r for r in MESSENGERS
            if r.exception.search(block.name) and r.message.search(block.text) and r.where.search(where)
        ),
        None,
    )  # fmt: skip


def is_messenger(name: str, message: str) -> bool:
    """Whether an exception without a stack only reports another."""
    return any(
        rule.exception.search(name) and rule.message.search(message) and not rule.where.pattern for rule in MESSENGERS
    )


def root_of(block: Traceback) -> Traceback:
    """Walk a chain from the exception that was raised last to the one that matters.

    >   GatedRepoError ─ direct cause ─▶ OSError                 the first: it was raised for what happened
    >   KeyError: 'x' ─ direct cause ─▶ ValueError: unknown x    the second, which says what the key means
    >   ImportError ─ during handling ─▶ RuntimeError: …         the second, which was raised on purpose
    >   OSError ─ during handling ─▶ AttributeError              the first: the handler is broken too
    >   OutOfMemoryError ─ during handling ─▶ InductorError      the first, whose kind says more
    """
    root = block
    for link in block.chain():
        inner = link.before
        if inner is not None and messenger(inner) is None and _beats(inner, root, link.link):
            root = inner
    return root


def _beats(inner: Traceback, outer: Traceback, link: str | None) -> bool:
    if messenger(outer) is not None:
        return True
    says_more = _kind(inner) not in PLAIN and _kind(outer) in PLAIN
    if inner.name in TRANSPORT and _kind(outer) == _kind(inner):
        return False
    if link == "cause":
        return says_more or not (inner.name in LOOKUPS and len(outer.text) > len(inner.text))
    return says_more or (outer.name in ACCIDENTS and inner.name not in ACCIDENTS | LOOKUPS)


def _kind(block: Traceback) -> str:
    return kind_of(block.name, headline_of(block.text), own_place(block))


def _with_missing(rows: list[Sorted], harmless: list[Traceback]) -> list[Sorted]:
    """An error that says that something is missing sends us to the harmless traceback about that very thing."""
    first = next((row for row in rows if row.role == "root"), None)
    if first is None or not MISSING.search(first.block.text):
        return rows
    wanted = _words(first.block.text)
    earlier = (block for block in harmless if block.first < first.block.first)
    cause = next((b for b in earlier if any(word in f"{b.text} {b.header}".lower() for word in wanted)), None)
    if cause is None:
        return rows
    rule = "the error that followed says that this is missing"
    moved = Sorted(block=cause, role="root", rule=rule)
    told = Sorted(block=first.block, role="messenger", rule=rule, fatal=True)
    return [moved, *(told if row is first else row for row in rows if row.block is not cause)]


def _words(text: str) -> set[str]:
    return {word for word in WORD.findall(text.lower()) if word not in COMMON_WORDS}
