"""Reports kept by content: the same sources under the same rules are not read twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness import record
from harness.contracts.contracts_file import Contracts
from harness.contracts.model import Report
from harness.contracts.reading import Sources
from harness.environment import cache_root
from harness.errors import NodeError

SCHEMA = 1
_REPORT = TypeAdapter(Report)


def report(sources: Sources, contracts: Contracts, *, build: str, fresh: bool = False) -> Report:
    """The report of a build, from the cache if these sources were read under these rules before.

    Raises:
        NodeError: the cache cannot be written.
    """
    file = cache_root() / "contracts" / f"{_key(sources, contracts)}.json"
    kept = None if fresh else _read(file)
    if kept is not None:
        return replace(kept, build=build, version=sources.version)
    from harness.contracts import checking  # noqa: PLC0415 - griffe and all rules: half of a second run's time

    found = checking.check(sources, contracts, build=build)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        record.replace_text(file, _REPORT.dump_json(found).decode())
    except OSError as error:
        raise NodeError(
            f"cannot write below {cache_root()}: {error.strerror}", fix="set HARNESS_CACHE to a folder with space"
        ) from error
    return found


def _read(file: Path) -> Report | None:
    with suppress(OSError, ValidationError):  # not there, or written by another version: read the sources
        return _REPORT.validate_json(file.read_bytes())
    return None


def _key(sources: Sources, contracts: Contracts) -> str:
    """Everything that an answer depends on: the sources, the rules, the code that applies them, its interpreter."""
    parts = [str(SCHEMA), sources.package, sources.content, contracts.model_dump_json(by_alias=True), _code()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


@lru_cache(maxsize=1)
def _code() -> str:
    files: Iterable[Path] = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()
