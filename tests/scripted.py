"""The command line of harness with a scripted history in the place of servers: `scripted.py run …`; see `bisecting`.

$SCRIPTED is JSON: `{"size": 8, "bugs": [{"message": …, "first": 3, "last": 7}], "known": false}`.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

import bisecting
import pytest
from packaging.version import Version

from harness import cli
from harness.bisect import releases
from harness.bisect.releases import Release


def history() -> bisecting.History:
    said = json.loads(os.environ["SCRIPTED"])
    kind = Known if said.get("known") else bisecting.History
    return kind(said["size"], [bisecting.Bug(**bug) for bug in said["bugs"]])


class Known(bisecting.History):
    """Somebody reported everything that is wrong."""

    def answer(self, at, under):
        made = super().answer(at, under)
        return made if made.verdict == "PASS" else replace(made, expected=True)


def patched(monkeypatch, made: bisecting.History) -> None:
    """The history, and an index that has its builds."""
    bisecting.patched(monkeypatch, made)
    there = tuple(Release(version=Version(build.ref)) for build in made.builds)
    monkeypatch.setattr(releases, "available", lambda distribution: there)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        patched(patch, history())
        sys.exit(cli.main(sys.argv[1:]))
