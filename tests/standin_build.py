"""The stand-in as a build: a `venv:` whose `vllm serve` does the steps in STANDIN_STEPS, with PORT filled in."""

import json
import sys
from pathlib import Path

from harness.build import Build, parse

STANDIN = Path(__file__).with_name("standin.py")
VLLM = f"""#!{sys.executable}
import os, sys
port = sys.argv[sys.argv.index("--port") + 1]
steps = os.environ["STANDIN_STEPS"].replace('"PORT"', port)
os.execv({sys.executable!r}, [{sys.executable!r}, {str(STANDIN)!r}, steps])
"""


def make_build(folder: Path) -> Build:
    program = folder / "venv" / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    (program.parent / "python").symlink_to(sys.executable)
    program.write_text(VLLM)
    program.chmod(0o755)
    return parse(f"venv:{folder / 'venv'}")


def make_scenario(folder: Path, steps: list[list[object]], *lines: str, name: str = "stand-in") -> Path:
    """A scenario of the stand-in; `lines` are more YAML at its top level."""
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").touch()
    file = folder / f"{name}.yaml"
    said = json.dumps(json.dumps(steps))
    head = ["schema: 1", f"name: {name}", "model: ./model", f"env: {{STANDIN_STEPS: {said}}}"]
    file.write_text("\n".join([*head, *lines]) + "\n")
    return file


HEALTHY: list[list[object]] = [["say", "hello"], ["serve", "PORT"], ["wait"]]
