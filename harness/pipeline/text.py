"""Steps as YAML that `buildkite-agent pipeline upload` reads back as what was meant. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from harness.pipeline.steps import Step


class _Dumper(yaml.SafeDumper):
    """Commands of several lines as blocks, and no anchors: retries are written out, for whoever reads it."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def pipeline(steps: Sequence[Step], *, head: str = "") -> str:
    """The YAML text of a pipeline, with comments on top.

    The agent fills in `$NAME` and `${NAME}` while it uploads, so each dollar is doubled: what a step has to say to its
    shell arrives there as it is (buildkite.com/docs/pipelines/configure/environment-variables).
    """
    comments = "".join(f"# {line}\n" for line in _escaped(head).splitlines())
    body = yaml.dump({"steps": _escaped(list(steps))}, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return comments + body


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _escaped(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    return value.replace("$", "$$") if isinstance(value, str) else value
