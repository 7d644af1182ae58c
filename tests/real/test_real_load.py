"""Load, logs and memory on a real server; healthy ones are in test_real_checks.py and test_real_launches.py."""

from pathlib import Path

import pytest
from plugins import plugin
from real_runs import execute, numbers, only

pytestmark = pytest.mark.real

TOO_MANY = """
def register():
    from vllm.v1.engine.core import EngineCore

    plain = EngineCore.step

    def step(self):
        if len(self.scheduler.running) >= 4:
            raise RuntimeError("four requests at once are too many")
        return plain(self)

    EngineCore.step = step
"""
EVERY_FIFTH = """
from starlette.responses import PlainTextResponse

seen = 0


async def refuse(request, call_next):
    global seen
    if request.url.path != "/v1/completions":
        return await call_next(request)
    seen += 1
    return PlainTextResponse("no", status_code=500) if seen % 5 == 0 else await call_next(request)


def register():
    pass
"""
LEAKS = """
import os

kept = []


def register():
    from vllm.v1.engine.core import EngineCore

    plain = EngineCore.add_request

    def add_request(self, *args, **kwargs):
        if not kept:
            with open("/dev/shm/{name}", "wb") as file:
                file.write(b"x" * (200 << 20))
        kept.append(bytearray(b"x") * (8 << 20))
        return plain(self, *args, **kwargs)

    EngineCore.add_request = add_request
"""


def test_a_server_that_dies_of_several_requests_at_once(vllm_build, tmp_path):
    """Damaged: the engine raises when four requests run. One after the other all is well, so only `load` can tell."""
    damage = plugin(tmp_path / "plugin", "too_many", TOO_MANY)
    done = execute(vllm_build, tmp_path / "out", *only("load", warmup="{}"), damage)
    print(done.reason)
    assert (done.verdict, done.blame) == ("FAIL", "product")
    assert [(check.name, check.outcome) for check in done.checks] == [("warmup", "pass"), ("load", "fail")]
    assert done.signature.title == "RuntimeError: four requests at once are too many (_process_engine_step)"
    assert done.signature.process == "EngineCore"
    assert done.reason.startswith("check load, request ")


@pytest.mark.slow
def test_requests_that_are_refused_while_the_server_lives(vllm_build, tmp_path):
    """Damaged: a middleware answers HTTP 500 to every fifth completion."""
    damage = plugin(tmp_path / "plugin", "every_fifth", EVERY_FIFTH)
    middleware = "serve.middleware=every_fifth.refuse"
    done = execute(vllm_build, tmp_path / "out", *only("load"), damage, middleware)
    (check,) = done.checks
    print(check.message)
    assert (done.verdict, done.signature.kind) == ("FAIL", "check_failed")
    bad, of = numbers(check)["not_answered"], numbers(check)["requests"]
    assert bad == of // 5 > 0
    assert check.message == f"{bad} of {of} requests were not answered: HTTP 500 {bad} times"
    assert numbers(check)["health_after"] == 200


@pytest.mark.slow
def test_a_log_that_holds_prompts(vllm_build, tmp_path):
    """Damaged: nothing but the flags; at DEBUG the server logs the body of every request."""
    flags = ("serve.enable-log-requests=true", "env.VLLM_LOGGING_LEVEL=DEBUG")
    done = execute(vllm_build, tmp_path, *only("log_hygiene"), *flags)
    (check,) = done.checks
    print(check.message, check.detail)
    assert (done.verdict, done.signature.kind) == ("FAIL", "check_failed")
    assert check.message.startswith("the text of a request stands in the server's log, in ")
    assert numbers(check)["lines_with_prompt"] >= 2


@pytest.mark.slow
def test_memory_that_grows_and_memory_that_stays(vllm_build, tmp_path):
    """Damaged: the engine keeps 8 MiB of every request, and leaves a file in shared memory."""
    name = f"harness-test-{tmp_path.parent.name}"
    damage = plugin(tmp_path / "plugin", "leaks", LEAKS.format(name=name))
    limit = "checks.memory.max-host-growth=64"
    try:
        done = execute(vllm_build, tmp_path / "out", *only("memory", load="{}"), damage, limit)
    finally:
        Path("/dev/shm", name).unlink(missing_ok=True)
    check = done.checks[-1]
    print(check.message)
    assert (done.verdict, done.signature.kind, check.name) == ("FAIL", "check_failed", "memory")
    assert "the server's processes grew while it answered (" in check.message
    assert "shared memory did not come back (200 MiB, at most 64)" in check.message
    assert numbers(check)["host_growth"] > 8 * 32
    assert done.memory["ready"].host > 500
    assert (done.memory["before"].processes, done.memory["after"].processes) == (0, 0)
