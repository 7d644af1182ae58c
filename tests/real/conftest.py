"""One real release for all tests here, in the cache that `make run` uses too."""

import os
import sys
from pathlib import Path

import pytest

from harness import environment, leases, node
from harness.build import Build, parse

SHIPPED = Path(__file__).parents[2] / "scenarios"


@pytest.fixture(scope="session")
def vllm_build() -> Build:
    """HARNESS_TEST_BUILD names another one, such as `release:0.29.0+cpu` or `venv:PATH`."""
    return parse(os.environ.get("HARNESS_TEST_BUILD", "release:0.32.0+cpu"))


@pytest.fixture(scope="session")
def vllm_environment(vllm_build):
    made = environment.provide(vllm_build, node.read(), on_step=lambda text: print(text, file=sys.stderr))
    with environment.in_use(made):
        yield made


@pytest.fixture(autouse=True)
def one_server_at_a_time(request):
    """Real servers share two cores: whoever starts one outside of `execute` holds the CPU's lease meanwhile."""
    if "vllm_environment" not in request.fixturenames:
        yield
        return
    with leases.lease(node.read(), gpus=0, wait=3600, what=request.node.name):
        yield
