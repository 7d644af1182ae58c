"""The aims of benchmarks/bisection.py on few histories, and that its rivals really run; the table is made by hand."""

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "benchmarks" / "bisection.py"
HISTORIES = 8


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bisection_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_aims_are_met(bench):
    measured = list(bench.aims(HISTORIES))
    assert len(measured) == 10
    assert [(what, value) for what, value, most in measured if value > most] == []


def test_histories_do_not_depend_on_how_many_are_asked_for(bench):
    for kind in bench.KINDS:
        assert bench.histories(kind, 3) == bench.histories(kind, 5)[:3]


@pytest.mark.parametrize("culprit", [1, 77, 199])
def test_git_really_finds_the_culprit_of_a_clean_history(bench, tmp_path, culprit):
    repository = bench.Repository(tmp_path, most=40)
    found = repository.bisect(bench.History(seed=1, culprit=culprit), masked=1)
    assert found.kind == "right"
    assert 8 <= found.probes <= 10


def test_git_names_a_masked_build_or_gives_a_range_as_its_script_has_it(bench, tmp_path):
    history = bench.History(seed=1, culprit=100, masks=(range(90, 110),))
    repository = bench.Repository(tmp_path, most=40)
    assert repository.bisect(history, masked=1).kind == "wrong"
    assert repository.bisect(history, masked=125).kind == "range"
