"""`harness contracts` against pylint on the same files, in one run: seconds, memory, findings, and how many are right.

    python benchmarks/contracts.py [BUILD_OR_PATH] [--minutes 15]

Both read the files in which the classes of contracts.yaml's hierarchies stand; ours also has to find them among all
others. Pylint is asked for its two messages alone. Its findings in classes of the hierarchies are
listed; `super-init-not-called` is right where the constructor really leaves something unset: there `dropped-argument`,
whose findings were checked by hand (docs/evidence), says so too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.commands.contracts import sources_of
from harness.contracts import checking, contracts_file
from harness.contracts.hierarchy import Classes, Klass
from harness.contracts.index import Index
from harness.contracts.reading import Sources

OURS = [sys.executable, "-m", "harness", "contracts"]
RIVAL = [sys.executable, "-m", "pylint"]
MESSAGES = "super-init-not-called,no-member"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", default="0.29.0")
    parser.add_argument("--minutes", type=float, default=15.0, help="given to pylint")
    words = parser.parse_args()
    contracts = contracts_file.load()
    sources = sources_of(words.build, contracts.package)
    print(f"{words.build}: {len(sources.names)} Python files")
    ours(words.build)
    with tempfile.TemporaryDirectory() as folder:
        rival(sources, Path(folder), words.minutes * 60)


def ours(build: str) -> None:
    for what, more in (("first", ["--fresh"]), ("again", [])):
        seconds, peak, printed = measured([*OURS, build, "--json", *more], dict(os.environ))
        found = json.loads(printed)["findings"]
        told = sum(each["rule"] in ("dropped-argument", "never-set") for each in found)
        print(f"harness, {what}: {seconds:.1f} s, {peak} MB, {len(found)} findings, {told} of the rules compared")


def rival(sources: Sources, folder: Path, within: float) -> None:
    """The rival over the files of the hierarchies, with the whole package beside them."""
    for name in sources.names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(sources.text(name))
    family = hierarchies(sources)
    files = sorted({each.file for each in family})
    argv = [*RIVAL, "--disable=all", f"--enable={MESSAGES}", "--output-format=json", "--jobs=2", *files]
    seconds, peak, printed = measured(argv, {**os.environ, "PYTHONPATH": str(folder)}, folder, within)
    if not printed:
        print(f"pylint: {len(files)} files, not done after {seconds:.0f} s")
        return
    dropping = {each.subject for each in checking.check(sources, contracts_file.load(), build="").findings}
    judged(json.loads(printed), family, dropping, f"{len(files)} files, {seconds:.1f} s, {peak} MB")


def hierarchies(sources: Sources) -> list[Klass]:
    classes = Classes(Index(sources))
    roots = (root for hierarchy in contracts_file.load().hierarchies for root in hierarchy.roots)
    return list({each.path: each for root in roots for each in classes.below(root)}.values())


def judged(rows: list[dict[str, object]], family: list[Klass], broken: set[str], lead: str) -> None:
    members = {(each.file, each.qualified): each.path for each in family}
    inside = [row for row in rows if (row["path"], _class(row)) in members]
    print(f"pylint: {lead}, {len(rows)} findings, {len(inside)} in classes of the hierarchies")
    for symbol in MESSAGES.split(","):
        told = [row for row in inside if row["symbol"] == symbol]
        right = [row for row in told if members[str(row["path"]), _class(row)] in broken]
        print(f"  {symbol}: {len(told)}, {len(right)} of them in a class with a finding of ours")
    for row in inside:
        print(f"    {row['path']}:{row['line']} {row['obj']} {row['symbol']}: {row['message']}")


def _class(row: dict[str, object]) -> str:
    """`Class` of `Class.method`, as pylint names where it is."""
    return str(row["obj"]).rpartition(".")[0]


def measured(
    argv: list[str], env: dict[str, str], folder: Path | None = None, within: float = 600.0
) -> tuple[float, int, str]:
    """Seconds, MB at most in one process, and what was printed; empty if it was not done in time."""
    begun = time.monotonic()
    try:
        done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, timeout=within, check=False)
        printed = done.stdout
    except subprocess.TimeoutExpired:
        printed = ""
    return time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, printed


if __name__ == "__main__":
    main()
