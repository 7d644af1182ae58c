"""Words in, exit code out: 0 all pass, 1 failure, 2 usage or invalid scenario, 3 an error of ours, 130 interrupted.

Everything heavy is imported by the command that needs it, so that `harness --help` answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from harness import __version__, signals
from harness.commands import baseline, bisect, contracts, nightly, pipeline, probe, report, run, shrink, sweep
from harness.commands.words import amount, count, scenarios
from harness.errors import HarnessError, Interrupted, UnmetError, UsageError

if TYPE_CHECKING:
    from harness.node import Node
    from harness.scenario import Scenario
    from harness.signature import Signature


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
        return probe.ABORT if line[:1] == ["probe"] else 0  # but nothing was judged either
    except Exception:  # noqa: BLE001 - the outermost line: our own bug, never a mark on a build
        traceback.print_exc()
        return HarnessError.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="harness", description="Startup reproduction and regression testing of LLM servers."
    )
    parser.add_argument("--version", action="version", version=f"harness {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run.add(commands)
    _add_validate(commands)
    _add_triage(commands)
    _add_env(commands)
    report.add(commands)
    baseline.add(commands)
    bisect.add(commands)
    sweep.add(commands)
    probe.add(commands)
    contracts.add(commands)
    shrink.add(commands)
    pipeline.add(commands)
    nightly.add(commands)
    return parser


def _add_validate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    validate = commands.add_parser("validate", help="check scenario files, without GPU or network")
    scenarios(validate)
    validate.add_argument("--strict", action="store_true", help="warnings are errors too")
    validate.set_defaults(command=_validate)
    schema = commands.add_parser("schema", help="print the JSON Schema of scenario files, for editors")
    schema.add_argument("--nightly", action="store_true", help="of the file of `harness nightly`")
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
    prune.add_argument("--keep", type=count, metavar="N", help="all but the N last used")
    prune.add_argument("--older-than", type=amount, metavar="DAYS", help="those that were not used for so long")
    prune.set_defaults(command=_env_prune)


# --- commands


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
    from harness.nightly import config

    print(json.dumps(config.json_schema() if words.nightly else scenario.json_schema(), indent=2))
    return 0


def _list(words: argparse.Namespace) -> int:
    from harness import node, scenario

    del words
    here = node.describe()
    print(f"node: {here.node_class}, {node.words_of(len(here.gpus))}, {here.cpus} CPUs, {here.memory_mib >> 10} GiB")
    for remark in (*filter(None, [here.trouble]), *(gpu.unusable for gpu in here.gpus if gpu.unusable)):
        print(f"  {remark}")
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
