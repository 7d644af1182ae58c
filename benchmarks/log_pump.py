"""Log pump: MB/s and peak memory on 1 GB of a vLLM-like log, against the usual reader thread, in one run.

    python benchmarks/log_pump.py [--megabytes 1000]

Each side runs in a process of its own and reads the same log, printed by a third process as fast as it can, through
a pipe. The rival is what most helpers do: `for line in process.stdout: lines.append(line)`. It neither masks nor writes
nor looks for anything. Prints MB/s, peak resident MiB of the pumping process and the ratio.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

START = """\
(EngineCore pid=42) INFO 11-30 21:02:01 [gpu_model_runner.py:3187] Starting to load model tiny_lm...
(EngineCore pid=42) INFO 11-30 21:02:02 [default_loader.py:384] Loading weights took 0.41 seconds
(EngineCore pid=42) INFO 11-30 21:02:02 [cuda.py:411] Using FLASH_ATTN attention backend.
(EngineCore pid=42) INFO 11-30 21:02:09 [kv_cache_utils.py:1310] GPU KV cache size: 1,048,576 tokens
(EngineCore pid=42) INFO 11-30 21:02:12 [core.py:282] init engine (profile, create kv cache, warmup model) took 9.8 s
(APIServer pid=4200) INFO 11-30 21:02:12 [api_server.py:1977] Supported tasks: ['generate']
"""
REQUEST = (
    "(APIServer pid=4200) INFO:     127.0.0.1:{port} - 'POST /v1/completions HTTP/1.1' 200 OK\n"
    "(APIServer pid=4200) INFO 11-30 21:03:{second:02d} [loggers.py:257] Engine 000: Avg prompt throughput: "
    "{n}.7 tokens/s, Avg generation throughput: {n}.1 tokens/s, Running: 3 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 4.{second}%, Prefix cache hit rate: {second}.1%\n"
)
REQUESTS = "".join(REQUEST.format(n=n, port=40000 + n, second=n % 60) for n in range(2500))
PRINTER = (
    "import os, sys\nblock = open(sys.argv[1], 'rb').read()\nfor _ in range(int(sys.argv[2])):\n os.write(1, block)\n"
)


def printer(file: Path, times: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen((sys.executable, "-c", PRINTER, str(file), str(times)), stdout=subprocess.PIPE)


def ours(file: Path, times: int, folder: Path) -> int:
    from harness import clock  # noqa: PLC0415 - so that the rival's process does not carry it
    from harness.masking import Masker  # noqa: PLC0415
    from harness.runtimes import RUNTIMES  # noqa: PLC0415
    from harness.server.logpump import LogPump  # noqa: PLC0415

    found = 0

    def count(_: object) -> None:
        nonlocal found
        found += 1

    process = printer(file, times)
    assert process.stdout
    nothing, closed = os.pipe()
    os.close(closed)
    pump = LogPump(
        (os.dup(process.stdout.fileno()), nothing), folder, started=clock.now(),
        masker=Masker(("hf_abcdefghijklmnopqrstuvwxyz",)), literals=RUNTIMES["vllm"].literals, on_line=count,
    )  # fmt: skip
    import fcntl  # noqa: PLC0415

    fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)
    pump.start()
    process.wait()
    pump.stop(60)
    assert (folder / "server.log").stat().st_size == file.stat().st_size * times
    assert pump.problem is None
    return found


def rival(file: Path, times: int, _: Path) -> int:
    process = printer(file, times)
    lines: list[bytes] = []

    def read() -> None:
        assert process.stdout
        for line in process.stdout:
            lines.append(line)  # noqa: PERF402 - what it is compared with

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    return len(lines)


def measure(side: str, file: Path, times: int, folder: Path) -> None:
    begin = time.monotonic()
    {"pump": ours, "rival": rival}[side](file, times, folder)
    seconds = time.monotonic() - begin
    usage = resource.getrusage(resource.RUSAGE_SELF)
    megabytes = file.stat().st_size * times / 1e6
    print(megabytes / seconds, megabytes / (usage.ru_utime + usage.ru_stime), usage.ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--side", choices=("pump", "rival"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.side:
        file = words.folder / "printed.log"
        measure(words.side, file, words.megabytes * 10**6 // file.stat().st_size, words.folder)
        return
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp)
        (folder / "printed.log").write_text(START + REQUESTS)
        results = {}
        for side in ("pump", "rival"):
            command = (sys.executable, __file__, "--side", side, "--folder", temp, "--megabytes", str(words.megabytes))
            rate, busy, memory = map(float, subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split())
            results[side] = rate
            print(f"{side:6} {rate:7.0f} MB/s ({busy:.0f} MB per CPU second)   peak {memory:6.0f} MiB")
        print(f"pump / rival: {results['pump'] / results['rival']:.2f}")


if __name__ == "__main__":
    main()
