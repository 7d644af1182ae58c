"""Triage of a 1 GB log: seconds and peak memory on one core, against `grep -c Error` on the same file in one run.

    python benchmarks/triage.py [--megabytes 1000]

Three logs, each a real start that crashed (tests/logs/vllm) around what makes it big:

    busy      a server that answered requests for days, then crashed: nearly all of it is access lines
    crashing  every request fails with a traceback of its own, for 1 GB
    restarts  something started the server again and again, and every start crashed

The rival counts lines; it does not say why. Prints seconds, CPU seconds, peak MiB and the ratio. Then, for lines made
to hurt regular expressions, the CPU seconds of twice as much text over those of once: 2 is linear.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SAMPLE = ROOT / "tests" / "logs" / "vllm" / "0.29.0-cuda-tp2-replayssm-noprefixcache.log"
ACCESS = (
    "(APIServer pid=4200) INFO:     192.0.2.2:{port} - 'POST /v1/completions HTTP/1.1' 200 OK\n"
    "(APIServer pid=4200) INFO 11-30 21:03:{second:02d} [loggers.py:257] Engine 000: Avg prompt throughput: "
    "{n}.7 tokens/s, Avg generation throughput: {n}.1 tokens/s, Running: 3 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 4.{second}%, Prefix cache hit rate: {second}.1%\n"
)
FAILED = (
    "(APIServer pid=4200) ERROR 11-30 21:03:{second:02d} [serving.py:257] Traceback (most recent call last):\n"
    '(APIServer pid=4200) ERROR 11-30 21:03:{second:02d} [serving.py:257]   File "/opt/vllm/a.py", line 9, in create\n'
    "(APIServer pid=4200) ERROR 11-30 21:03:{second:02d} [serving.py:257]     raise ValueError(prompt)\n"
    "(APIServer pid=4200) ERROR 11-30 21:03:{second:02d} [serving.py:257] ValueError: prompt {n} is too long\n"
)


def busy(crash: bytes) -> tuple[bytes, bytes, bytes]:
    return b"", "".join(ACCESS.format(n=n, port=40000 + n, second=n % 60) for n in range(2500)).encode(), crash


def crashing(crash: bytes) -> tuple[bytes, bytes, bytes]:
    return crash, "".join(FAILED.format(n=n, second=n % 60) for n in range(2500)).encode(), b""


def restarts(crash: bytes) -> tuple[bytes, bytes, bytes]:
    return b"", crash, b""


LOGS: dict[str, Callable[[bytes], tuple[bytes, bytes, bytes]]] = {
    "busy": busy,
    "crashing": crashing,
    "restarts": restarts,
}


def write(kind: str, file: Path, megabytes: int) -> None:
    head, filler, tail = LOGS[kind](SAMPLE.read_bytes() + b"\n")
    with file.open("wb") as out:
        out.write(head)
        for _ in range(max(1, megabytes * 10**6 // len(filler))):
            out.write(filler)
        out.write(tail)


def ours(file: Path) -> None:
    from harness import triage  # noqa: PLC0415 - so that its import is measured too

    begin = time.monotonic()
    with file.open("rb") as log:
        found = triage.read(log).signature
    assert found is not None
    assert "layer_names" in found.title or "too long" in found.title
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def grep(file: Path) -> tuple[float, float]:
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    # Not to /dev/null: there grep stops at the first hit.
    subprocess.run(("grep", "-c", "Error", str(file)), check=False, stdout=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


HURT = {
    "spaces": "ERROR " + " " * 9_000 + "x [repeated across cluster]\n",
    "parentheses": "(a pid=1) " * 900 + "ERROR\n",
    "dots": "a." * 4_500 + "ERROR: x\n",
    "paths": 'Traceback (most recent call last):\n  File "/a.py", line 1, in f\nValueError: ' + "/a" * 4_500 + "\n",
    "digits": 'Traceback (most recent call last):\n  File "/a.py", line 1, in f\nValueError: ' + "1," * 4_500 + "\n",
    "quotes": 'Traceback (most recent call last):\n  File "/a.py", line 1, in f\nValueError: {'
    + "'a', " * 1_800
    + "\n",
    "links": 'Traceback (most recent call last):\n  File "/a.py", line 1, in f\nValueError: x\n\n'
    "During handling of the above exception, another exception occurred:\n\n",
    "bars": "50%|" * 2_000 + "\r" * 900 + "ERROR\n",
    "json": '{"log": "' + "[" * 9_000 + '"}\nERROR\n',
    "escapes": "\x1b[" * 4_500 + "ERROR\n",
}


def hostile() -> None:
    from harness import triage  # noqa: PLC0415

    def cost(line: str, times: int) -> float:
        log = line.encode() * times
        begin = time.process_time()
        triage.read(io.BytesIO(log))
        return time.process_time() - begin

    for name, line in HURT.items():
        times = max(1_000_000 // len(line), 1)
        once, twice = cost(line, times), cost(line, 2 * times)
        print(f"{name:12} {len(line) * times / 1e6 / once:7.1f} MB per CPU s; twice as much: {twice / once:.1f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.file:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        ours(words.file)
        return
    for kind in LOGS:
        with tempfile.TemporaryDirectory() as temp:
            file = Path(temp) / "server.log"
            write(kind, file, words.megabytes)
            grep(file)  # so that both read from memory
            rival, rival_cpu = grep(file)
            out = subprocess.run((sys.executable, __file__, "--file", str(file)), check=True, stdout=subprocess.PIPE)
            seconds, cpu, peak = map(float, out.stdout.split())
        print(
            f"{kind:9} {words.megabytes} MB: triage {seconds:6.1f} s ({cpu:.1f} s CPU), peak {peak:4.0f} MiB;"
            f" grep -c Error {rival:.1f} s ({rival_cpu:.1f} s CPU); triage / grep: {cpu / rival_cpu:.1f}"
        )
    hostile()


if __name__ == "__main__":
    main()
