"""Provoke faults on a real vLLM and write the logs as samples: `python tests/provoke VENV OUT [NAME…]`.

python tests/provoke ~/.cache/harness/envs/vllm-0.32.0+cpu-… tests/logs/vllm            every fault without a sample
python tests/provoke VENV OUT hub-401 rank1-differs                                     these again
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from catalogue import FAULTS
from recording import record


def main(venv: Path, out: Path, names: list[str]) -> None:
    release = re.search(r"vllm-(\d[\d.]*)", str(venv))[1]  # type: ignore[index]
    unknown = set(names) - {fault.name for fault in FAULTS}
    if unknown:
        raise SystemExit(f"no such fault: {', '.join(sorted(unknown))}")
    for fault in FAULTS:
        sample = out / f"{release}-cpu-{fault.name}.log"
        if fault.name in names or (not names and not sample.exists()):
            how = record(fault, venv, sample)
            sys.stdout.write(f"{fault.name}: {how}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
