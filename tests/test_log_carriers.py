"""The same log through whatever carries logs has the same signature: samples wrapped, coloured, broken and mixed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import triage
from harness.signature import Signature

LOGS = Path(__file__).parent / "logs" / "vllm"
SAMPLES = (
    "0.29.0-cuda-tp2-replayssm-noprefixcache",
    "0.29.0-cuda-tp1-replayssm-prefixcache",
    "0.29.0-cuda-unknown-flag",
    "0.29.0-cpu-kv-cache-too-small",
    "0.32.0-cpu-tp2-truncated-weights",
    "0.32.0-cpu-unsupported-architecture",
    "0.32.0-cpu-missing-folder",
    "0.32.0-cpu-kill-worker-ready",
    "0.32.0-cpu-kill-engine-starting",
    "0.32.0-cpu-max-model-len-too-long",
    "0.32.0-cpu-hub-503",
    "0.32.0-cpu-raise-class-without-suffix",
    "0.32.0-cpu-raise-rank1-only",
    "0.32.0-cpu-tensor-renamed",
    "0.32.0-cpu-segfault-own-worker",
    "0.32.0-cpu-tokenizer-path-missing",
    "written-worker-rank",
    "written-nccl-watchdog",
    "written-no-command",
    "written-pod-139",
)
RECORDED = re.compile(r" *\d+\.\d\d ([oe]) ?(.*)", re.DOTALL)


def raw(stem: str, streams: str = "oe") -> list[str]:
    """As the server printed it: without the recorder's columns and notes."""
    lines = (LOGS / f"{stem}.log").read_bytes().decode("utf-8", "replace").split("\n")
    found = (RECORDED.fullmatch(line) for line in lines if not line.startswith("# "))
    columns = list(found)
    if any(columns):
        return [c[2] for c in columns if c and c[1] in streams]
    return [line for line in lines if not line.startswith("# ")]


def read(lines: list[str]) -> Signature:
    signature = triage.read(lines).signature
    assert signature is not None
    return signature


def identity(signature: Signature) -> tuple[object, ...]:
    return (signature.id, signature.title, signature.kind, signature.process, signature.ranks, signature.phase)


STAMP = "2026-11-30T21:56:{:02d}.123456789Z"
CARRIERS: dict[str, Callable[[int, str], str]] = {
    "docker": lambda n, line: f"{STAMP.format(n % 60)} {line}",
    "docker twice": lambda n, line: f"{STAMP.format(n % 60)} {STAMP.format(n % 60)} {line}",
    "kubernetes": lambda n, line: f"2026-11-30T21:56:{n % 60:02d}.123456789+00:00 stderr F {line}",
    "kubernetes in docker": lambda n, line: f"{STAMP.format(n % 60)} 2026-11-30T21:56:37.1Z stdout F {line}",
    "kubectl --prefix": lambda _, line: f"[pod/vllm-0/server] {line}",
    "journald": lambda n, line: f"Nov 30 21:56:{n % 60:02d} node-7 vllm[4242]: {line}",
    "journald, iso": lambda n, line: f"2026-11-30T21:56:{n % 60:02d}+0000 node-7 docker[1]: {line}",
    "compose": lambda _, line: f"vllm-1  | {line}",
    "compose, then docker": lambda n, line: f"vllm-1  | {STAMP.format(n % 60)} {line}",
    "buildkite": lambda n, line: f"\x1b_bk;t=17329991234{n % 60:02d}\x07{line}",
    "buildkite, bare": lambda n, line: f"_bk;t=17329991234{n % 60:02d}\x07{line}",
    "gitlab": lambda n, line: f"2026-11-30T21:56:{n % 60:02d}.123456Z 01E {line}",
    "github": lambda n, line: f"2026-11-30T21:56:{n % 60:02d}.1234567Z {line}",
    "jenkins": lambda n, line: f"[2026-11-30T21:56:{n % 60:02d}.123Z] {line}",
    "srun": lambda _, line: f"3: {line}",
    "mpirun": lambda _, line: f"[1,3]<stderr>:{line}",
    "docker's files": lambda _, line: json.dumps({"log": f"{line}\n", "stream": "stderr", "time": STAMP.format(7)}),
    "carriage return": lambda _, line: f"{line}\r",
    "coloured tag": lambda _, line: re.sub(r"^(\([\w.-]+ pid=\d+\))", "\x1b[1;36m\\1\x1b[0;0m", line),
    "coloured level": lambda _, line: re.sub(r"\b(ERROR|INFO)\b", "\x1b[31m\\1\x1b[0m", line, count=1),
    "coloured frame": lambda _, line: re.sub(
        r'File ("[^"]+"), line (\d+), in (\w+)',
        "File \x1b[35m\\1\x1b[0m, line \x1b[35m\\2\x1b[0m, in \x1b[35m\\3\x1b[0m",
        line,
    ),
    "coloured exception": lambda _, line: re.sub(
        r"\b((?:\w+\.)*\w+Error)(: )", "\x1b[1;35m\\1\x1b[0m\\2\x1b[35m", line
    ) + "\x1b[0m",
    "nul runs": lambda n, line: "\0" * (n % 7 == 0) * 40 + line,
    "progress bar glued": lambda n, line: (
        f"\rCapturing:  33%|███▎      | 1/3 [00:00<00:01,  1.70it/s]{line}" if n % 3 == 1 else line
    ),
    "progress bar in front": lambda n, line: f"Loading:  50%|#####     | 1/2\r{line}" if n % 9 == 0 else line,
}  # fmt: skip


@pytest.mark.parametrize("stem", SAMPLES)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_carried(carrier: str, stem: str) -> None:
    lines = raw(stem)
    carried = [CARRIERS[carrier](number, line) for number, line in enumerate(lines)]
    assert carried != lines or "coloured" in carrier
    assert identity(read(carried)) == identity(read(lines))


@pytest.mark.parametrize("stem", [stem for stem in SAMPLES if len(raw(stem)) > 30])
@pytest.mark.parametrize("width", [80, 120, 200])
def test_wrapped_at_a_terminals_width(stem: str, width: int) -> None:
    lines = raw(stem)
    broken = [line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)]
    assert max(map(len, broken)) == width
    assert identity(read(broken)) == identity(read(lines))


@pytest.mark.parametrize("stem", SAMPLES)
def test_lost_indentation(stem: str) -> None:
    lines = raw(stem)
    flat = [re.sub(r"^((?:\(.*? pid=\d+\) )?(?:[A-Z]+ [\d-]+ [\d:]+ \[\S+\] ?)?)\s+", r"\1", line) for line in lines]
    assert (read(flat).id, read(flat).title) == (read(lines).id, read(lines).title)


@pytest.mark.parametrize("stem", [s for s in SAMPLES if "-cpu-" in s and "unknown-flag" not in s])
@pytest.mark.parametrize("stream", ["o", "e"])
def test_one_stream_alone_is_the_same_or_says_less(stem: str, stream: str) -> None:
    """Where a stream holds the cause at all it is the same one; else what is left is of low confidence."""
    found = triage.read(raw(stem, stream)).signature
    if found is not None and found.confidence > 0.7:
        assert found.id == read(raw(stem)).id


@pytest.mark.parametrize("stem", SAMPLES)
def test_evidence_is_where_it_stands(stem: str) -> None:
    """Line numbers are those of the file, whatever is in front."""
    lines = raw(stem)
    before = triage.read(lines).evidence
    filler = ["(APIServer pid=1) INFO:     192.0.2.2:1 - GET /metrics HTTP/1.1 200 OK"] * 30_000
    after = triage.read(filler + lines).evidence
    assert after == tuple((first + 30_000, last + 30_000) for first, last in before)


def test_eight_ranks_are_one_bug() -> None:
    """The two workers of a real crash, each printed four times under other tags, as TP-8 would."""
    stem = "0.29.0-cuda-tp2-replayssm-noprefixcache"
    grown: list[str] = []
    for line in raw(stem):
        found = re.match(r"\(Worker_TP(\d) pid=(\d+)\)", line)
        copies = range(4) if found else range(1)
        for copy in copies:
            rank = int(found[1]) + 2 * copy if found else 0
            text = line.replace(f"rank={found[1]} local_rank={found[1]}", f"rank={rank}") if found else line
            tag = f"(Worker_TP{rank} pid={int(found[2]) + 10 * copy})" if found else ""
            grown.append(text.replace(found[0], tag).replace("world_size=2", "world_size=8") if found else text)
    one, eight = read(raw(stem)), read(grown)
    assert (eight.id, eight.title, eight.kind) == (one.id, one.title, one.kind)
    assert (one.ranks, eight.ranks) == ("2/2", "8/8")


def test_a_renamed_file_or_a_moved_line_is_no_new_bug() -> None:
    stem = "0.29.0-cuda-tp1-replayssm-prefixcache"
    moved = [re.sub(r"line (\d+)", r"line 9\1", line).replace("mamba_utils.py", "mamba_tools.py") for line in raw(stem)]
    assert moved != raw(stem)
    assert read(moved).id == read(raw(stem)).id
