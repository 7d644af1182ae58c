"""`harness contracts`: what is broken between the classes of a build, read from its sources."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import BuildError, UsageError

if TYPE_CHECKING:
    from harness.contracts.accepted import Baseline
    from harness.contracts.model import Report
    from harness.contracts.reading import Sources


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "contracts",
        help="static contracts of a build's sources: no GPU, nothing is imported",
        description="Exit 0: nothing new; 1: findings that no baseline accepts; 3: files unread.",
    )
    parser.add_argument(
        "build", metavar="BUILD_OR_PATH", help="a build, a wheel, an environment or a folder of sources"
    )
    parser.add_argument("--json", action="store_true", help="one object, for programs")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit file, a case for each finding")
    parser.add_argument("--contracts", type=Path, metavar="FILE", help="another contracts.yaml than the one for vLLM")
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="accepted findings; default: those for vLLM")
    parser.add_argument(
        "--accept", action="store_true", help="add what is new to the --baseline, which may be a new file"
    )
    parser.add_argument("--fresh", action="store_true", help="read the sources again, even if they were read before")
    parser.set_defaults(command=_contracts)


def _contracts(words: argparse.Namespace) -> int:
    from harness import record
    from harness.contracts import contracts_file, keeping, rendering

    if words.accept and not words.baseline:
        raise UsageError("--accept needs a file to write to", fix="name it with --baseline FILE")
    if words.accept and (words.json or words.junit):
        raise UsageError("--accept reports nothing", fix="leave --json and --junit out, and ask again afterwards")
    contracts = contracts_file.load(words.contracts) if words.contracts else contracts_file.load()
    baseline = _baseline(words)
    sources = sources_of(words.build, contracts.package)
    report = keeping.report(sources, contracts, build=words.build, fresh=words.fresh)
    if not any(report.classes.values()) and (contracts.hierarchies or not contracts.imports):
        raise BuildError(
            f"{words.build} has none of the classes that hierarchies begin with: nothing was checked",
            fix=f"name sources of {contracts.package}, or say with --contracts FILE what theirs begin with",
        )
    if words.accept:
        return _accept(words.baseline, baseline, report)
    if words.json:
        print(json.dumps(rendering.as_json(report, baseline), indent=2))
    else:
        print("\n".join(rendering.as_text(report, baseline)))
    if words.junit:
        with record.writable(words.junit.parent):
            words.junit.parent.mkdir(parents=True, exist_ok=True)
            record.replace_text(words.junit, rendering.as_junit(report, baseline))
    if report.unread:  # whatever is broken in them was not seen
        return BuildError.exit_code
    return 1 if rendering.new(report, baseline) else 0


def _baseline(words: argparse.Namespace) -> Baseline:
    from harness.contracts import accepted

    if words.baseline is None:
        # What is accepted of vLLM says nothing of another package.
        return accepted.NOTHING if words.contracts else accepted.load()
    return accepted.NOTHING if words.accept and not words.baseline.exists() else accepted.load(words.baseline)


def _accept(file: Path, baseline: Baseline, report: Report) -> int:
    from harness import record
    from harness.contracts import accepted, rendering

    with record.writable(file.parent):
        count = accepted.write(file, baseline, rendering.new(report, baseline))
    print(f"{count} findings added to {file}; write there why each of them is accepted")
    return 0


def sources_of(word: str, package: str) -> Sources:
    """The sources that a word of the command line names: a path that is there, else a build."""
    from harness import build
    from harness.contracts import fetching, reading

    path = Path(word).expanduser()
    if path.exists():
        return reading.at(path, package)
    if path.suffix == ".whl" or word.startswith((".", "/", "~")):
        raise UsageError(f"{word}: no such file or folder", fix="name a wheel, an environment, a folder or a build")
    return fetching.of_build(build.parse(word), package, on_step=lambda text: print(text, file=sys.stderr))
