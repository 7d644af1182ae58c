"""Options of the project's own tests, and what every fast one gets."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines that run these tests are noisy: a slow draw says nothing about the code.
settings.register_profile("noisy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("noisy")


def pytest_configure() -> None:
    """A job in the background inherits an ignored SIGINT, and the tests of interruptions would wait for ever."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite the expected values in the headers of tests/logs")


@pytest.fixture(autouse=True)
def leases_of_its_own(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path | None:
    """A stand-in needs no CPU to itself, and must not wait for a real server that somebody runs on this machine."""
    if request.node.get_closest_marker("real"):
        return None
    folder = tmp_path_factory.mktemp("leases")
    monkeypatch.setenv("HARNESS_LEASES", str(folder))
    return folder


@pytest.fixture(autouse=True)
def a_history_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests run says nothing of what is normal on this machine."""
    monkeypatch.setenv("HARNESS_HISTORY", str(tmp_path_factory.mktemp("history") / "history.sqlite"))
