"""Whose fault it is, and what to do about it.

    HarnessError                 exit   whose
    ├── UsageError                 2    the words of the command line
    ├── ScenarioError              2    the scenario file (says file:line:column)
    ├── UnmetError                 3    the scenario asks for more than this node has
    ├── ModelError                 3    weights or tokenizer are not there, or the hub refuses them
    ├── BuildError                 3    the build cannot be made (no wheel, a failed install)
    ├── NodeError                  3    this machine: a busy GPU, a full disk, a stolen port
    └── Interrupted              130    a person or the CI agent stopped us

A failure of the *product* is never an exception: it is a `Run` with verdict FAIL.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Blame = Literal["product", "node", "scenario", "harness"]


class HarnessError(Exception):
    """An error of ours, of the node or of the scenario: `what` happened and how to `fix` it, each one sentence."""

    exit_code: ClassVar[int] = 3
    blame: ClassVar[Blame] = "harness"

    def __init__(self, what: str, *, fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}\n  {self.fix}" if self.fix else self.what


class UsageError(HarnessError):
    exit_code = 2


class ScenarioError(HarnessError):
    exit_code = 2
    blame = "scenario"


class UnmetError(HarnessError):
    blame = "scenario"


class ModelError(HarnessError):
    blame = "scenario"


class BuildError(HarnessError):
    blame = "harness"


class NodeError(HarnessError):
    blame = "node"


class Interrupted(HarnessError):  # noqa: N818 - it is an order, not an error
    exit_code = 130
