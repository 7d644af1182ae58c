"""Options of the project's own tests, and what every fast one gets."""

from __future__ import annotations

from pathlib import Path

import pytest


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
