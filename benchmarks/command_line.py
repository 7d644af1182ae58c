"""Seconds of `harness --help`, and of `harness validate` for 200 scenario files.

    python benchmarks/command_line.py [--files 200]

Rivals, in the same run: `pytest --help` for the first; for the second a process that reads the same files with PyYAML's
safe_load and checks them with the jsonschema package against the schema that `harness schema` prints. That rival gives
no line numbers, merges no variants and knows no flags.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RIVAL = """
import json, sys, yaml, jsonschema
validator = jsonschema.Draft202012Validator(json.load(open(sys.argv[1])))
for name in sys.argv[2:]:
    validator.validate(yaml.safe_load(open(name)))
"""


def seconds(argv: list[str], *, times: int = 5) -> float:
    """Median wall-clock seconds of a command."""
    taken = []
    for _ in range(times):
        begin = time.monotonic()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.monotonic() - begin)
    return statistics.median(taken)


def report(words: str, ours: float, name: str, rival: float) -> None:
    print(f"{words}: {ours:.2f} s; {name}: {rival:.2f} s; ratio {ours / rival:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200)
    count = parser.parse_args().files
    harness = [sys.executable, "-m", "harness"]
    report(
        "harness --help",
        seconds([*harness, "--help"]),
        "pytest --help",
        seconds([sys.executable, "-m", "pytest", "--help"]),
    )
    with tempfile.TemporaryDirectory() as temp:
        text = (ROOT / "scenarios" / "kimi_k3_dspark.yaml").read_text()
        files = [str(Path(temp) / f"s{n}.yaml") for n in range(count)]
        for n, file in enumerate(files):
            Path(file).write_text(text.replace("name: kimi-k3-dspark", f"name: kimi-k3-dspark-{n}"))
        schema = Path(temp) / "schema.json"
        schema.write_bytes(subprocess.run([*harness, "schema"], check=True, stdout=subprocess.PIPE).stdout)
        ours = seconds([*harness, "validate", *files], times=3)
        rival = seconds([sys.executable, "-c", RIVAL, str(schema), *files], times=3)
    report(f"harness validate, {count} files", ours, "PyYAML with jsonschema", rival)


if __name__ == "__main__":
    main()
