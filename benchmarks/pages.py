"""1,000 recorded runs merged into one JUnit file and one HTML page: seconds and peak memory, against junit2html.

    python benchmarks/pages.py [--runs 1000]

The runs are copies of real records (tests/records/h200) over ten nights, with their logs and reports beside them, as
runs leave them. The rival (extra `bench`) merges the same runs' junit.xml files and makes a page of them; it has no
trends, no groups of one failure, no links to runs. Prints both, the ratio, and fails above 10 s or 300 MB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import pages  # noqa: E402 - the tests' own nights

from harness import record, report  # noqa: E402
from harness.masking import Masker  # noqa: E402

RECORDED = {
    "pass-mla-drafter-0.30.0": "0.30.0-cuda-mini-mla-drafter-healthy",
    **{f"peel-{rung}-0.29.0": f"0.29.0-cuda-mini-peel-{rung}" for rung in (1, 2, 3, 4)},
}
"""Records, and the logs of their servers."""
MOST_SECONDS, MOST_MB = 10.0, 300.0
NIGHTS = 14


def recorded(out: Path, count: int) -> list[Path]:
    """Folders of so many runs: a hundred scenarios, night after night."""
    templates = [_template(name, out / "templates" / name) for name in RECORDED]
    return [_copy(*templates[at % len(templates)], out / "reports", at) for at in range(count)]


def _template(name: str, folder: Path) -> tuple[record.Run, Path]:
    run = replace(record.load(pages.RECORDS / f"{name}.json"), log="server.log")
    run = replace(run, nights=pages.nights(run, NIGHTS))
    folder.mkdir(parents=True)
    record.save(run, folder, Masker())
    shutil.copy(ROOT / "tests" / "logs" / "vllm" / f"{RECORDED[name]}.log", folder / "server.log")
    report.render(folder)
    return run, folder


def _copy(run: record.Run, template: Path, out: Path, at: int) -> Path:
    night = f"2026-11-{at // 100 + 1:02}T02:15:00.000+00:00"
    run = replace(run, id=f"{at:05}-{run.id}", scenario=f"{run.scenario}-{at % 100:03}", started=night)
    folder = out / run.id
    shutil.copytree(template, folder)
    record.save(run, folder, Masker())
    return folder


def measured(*argvs: list[str]) -> tuple[float, float]:
    """Wall-clock seconds of commands in a row, and the peak megabytes of the largest."""
    begin, peak = time.monotonic(), 0
    for argv in argvs:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, cwd=ROOT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, argv[:4]
        peak = max(peak, used.ru_maxrss)
    return time.monotonic() - begin, peak * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    count = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as temp:
        out = Path(temp)
        folders = recorded(out, count)
        merged, page = out / "all.xml", out / "all.html"
        argv = [
            sys.executable,
            "-m",
            "harness",
            "report",
            *map(str, folders),
            "--junit",
            str(merged),
            "--html",
            str(page),
        ]
        seconds, memory = measured(argv)
        rival = [sys.executable, "-m", "junit2htmlreport"]
        parts = [str(folder / "junit.xml") for folder in folders]
        theirs, their_memory = measured(
            [*rival, "--merge", str(out / "theirs.xml"), *parts],
            [*rival, str(out / "theirs.xml"), str(out / "theirs.html")],
        )
        sizes = [file.stat().st_size / 1e6 for file in (merged, page, out / "theirs.html")]
    print(f"{count} runs: {seconds:.1f} s, {memory:.0f} MB; JUnit {sizes[0]:.1f} MB, page {sizes[1]:.1f} MB")
    print(f"junit2html: {theirs:.1f} s, {their_memory:.0f} MB; page {sizes[2]:.1f} MB; ratio {seconds / theirs:.2f}")
    if seconds > MOST_SECONDS or memory > MOST_MB:
        sys.exit(f"more than {MOST_SECONDS:.0f} s or {MOST_MB:.0f} MB")


if __name__ == "__main__":
    main()
