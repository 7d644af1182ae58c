"""The run record: `run.json` is the only truth, every report is rendered from it, later, elsewhere, again.

It is written atomically as the run goes, so a killed node leaves a readable record with `state: running`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from harness.baseline.samples import Night
from harness.checks.base import CheckResult
from harness.choices import Choices, Uneven
from harness.errors import Blame, NodeError, UsageError
from harness.masking import Masker
from harness.server.footprint import Footprint
from harness.signature import Signature
from harness.timeline import Timeline
from harness.xid import Xid

SCHEMA = 1
Verdict = Literal["PASS", "FAIL", "ERROR", "SKIP"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Teardown:
    """How the server was taken down, and the proof that nothing of it is left."""

    seconds: float
    steps: tuple[str, ...]
    """The signals sent, in order, each with its second: `SIGTERM leader +0.0s`."""
    survivors: tuple[str, ...] = ()
    """Descendants that still lived at the end, `pid name`; empty is the proof."""
    removed: tuple[str, ...] = ()
    """Shared memory, semaphores and temporary files of the server that we removed."""
    left: tuple[str, ...] = ()
    """What may be the server's and was not removed, or GPU memory that did not come back."""
    gpus_lost: str = ""
    """Why the GPUs could not be asked for their memory after the stop, though they could before it."""

    @property
    def held(self) -> tuple[str, ...]:
        """What keeps the next run from a clean node."""
        lost = (f"the GPUs cannot be read any more: {self.gpus_lost}",) if self.gpus_lost else ()
        return (*self.survivors, *(left for left in self.left if left.startswith("GPU")), *lost)


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFailure:
    """A failure that somebody reported, met by a run."""

    refs: tuple[str, ...]
    title: str
    """Of the signature that was met."""
    fixed: str | None = None
    """Where it is fixed: a release or a change."""
    builds: str = ""
    """The releases that have it: `>=0.29.0,<0.30.0`."""

    @property
    def words(self) -> str:
        """`vllm#54636, fixed in 0.30.0`."""
        return ", ".join((*self.refs, f"fixed in {self.fixed}" if self.fixed else "no fix known"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """One server of a run, from its spawn to the proof that nothing of it is left. Fields as in `Run`."""

    launch: str
    log: str
    other_build: str | None
    differing: tuple[str, ...] = ()
    argv: tuple[str, ...]
    env: Mapping[str, str]
    timeline: Timeline
    lifetime: float | None
    choices: Choices
    uneven: Uneven = field(default_factory=dict)
    exit: str | None
    teardown: Teardown | None
    memory: Mapping[str, Footprint]


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One scenario on one build: what was asked, what happened, and the verdict.

    Most scenarios launch one server. Where there are several (a cold and a warm start, one without speculation to
    compare with), these fields are those of the one that the verdict speaks of: the first that failed, else the last of
    the scenario's own; the others stand under `others`.
    """

    id: str
    """Name of the run's folder."""
    scenario: str
    variant: str | None
    resolved: Mapping[str, Any]
    """The scenario as it was run: variants, `--set` and `when` applied, paths absolute, secrets masked."""
    refs: tuple[str, ...]
    fingerprint: str
    """12 hex digits of the resolved scenario: the same digits, the same question."""
    build: str
    """As asked for: `release:0.32.0`."""
    node_class: str
    node: Mapping[str, Any]
    reproduce: str
    """The command that makes this run again."""
    started: str
    harness: str
    schema: int = SCHEMA
    meaning: str = ""
    """12 hex digits of what is asked, whatever it is called; two of one meaning on one build need not both be run."""
    content: str = ""
    """12 hex digits of what is in the build; the versions of its dependencies stand under `packages`."""
    attempt: str | None = None
    """Of a repeated run: `2/5` is the second of five."""
    state: Literal["running", "finished", "interrupted"] = "running"
    ended: str | None = None
    verdict: Verdict | None = None
    reason: str = ""
    """One sentence: why the verdict is not PASS, or what passed."""
    fix: str = ""
    """What to do, where that can be said."""
    blame: Blame | None = None
    launch: str = ""
    """Which server these fields are of, where there are several: `cold`, `warm`, `no speculation`."""
    log: str = "server.log"
    """Its log, in the run's folder."""
    other_build: str | None = None
    """Its build and version, where it is not the run's own."""
    differing: tuple[str, ...] = ()
    """Packages of which it then has other versions: `numpy 2.1.0 → 2.2.0`, from the run's own build to this one."""
    others: tuple[Launched, ...] = ()
    """The other servers, in their order."""
    version: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    revisions: Mapping[str, str] = field(default_factory=dict)
    """The resolved revision of every model that came from the hub."""
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    applied: tuple[str, ...] = ()
    steps: Mapping[str, float] = field(default_factory=dict)
    """Seconds of what came before the spawn: environment, weights, lease. Never start-up seconds."""
    timeline: Timeline = field(default_factory=Timeline)
    lifetime: float | None = None
    """Seconds from the spawn until the server ended, or we began to stop it."""
    choices: Choices = field(default_factory=dict)
    """What the server said it chose: attention back ends (target's, drafter's), KV layout, draft method …"""
    uneven: Uneven = field(default_factory=dict)
    """Choices that ranks made differently."""
    subject: Mapping[str, bool] = field(default_factory=dict)
    """Each word under `subject:`, and whether a line or an answer showed it on."""
    exit: str | None = None
    """How the leader ended: `exit 1`, `SIGKILL`; None: it ran until we stopped it."""
    checks: tuple[CheckResult, ...] = ()
    signature: Signature | None = None
    known: KnownFailure | None = None
    """The known failure that the signature is."""
    accepted: bool = False
    """Somebody said that its start-up times are the new normal (`harness baseline accept`)."""
    expected: bool = False
    """That failure is due here, and the run was asked to treat it so (`--known expected`): FAIL, but nothing new."""
    under: tuple[str, ...] = ()
    """Workarounds that the run was made with, each with what it removes: `edit of F in FILE, removes X`."""
    probe: bool = False
    """It is one of many builds that a bisection or a sweep tried: its times say nothing of what is normal."""
    wrappers: tuple[str, ...] = ()
    evidence: tuple[tuple[int, int], ...] = ()
    """First and last line, in server.log, of what the signature was read from."""
    quiet_seconds: float | None = None
    """After a hang: seconds without output and CPU use."""
    teardown: Teardown | None = None
    memory: Mapping[str, Footprint] = field(default_factory=dict)
    """What the server held: `before` the spawn, at `ready`, at `last` (before the stop), `after` the stop."""
    xids: tuple[Xid, ...] = ()
    """What the driver reported in the kernel's log from the lease to the end of the last teardown, of any GPU."""
    kernel_log: str = ""
    """Why Xids may be missing from that: `the kernel log cannot be read: …`; empty where no GPU was leased."""
    artifacts: tuple[str, ...] = ()
    """Files beside run.json."""
    nights: tuple[Night, ...] = ()
    """Runs before this one whose times are normal here, oldest first, as the history had them when this one ended."""

    @property
    def title(self) -> str:
        """`NAME` or `NAME[VARIANT]`: stable over nights, nodes and builds."""
        return f"{self.scenario}[{self.variant}]" if self.variant else self.scenario

    @property
    def launched(self) -> Launched:
        """The server that this record speaks of."""
        return Launched(**{name: getattr(self, name) for name in OF_A_LAUNCH})

    @property
    def launches(self) -> tuple[Launched, ...]:
        """All servers, this one last."""
        return (*self.others, self.launched)

    @property
    def own(self) -> tuple[Launched, ...]:
        """The scenario's own servers in the order of their starts; the last one was asked everything."""
        names = {"", *(self.resolved.get("starts") or ())}
        return tuple(each for each in self.launches if each.launch in names)


OF_A_LAUNCH = tuple(field.name for field in fields(Launched))
_ADAPTER: TypeAdapter[Run] = TypeAdapter(Run)


def save(run: Run, folder: Path, masker: Masker) -> None:
    """Write `run.json` atomically; every string in it goes through the masker."""
    text = json.dumps(masker.structure(_ADAPTER.dump_python(run, mode="json")), indent=1, ensure_ascii=False)
    # An undecodable byte of a log is a lone surrogate here, which UTF-8 cannot hold: written as its JSON escape.
    replace_text(folder / "run.json", text.encode("utf-8", "backslashreplace").decode() + "\n")


def load(path: Path) -> Run:
    """Read a `run.json`, or the one in a folder.

    Raises:
        UsageError: no such file, not a run record, or one of a newer schema.
    """
    file = path / "run.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema != SCHEMA:
            raise UsageError(
                f"{file} has schema {schema!r}, this harness reads {SCHEMA}", fix="use the harness it was made with"
            )
        return _asked_for_something(_ADAPTER.validate_python(data))
    except ValidationError as error:
        first = error.errors()[0]
        what = f"{file} is not a run record: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UsageError(what, fix="name a folder under reports/") from error
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{file} is not a readable run record: {error}", fix="name a folder under reports/") from error


def _asked_for_something(run: Run) -> Run:
    """A run whose scenario has the shape that reports and histories read.

    Raises:
        ValueError: it has another one.
    """
    starts, checks = run.resolved.get("starts"), run.resolved.get("checks")
    if not (starts is None or (isinstance(starts, list) and all(isinstance(start, str) for start in starts))):
        raise ValueError("`resolved.starts` is no list of names")
    if not (checks is None or isinstance(checks, dict)):
        raise ValueError("`resolved.checks` is no mapping")
    if wrong := [name for name, params in (checks or {}).items() if not isinstance(params, (dict, type(None)))]:
        raise ValueError(f"`resolved.checks.{wrong[0]}` is no mapping")
    return run


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """What goes wrong with the files of a report is the node's trouble, and said so."""
    try:
        yield
    except OSError as error:
        raise NodeError(
            f"the report {folder} cannot be written: {error}", fix="make room, or choose another --out"
        ) from error


def replace_text(file: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new one, never half of it, also after a crash."""
    part = file.with_name(f".{file.name}.part")
    with part.open("w", encoding="utf-8", errors="surrogateescape") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)
