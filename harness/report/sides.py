"""One side of a comparison: a run record, or the log of a server that was started elsewhere, without the harness."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import launches, loglines, triage
from harness.choices import Listener, Uneven
from harness.errors import UsageError
from harness.record import Launched, Run, load
from harness.report.cases import measured, verdict
from harness.report.text import one_line
from harness.runtimes import RUNTIMES
from harness.runtimes.base import Runtime
from harness.signature import Signature
from harness.timeline import Builder, Timeline
from harness.triage.sieve import Sieve

BEGINS = ("config", "begin")
"""The mark of an attempt to start."""
DEFAULT_RUNTIME = "vllm"

Facts = Mapping[str, tuple[str, ...]]
"""Words by name; most facts have one, a choice has all that were said of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    launch: str
    """Its name where the run has several: `cold`."""
    choices: Facts
    uneven: Uneven
    timeline: Timeline
    env: Facts | None = None
    """The recorded variables; None: nobody recorded them."""

    @property
    def came_up(self) -> bool:
        return self.timeline.ready is not None or any(p.name == "ready" and p.completed for p in self.timeline.phases)


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    name: str
    """As the command line has it."""
    what: str
    """One line: what it is."""
    runtime: Runtime
    servers: tuple[Server, ...]
    speaks_of: str = ""
    """The launch that the record speaks of."""
    facts: Mapping[str, Facts] = field(default_factory=dict)
    """By section: `flags`, `build`, `packages` …; a section that is not there cannot be known."""
    notes: tuple[str, ...] = ()
    """What a reader must know of its facts."""


def read(path: Path) -> Side:
    """A folder with a `run.json`, such a file, or the log of a server.

    Raises:
        UsageError: none of these, or one that cannot be read.
    """
    if path.is_dir() or path.suffix == ".json":
        return _of_run(path, load(path))
    if not path.is_file():
        raise UsageError(f"{path}: no such run or log", fix="name a folder under reports/, or the log of a server")
    return _of_log(path, RUNTIMES[DEFAULT_RUNTIME])


# --- a run


def _of_run(path: Path, run: Run) -> Side:
    folder = path if path.is_dir() else path.parent
    runtime = RUNTIMES.get(str(run.resolved.get("runtime")), RUNTIMES[DEFAULT_RUNTIME])
    started = [each for each in run.launches if each.argv or each.timeline.phases]
    return Side(
        name=str(path),
        what=one_line(" · ".join(filter(None, (run.title, run.build, run.version, run.node_class, verdict(run))))),
        runtime=runtime,
        servers=tuple(_server(each, folder / each.log, runtime) for each in started),
        speaks_of=run.launch,
        facts={name: facts for name, facts in _facts(run).items() if facts is not None},
        notes=tuple(_run_notes(folder, started)),
    )


def _server(launched: Launched, log: Path, runtime: Runtime) -> Server:
    """Choices anew from its log, where there is one: what an older harness did not listen to is no difference."""
    caches = set(runtime.cache_env(Path())) - set(runtime.env)
    heard = _heard(log, runtime)[0] if log.is_file() else None
    listened = heard if heard is not None and heard.choices else launched
    return Server(
        launch=launched.launch,
        choices=listened.choices,
        uneven=listened.uneven,
        timeline=launched.timeline,
        env=_words({name: value for name, value in launched.env.items() if name not in caches}),
    )


def _run_notes(folder: Path, started: list[Launched]) -> Iterator[str]:
    if not started:
        yield "no server was started"
    for each in started:
        if not (folder / each.log).is_file():
            yield f"{each.log} is not there: of the choices only those that were recorded are known"


def _facts(run: Run) -> dict[str, Facts | None]:
    resolved = run.resolved
    ends = {
        "verdict": verdict(run), "blame": run.blame, "exit": run.exit,
        "known": run.known.words if run.known else None,
    }  # fmt: skip
    return {
        "flags": _words({"model": resolved.get("model"), "revision": resolved.get("revision"), **_serve(resolved)}),
        "build": _words({"build": run.build, "version": run.version, "content": run.content, "under": list(run.under)}),
        "packages": _words(run.packages) or None,
        "node": _words({"class": run.node_class, **run.node}),
        "verdict": _words(ends),
        "signature": _signature(run.signature),
        "checks": dict(_checks(run)),
    }


def _serve(resolved: Mapping[str, Any]) -> Mapping[str, Any]:
    serve = resolved.get("serve")
    return serve if isinstance(serve, Mapping) else {}


def _signature(found: Signature | None) -> Facts:
    return _words({"id": found.id, "title": found.title, "phase": found.phase} if found else {})


def _checks(run: Run) -> Iterator[tuple[str, tuple[str, ...]]]:
    for check in run.checks:
        name = launches.case(check.name, check.launch)
        yield name, (check.outcome,)
        for value in check.measurements:
            yield f"{name}: {value.name}", (measured(value).removeprefix(one_line(value.name)).strip(),)


def _words(values: Mapping[str, Any]) -> Facts:
    """Every value as text, mappings taken apart (`speculative-config.method`); what is not there is left out."""
    return dict(_flat(values))


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, value in values.items():
        plain = value["repeat"] if isinstance(value, Mapping) and set(value) == {"repeat"} else value
        if isinstance(plain, Mapping):
            yield from _flat(plain, f"{before}{name}.")
        elif isinstance(plain, (list, tuple)) and all(isinstance(item, Mapping) for item in plain):
            yield from _flat({str(n): item for n, item in enumerate(plain)}, f"{before}{name}.")
        elif plain is not None and plain != "":
            yield f"{before}{name}", (plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False),)


# --- a log


def _of_log(path: Path, runtime: Runtime) -> Side:
    server, flags = _heard(path, runtime)
    if not server.choices and len(server.timeline.phases) <= 1:
        raise UsageError(
            f"{path} shows no start of a {runtime.name} server", fix="name the whole log, from its first line on"
        )
    with path.open("rb") as log:
        found = triage.read(log).signature
    facts = {"signature": _signature(found), **({"flags": _words(flags)} if flags is not None else {})}
    return Side(
        name=str(path),
        what=one_line(f"a log · {runtime.name} {', '.join(server.choices.get(runtime.name, ('of unknown version',)))}"),
        runtime=runtime,
        servers=(server,),
        facts=facts,
        notes=tuple(_log_notes(runtime, server, flags)),
    )


def _heard(path: Path, runtime: Runtime) -> tuple[Server, Mapping[str, Any] | None]:
    """The last attempt to start in a log, by the rules that a living server's log is read by; its flags."""
    builder, listener = Builder(runtime.marks, alone=True), Listener(runtime)
    flags: Mapping[str, Any] | None = None
    try:
        with path.open("rb") as log:
            for line in loglines.parse(Sieve(log, runtime.literals)):
                if (mark := builder.look(line)) and (mark.phase, mark.edge) == BEGINS:
                    builder, listener = Builder(runtime.marks, alone=True), Listener(runtime)
                    builder.look(line)
                    flags = runtime.accepted(line.text)
                listener.look(line)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", fix="name a log that this user may read") from error
    server = Server(launch="", choices=listener.choices, uneven=listener.uneven, timeline=builder.timeline())
    return server, flags


def _log_notes(runtime: Runtime, server: Server, flags: Mapping[str, Any] | None) -> Iterator[str]:
    if flags is not None:
        yield "of the flags it has only those that are no default"
    if runtime.name not in server.choices:
        yield "the engine's configuration does not stand in it, so what is said there is not compared"
    yield "its seconds are between the stamps of its lines, the first one is 0"
