"""Words in, exit code out: 0 all pass, 1 failure, 2 usage or invalid scenario, 3 an error of ours, 130 interrupted.

Everything heavy is imported by the command that needs it, so that `harness --help` answers at once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from harness import __version__, signals
from harness.commands import baseline, bisect, probe, sweep
from harness.errors import HarnessError, Interrupted, UnmetError, UsageError

if TYPE_CHECKING:
    from harness.build import Build
    from harness.events import OnEvent
    from harness.known import Step
    from harness.node import Node
    from harness.record import Run
    from harness.scenario import Scenario
    from harness.signature import Signature

WORST_FIRST = (130, 3, 2, 1, 0)


def main(argv: list[str] | None = None) -> int:
    line = sys.argv[1:] if argv is None else argv
    if line[:1] != ["probe"]:
        return _main(line)
    try:
        return probe.exit_code(_main(line))
    except SystemExit as error:  # how argparse says that it does not understand, or has printed its help
        raise SystemExit(error.code and probe.ABORT) from error


def _main(line: list[str]) -> int:
    words = _parser().parse_args(line)
    words.line = line
    command: Callable[[argparse.Namespace], int] = words.command
    try:
        with signals.interrupting():
            return command(words)
    except HarnessError as error:
        print(f"harness: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return Interrupted.exit_code
    except BrokenPipeError:
        # The reader of our output went away (`harness list | head`): nothing is wrong, and nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:  # noqa: BLE001 - the outermost line: our own bug, never a mark on a build
        traceback.print_exc()
        return HarnessError.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="harness", description="Startup reproduction and regression testing of LLM servers."
    )
    parser.add_argument("--version", action="version", version=f"harness {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_run(commands)
    _add_validate(commands)
    _add_triage(commands)
    _add_env(commands)
    _add_report(commands)
    baseline.add(commands)
    bisect.add(commands)
    sweep.add(commands)
    probe.add(commands)
    return parser


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser("run", help="start a scenario's server, check it, report", description="The job.")
    _scenarios(run)
    run.add_argument("--variant", help="a variant of the scenario (or write SCENARIO[VARIANT])")
    run.add_argument(
        "--build",
        default="current",
        help="release:0.30.0, source:PATH@REV, commit:SHA, lock:FILE, venv:PATH, tree:DIR; default: the server on PATH",
    )
    run.add_argument(
        "--set",
        dest="sets",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override, as in serve.max-model-len=512",
    )
    run.add_argument("--repeat", type=_positive, default=1, metavar="N", help="run N times; any failure is a failure")
    run.add_argument(
        "--peel", action="store_true", help="at a known failure launch again with its workaround, to see what is behind"
    )
    run.add_argument(
        "--known",
        choices=["expected"],
        help="a known failure is no news (exit 0, skipped in JUnit); its absence is one",
    )
    run.add_argument("--skip-unmet", action="store_true", help="SKIP, not ERROR, where this node cannot meet the needs")
    run.add_argument("--out", type=Path, default=Path("reports"), help="folder for the reports (default: reports)")
    run.add_argument(
        "--grace",
        type=_amount,
        default=8.0,
        metavar="SECONDS",
        help="for the teardown after an interruption (default: 8)",
    )
    run.set_defaults(command=_run)
    fetch = commands.add_parser("fetch", help="download, or check, the weights of a scenario")
    _scenarios(fetch)
    fetch.add_argument("--build", default="current")
    fetch.set_defaults(command=_fetch)


def _add_validate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    validate = commands.add_parser("validate", help="check scenario files, without GPU or network")
    _scenarios(validate)
    validate.add_argument("--strict", action="store_true", help="warnings are errors too")
    validate.set_defaults(command=_validate)
    schema = commands.add_parser("schema", help="print the JSON Schema of scenario files, for editors")
    schema.set_defaults(command=_schema)
    listing = commands.add_parser("list", help="the scenarios there are, and whether this node can run them")
    listing.set_defaults(command=_list)


def _add_triage(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    triage = commands.add_parser(
        "triage", help="the root cause in any server log", description="Exit 0: found; 1: none found."
    )
    triage.add_argument("logs", nargs="+", metavar="LOG", help="a file, or - for standard input")
    style = triage.add_mutually_exclusive_group()
    style.add_argument("--json", action="store_true", help="one JSON object a log")
    style.add_argument("--explain", action="store_true", help="the lines that were seen, and what each was taken for")
    triage.set_defaults(command=_triage)


def _add_env(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    env = commands.add_parser("env", help="builds made ready to run")
    actions = env.add_subparsers(metavar="ACTION", required=True)
    actions.add_parser("list", help="the environments in the cache").set_defaults(command=_env_list)
    add = actions.add_parser("add", help="make a build ready")
    add.add_argument("builds", nargs="*", metavar="BUILD")
    add.add_argument("--lock", type=Path, help="re-create the environment of a packages.lock")
    add.set_defaults(command=_env_add)
    prune = actions.add_parser("prune", help="remove environments that nobody uses")
    prune.add_argument("names", nargs="*", metavar="NAME", help="an environment, as `harness env list` names it")
    prune.add_argument("--all", action="store_true", help="every one that is not in use")
    prune.add_argument("--keep", type=_count, metavar="N", help="all but the N last used")
    prune.add_argument("--older-than", type=_amount, metavar="DAYS", help="those that were not used for so long")
    prune.set_defaults(command=_env_prune)


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser("report", help="render the reports of finished runs again, from their run.json")
    report.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a folder with a run.json")
    report.add_argument("--junit", type=Path, metavar="FILE", help="write one JUnit file for all of them")
    report.add_argument("--summary", type=Path, metavar="FILE", help="write one Markdown summary for all of them")
    report.set_defaults(command=_report)


def _scenarios(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="a file, or a name in scenarios/")


def _positive(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least 1")
    return int(word)


def _count(word: str) -> int:
    if not (word.isascii() and word.isdecimal()):
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least 0")
    return int(word)


def _amount(word: str) -> float:
    """A number of seconds or days: not below 0, and finite."""
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of at least 0")
    return value


# --- commands


def _load(words: argparse.Namespace) -> list[Scenario]:
    """Every scenario that the command line names, with its variant and overrides applied."""
    from harness import scenario

    loaded = []
    for word in words.scenarios:
        path, variant = scenario.find(word)
        chosen = getattr(words, "variant", None)
        if variant and chosen and variant != chosen:
            raise UsageError(f"{word} names variant {variant}, --variant names {chosen}", fix="name it once")
        loaded.append(scenario.load(path, variant=variant or chosen, sets=tuple(getattr(words, "sets", ()))))
    return loaded


def _run(words: argparse.Namespace) -> int:
    from harness import build, known, view

    if words.peel and words.repeat > 1:
        raise UsageError("--peel and --repeat do not go together", fix="peel once, then repeat what is behind")
    chosen = build.parse(words.build)
    loaded = _load(words)  # all of them, before the first one starts: a typo in the last must not cost an hour
    for scenario in loaded:
        known.beside(scenario.path)
    ladders: list[list[Run]] = []
    with view.choose(sys.stdout) as show:
        for scenario in loaded:
            for number in range(1, words.repeat + 1):
                attempt = f"{number}/{words.repeat}" if words.repeat > 1 else None
                ladders.append(_rungs(scenario, chosen, words, show, attempt=attempt))
    runs = [run for rungs in ladders for run in rungs]
    for run in runs:
        print(view.closing(run, words.out / run.id))
    if words.repeat > 1:
        print("\n".join(view.tally(runs)))
    if words.peel:
        print("\n".join(line for rungs in ladders for line in (f"{rungs[0].title}:", *view.ladder(rungs))))
    return _worst(_code(rungs[0]) for rungs in ladders)  # what is behind a failure is news, not a second failure


def _code(run: Run) -> int | None:
    return 0 if run.expected else {"PASS": 0, "FAIL": 1, "ERROR": 3}.get(run.verdict or "ERROR")


def _rungs(
    scenario: Scenario, chosen: Build, words: argparse.Namespace, show: OnEvent, *, attempt: str | None
) -> list[Run]:
    """One run; with `--peel` one more under each workaround that it takes to get past known failures."""
    from harness import known

    def launch(under: tuple[Step, ...]) -> Run:
        return _execute(scenario, chosen, words, show, attempt=attempt, under=under)

    return list(known.peel(launch, known.beside(scenario.path))) if words.peel else [launch(())]


def _execute(
    scenario: Scenario,
    chosen: Build,
    words: argparse.Namespace,
    show: OnEvent,
    *,
    attempt: str | None,
    under: tuple[Step, ...],
) -> Run:
    from harness import run

    return run.execute(
        scenario,
        build=chosen,
        out=words.out,
        sets=tuple(words.sets),
        on_event=show,
        grace=words.grace,
        skip_unmet=words.skip_unmet,
        attempt=attempt,
        handling=run.Handling(expected=words.known == "expected", under=under, peel=bool(under)),
    )


def _fetch(words: argparse.Namespace) -> int:
    from harness import build, environment, launch, node, weights

    here = node.read()
    provided = environment.provide(build.parse(words.build), here, on_step=print)
    for scenario in _load(words):
        resolved, _ = scenario.apply_when(provided.version)
        given, _ = launch.scenario_env(resolved, os.environ)
        for got in weights.fetch(resolved, provided, {**os.environ, **given}, seconds=resolved.budgets.download):
            print(f"{scenario.name}: {got.model} {got.revision or 'local folder'}")
    return 0


def _validate(words: argparse.Namespace) -> int:
    from harness import known, scenario

    problems: list[str] = []
    for word in words.scenarios:
        path, variant = scenario.find(word)
        if path.name == known.KNOWN_FAILURES:
            print(f"{path}: ok, {len(known.load(path).entries)} known failures")
            continue
        file = scenario.load_file(path)
        names = [variant] if variant else [None, *file.variants]
        warnings = [w for name in names for w in scenario.warnings(scenario.load(path, variant=name))]
        print("\n".join([f"{path}: ok, {len(names)} of {len(file.variants) + 1} variants", *dict.fromkeys(warnings)]))
        problems += warnings
    if problems and words.strict:
        raise UsageError(
            f"{len(problems)} warnings, and --strict makes them errors", fix="correct them, or leave --strict out"
        )
    return 0


def _schema(words: argparse.Namespace) -> int:
    from harness import scenario

    del words
    print(json.dumps(scenario.json_schema(), indent=2))
    return 0


def _list(words: argparse.Namespace) -> int:
    from harness import node, scenario

    del words
    here = node.read()
    print(f"node: {here.node_class}, {len(here.gpus)} GPUs, {here.cpus} CPUs, {here.memory_mib >> 10} GiB")
    for path in scenario.available():
        for name in (None, *scenario.load_file(path).variants):
            loaded = scenario.load(path, variant=name)
            print(f"{loaded.title:<40} {loaded.needs.words:<24} {_able(loaded, here)}")
    return 0


def _able(loaded: Scenario, here: Node) -> str:
    from harness import node

    try:
        node.check_needs(here, gpus=loaded.needs.gpus, gpu_memory_gib=loaded.needs.gpu_memory_gib)
    except UnmetError as error:
        return error.what
    return "can run here"


def _triage(words: argparse.Namespace) -> int:
    from harness import triage

    many, found = len(words.logs) > 1, 0
    seen: list[tuple[str, Signature]] = []
    for name in words.logs:
        with _log(name) as log:
            read = triage.read(log)
        found += read.signature is not None
        if words.json:
            row = triage.to_json(read)
            print(json.dumps({"file": name, **row} if many else row))
            continue
        print(triage.to_text(read, name=name if many else None))
        if words.explain:
            print(triage.to_reasons(read))
        if read.signature:
            alike = (other for other, signature in seen if triage.similar(signature, read.signature))
            for other in alike:
                print(triage.visible(f"  similar to {other}, not the same"))
            seen.append((name, read.signature))
    return 0 if found else 1


def _log(name: str) -> AbstractContextManager[BinaryIO]:
    if name == "-":
        return nullcontext(sys.stdin.buffer)
    if not Path(name).is_file():
        raise UsageError(f"{name}: no such log file", fix="name a file, or - for standard input")
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}", fix="name a log that this user may read") from error


def _env_list(words: argparse.Namespace) -> int:
    from harness import environment

    del words
    for one in environment.list_environments(environment.cache_root()):
        state = "in use" if one.in_use else "ready" if one.complete else "incomplete"
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.used)) if one.complete else "never"
        print(f"{one.name:<36} {one.build:<24} {state:<10} {one.own_bytes / 1e6:7.0f} MB of its own, used {used}")
    return 0


def _env_add(words: argparse.Namespace) -> int:
    from harness import build, environment, node

    if not words.builds and not words.lock:
        raise UsageError("nothing to add", fix="name a build, such as release:0.32.0, or --lock FILE")
    here = node.read()
    wanted = [(build.parse(word), None) for word in words.builds]
    if words.lock:
        wanted.append((environment.from_lock(words.lock), words.lock))
    for each, lock in wanted:
        provided = environment.provide(each, here, on_step=print, lock=lock)
        print(f"{each} is ready: {' '.join(provided.command)}")
    return 0


def _env_prune(words: argparse.Namespace) -> int:
    from harness import environment

    older = words.older_than * 86400 if words.older_than is not None else None
    chosen = bool(words.names or words.all or words.keep is not None or older is not None)
    done = environment.prune(
        environment.cache_root(), names=words.names, everything=words.all, keep=words.keep, older_than=older
    )
    print(
        "\n".join(
            [*(f"removed {n}" for n in done.removed), *(f"kept {n}: in use" for n in done.in_use)]
            or ["nothing removed"]
        )
    )
    print(f"{done.freed_bytes / 1e6:.0f} MB freed")
    if not chosen:
        print("only half-built environments were looked for; name others, or give --all, --keep N or --older-than DAYS")
    return 0


def _report(words: argparse.Namespace) -> int:
    from harness import report

    for folder in words.runs:
        print("\n".join(str(folder / name) for name in report.render(folder)))
    if words.junit:
        report.write_junit(words.runs, words.junit)
    if words.summary:
        report.write_summary(words.runs, words.summary)
    return 0


def _worst(codes: Iterable[int | None]) -> int:
    """The worst of several outcomes; None is a SKIP, and a call in which nothing ran is an error."""
    ran = [code for code in codes if code is not None]
    return next((code for code in WORST_FIRST if code in ran), HarnessError.exit_code)
