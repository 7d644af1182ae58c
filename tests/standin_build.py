"""The stand-in as a build: a `venv:` whose `vllm serve` does the steps in STANDIN_STEPS, with PORT and NAME filled in.

And a package that can be edited, in a `tree:` or a `venv:`, with two failures behind each other.
"""

import compileall
import json
import sys
import venv
from pathlib import Path

from harness.build import Build, parse

STANDIN = Path(__file__).with_name("standin.py")
VLLM = f"""#!{sys.executable}
import os, sys
port = sys.argv[sys.argv.index("--port") + 1]
name = sys.argv[sys.argv.index("--served-model-name") + 1]
steps = os.environ["STANDIN_STEPS"].replace('"PORT"', port).replace("'NAME'", repr(name))
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

CORE = """
import sys
from pathlib import Path

sys.path.append({tests!r})
import standin


class Engine:
    def __init__(self, words, layer_names):
        self.words = words
        self.states, self.copied = 4, 2

    def start(self):
        validate(self)
        if "--use-replayssm" in self.words:
            self.context()
        standin.serve(int(self.words[self.words.index("--port") + 1]))
        standin.run([["wait"]])

    def context(self):
        return [name for name in self.layer_names]


def validate(engine):
    assert engine.states == engine.copied, f"declares {{engine.states}} states, but copies {{engine.copied}}"


def other(engine):
    assert engine.states == engine.copied
"""
MAIN = "import sys\nfrom vllm.core import Engine\n\nEngine(sys.argv, ['a']).start()\n"


def make_package(site_packages: Path, version: str) -> None:
    """A server that dies as 0.29.0 does: a failed assertion, behind it a name that nobody kept; then it is healthy."""
    package = site_packages / "vllm"
    (package / "entrypoints" / "cli").mkdir(parents=True)
    for folder in (package, package / "entrypoints", package / "entrypoints" / "cli"):
        (folder / "__init__.py").touch()
    (package / "core.py").write_text(CORE.format(tests=str(STANDIN.parent)))
    (package / "entrypoints" / "cli" / "main.py").write_text(MAIN)
    (package / "_C.abi3.so").write_bytes(b"\x7fELF")
    compileall.compile_dir(package, quiet=2)
    metadata = site_packages / f"vllm-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Name: vllm\nVersion: {version}\n\n")


def make_tree(folder: Path, version: str = "0.29.0") -> Build:
    make_package(folder / "tree", version)
    return parse(f"tree:{folder / 'tree'}")


def make_venv(folder: Path, version: str = "0.29.0") -> Build:
    """A whole virtual environment, with a console script that imports its package."""
    root = folder / "env"
    venv.create(root, symlinks=True, with_pip=False)
    (site_packages,) = root.glob("lib/python3*/site-packages")
    make_package(site_packages, version)
    program = root / "bin" / "vllm"
    program.write_text(f"#!{root}/bin/python\nimport vllm.entrypoints.cli.main\n")
    program.chmod(0o755)
    return parse(f"venv:{root}")
