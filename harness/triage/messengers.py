"""Which exceptions only report that something failed elsewhere: a table. They never win over what failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from harness.triage.kinds import ANYTHING

Role = Literal["messenger", "collateral", "hang", "teardown"]
"""messenger: says that something failed · collateral: failed because a peer was gone · hang: waited for one that did
not answer · teardown: what a stop, or an end of the process, does to what was going on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MessengerRule:
    name: str
    role: Role
    exception: re.Pattern[str] = ANYTHING
    """On the class name without its module."""
    message: re.Pattern[str] = ANYTHING
    where: re.Pattern[str] = ANYTHING
    """On `file:function` of the deepest frame."""
    fatal: bool = False
    """True: it is only ever printed by a failure, so a log that holds nothing else is a failure too."""


MESSENGERS: tuple[MessengerRule, ...] = (
    MessengerRule(
        name="engine core failed", role="messenger", fatal=True,
        message=re.compile(r"Engine core initialization failed"),
    ),
    MessengerRule(
        name="worker failed", role="messenger", fatal=True,
        message=re.compile(r"WorkerProc initialization failed due to an exception"),
    ),
    MessengerRule(
        name="worker's message repeated", role="messenger", message=re.compile(r"Worker failed with error "), fatal=True
    ),
    MessengerRule(
        name="see elsewhere", role="messenger", fatal=True,
        exception=re.compile(r"^(?!EngineDeadError)"),
        message=re.compile(r"[Ss]ee (?:the )?(?:root cause|stack trace)"),
    ),
    MessengerRule(name="died unexpectedly", role="messenger", message=re.compile(r"died unexpectedly"), fatal=True),
    MessengerRule(
        name="executor failed", role="messenger", fatal=True,
        exception=re.compile(r"^RuntimeError$"), message=re.compile(r"^Executor failed\.$"),
    ),
    MessengerRule(
        name="ray actor died", role="messenger", fatal=True,
        exception=re.compile(r"^(?:RayActorError|ActorDiedError|WorkerCrashedError|ActorUnavailableError)$"),
    ),
    MessengerRule(
        name="a child failed", role="messenger", fatal=True,
        exception=re.compile(r"^(?:ChildFailedError|ProcessRaisedException|ProcessExitedException)$"),
    ),
    MessengerRule(
        name="scheduler is gone", role="messenger", fatal=True,
        message=re.compile(
            r"^(?:Initialization failed\. Please see the error messages above\.|Rank \d+ scheduler died)"
        ),
    ),
    # Printed by many a clean SIGTERM: no failure by itself.
    MessengerRule(name="engine is dead", role="messenger", exception=re.compile(r"^Engine(?:Dead|Generate)Error$")),
    MessengerRule(
        name="group of exceptions", role="messenger", exception=re.compile(r"^(?:Base)?ExceptionGroup$"), fatal=True
    ),
    MessengerRule(
        name="end of a task or process", role="teardown",
        exception=re.compile(r"^(?:CancelledError|KeyboardInterrupt|SystemExit|GeneratorExit|EOFError)$"),
    ),
    MessengerRule(
        name="link closed", role="teardown",
        exception=re.compile(r"^(?:BrokenPipeError|ConnectionResetError|ConnectionAbortedError)$"),
    ),
    MessengerRule(
        name="socket closed", role="teardown", exception=re.compile(r"^(?:ContextTerminated|ZMQError)$"),
        message=re.compile(r"^(?:Context was terminated|Socket operation on non-socket|Operation not supported)?$"),
    ),
    MessengerRule(
        name="cancelled", role="teardown",
        exception=re.compile(r"^(?:RuntimeError|Exception)$"), message=re.compile(r"^cancell?ed$"),
    ),
    MessengerRule(
        name="resource tracker", role="teardown", exception=re.compile(r"^KeyError$"),
        where=re.compile(r"resource_tracker\.py:main"),
    ),
    # A rank whose peer is gone fails in its next collective.
    MessengerRule(
        name="peer closed", role="collateral", fatal=True,
        message=re.compile(
            r"Connection closed by peer|[Cc]onnection reset by peer|remote process exited or there was a network error"
            r"|Connection was likely closed|Broken pipe|failed to recv, got 0 bytes|NCCL communicator was aborted"
            r"|Timed out waiting \d+ms for recv operation|wait timeout after \d+ms, keys:"
        ),
    ),
    MessengerRule(
        name="rpc timed out", role="hang", exception=re.compile(r"^TimeoutError$"),
        message=re.compile(r"RPC call to \w+ timed out"), fatal=True,
    ),
    MessengerRule(
        name="engine not ready in time", role="hang", exception=re.compile(r"^TimeoutError$"),
        message=re.compile(r"Timed out waiting for engine(?: core| process)"), fatal=True,
    ),
    MessengerRule(
        name="broadcast timed out", role="hang", exception=re.compile(r"^(?:TimeoutError|Empty)$"),
        where=re.compile(r"shm_broadcast\.py:"), fatal=True,
    ),
)  # fmt: skip

HARMLESS_LEVELS = frozenset({"DEBUG", "INFO", "WARNING"})
"""A traceback logged at these levels (an optional extension that does not load) is no failure by itself."""
HARMLESS_HEADER = re.compile(r"^Exception ignored (?:in|on|while)\b")
MISSING = re.compile(
    r"not (?:available|installed|importable)|(?:is|are) (?:required|needed|missing)"
    r"|could not be (?:imported|loaded|found)|cannot (?:import|find|load)|[Nn]o module named|[Pp]lease install"
)
"""An error that says this sends us to the harmless traceback about the same thing."""
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{4,}")
COMMON_WORDS = frozenset(
    word
    for line in (
        "error errors failed failure import imported importing module named could cannot model available installed",
        "required missing please install support supported using with from that this while when which symbol undefined",
        "version found load loaded library python file object function",
    )
    for word in line.split()
)
"""Words that two messages about different things share."""

UNWRAP = re.compile(r"Worker failed with error '(?P<inner>.*)', please check the stack trace", re.DOTALL)
"""The engine's copy of a worker's message: the cause, where the worker's own traceback is lost."""

ACCIDENTS = frozenset({"AttributeError", "UnboundLocalError", "NameError", "TypeError"})
"""Raised by nobody on purpose: during the handling of another exception, it is the handler that is broken."""
TRANSPORT = frozenset({"HTTPStatusError", "HTTPError"})
"""A library's word for an answer; what was raised from it says whose answer it was, with the status again."""
LOOKUPS = frozenset({"KeyError", "IndexError", "StopIteration", "AttributeError"})
"""Say which key was asked for; what was raised from them says what that means."""
