"""A real server past a failure of its own, by an edit in a copy of its sources; the build itself stays as it is."""

import hashlib

import pytest
from real_runs import SHIPPED

from harness import known, run, scenario
from harness.environment import interpreter
from harness.run import Handling

pytestmark = [pytest.mark.real, pytest.mark.slow]

FILE = """\
schema: 1
known:
  - signature: "*User-specified max_model_len*"
    refs: [made-up#1]
    builds: ">=0.27"
    workaround:
      - edit:
          file: vllm/config/model.py
          function: _get_and_verify_max_len
          replace: if model_max_length is None or max_model_len > model_max_length
          with: if False
        removes: nothing
"""


def test_peel_gets_past_a_check_of_the_servers_own(vllm_build, vllm_environment, tmp_path):
    (tmp_path / known.KNOWN_FAILURES).write_text(FILE)
    text = (SHIPPED / "tiny_lm.yaml").read_text().replace("./models", str(SHIPPED / "models"))
    (tmp_path / "long.yaml").write_text(text.replace("max-model-len: 512", "max-model-len: 600"))
    asked = scenario.load(tmp_path / "long.yaml", variant="eager")
    package = next(p / "vllm" for p in interpreter.inspect(vllm_environment.python).paths if (p / "vllm").is_dir())
    before = digest(package)
    first, second = known.peel(
        lambda under: run.execute(asked, build=vllm_build, out=tmp_path / "out", handling=Handling(under=under)),
        known.beside(asked.path),
    )
    assert (first.verdict, first.known.refs, first.under) == ("FAIL", ("made-up#1",), ())
    assert (second.verdict, second.signature) == ("PASS", None), second.reason
    assert second.under == ("edit of _get_and_verify_max_len in vllm/config/model.py, removes nothing",)
    assert digest(package) == before


def digest(package):
    found = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        found.update(f"{file} {file.stat().st_ino} {file.stat().st_mtime_ns}\n".encode() + file.read_bytes())
    return found.hexdigest()
