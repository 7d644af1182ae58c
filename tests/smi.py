"""An nvidia-smi that answers as the real one does: a program of that name on PATH, and what it knows in a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PROGRAM = """#!{python} -SE
import json, sys
told = json.load(open({file!r}))
with open({asked!r}, "a") as asked:
    print(*sys.argv[1:], file=asked)
option, _, fields = sys.argv[1].partition("=")
tables = {{"--query-gpu": "gpus", "--query-remapped-rows": "remapped", "--query-compute-apps": "apps"}}
if option == "-q":
    sys.exit(print(told["header"]))
if told["fails"]:
    print(told["fails"])
    sys.exit(9)
rows, units = told[tables[option]], "nounits" not in sys.argv[2]
for field in fields.split(","):
    if field not in told["fields"][tables[option]]:
        print('Field "%s" is not a valid field to query.\\n' % field)
        sys.exit(2)
for row in rows:
    print(", ".join(row.get(field, "[N/A]") for field in fields.split(",")))
"""
HEADER = """
==============NVSMI LOG==============

Timestamp                                 : Thu Dec  3 07:36:06 2026
Driver Version                            : 580.159.04
CUDA Version                              : 13.0

Attached GPUs                             : 1
GPU 00000000:1B:00.0
    Compute Mode                          : Default
"""
FIELDS = {
    "gpus": [
        *("index", "uuid", "name", "memory.total", "memory.used", "driver_version", "pci.bus_id", "compute_cap"),
        *("mig.mode.current", "persistence_mode", "ecc.mode.current", "ecc.errors.uncorrected.volatile.total"),
    ],
    "remapped": ["gpu_uuid", "remapped_rows.pending", "remapped_rows.failure"],
    "apps": ["gpu_uuid", "pid", "process_name", "used_memory"],
}


def gpu(index: int = 0, name: str = "NVIDIA H200", **more: str) -> dict[str, str]:
    """A healthy GPU; `more` by the fields of the query, with _ in place of the dots."""
    row = {
        "index": str(index), "uuid": f"GPU-{index}aaa1111", "name": name, "memory.total": "143771", "memory.used": "4",
        "driver_version": "580.159.04", "pci.bus_id": f"00000000:{0x1B + index:02X}:00.0", "compute_cap": "9.0",
        "mig.mode.current": "Disabled", "persistence_mode": "Enabled", "ecc.mode.current": "Enabled",
        "ecc.errors.uncorrected.volatile.total": "0",
    }  # fmt: skip
    names = {field.replace(".", "_"): field for field in FIELDS["gpus"]}
    return row | {names[key]: value for key, value in more.items()}


def app(pid: int, name: str, used: str, uuid: str = "GPU-0aaa1111") -> dict[str, str]:
    return {"gpu_uuid": uuid, "pid": str(pid), "process_name": name, "used_memory": used}


def install(monkeypatch: Any, folder: Path, *gpus: dict[str, str], without: tuple[str, ...] = (), **more: Any) -> Path:
    """Put it on PATH; `without`: fields that this driver does not know. Returns the file of the questions it got."""
    (folder / "bin").mkdir(exist_ok=True)
    fields = {table: [field for field in names if field not in without] for table, names in FIELDS.items()}
    told = {"gpus": gpus, "fields": fields, "remapped": [], "apps": [], "header": HEADER, "fails": "", **more}
    (folder / "told.json").write_text(json.dumps(told))
    program, asked = folder / "bin" / "nvidia-smi", folder / "asked"
    program.write_text(PROGRAM.format(python=sys.executable, file=str(folder / "told.json"), asked=str(asked)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return asked
