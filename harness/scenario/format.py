"""What may stand in a scenario file, as types. Keys are kebab-case; unknown keys and wrong types are errors.

Only shapes are here. What a value means (flags that are ours, parallel sizes, words of `subject`) is in rules.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, create_model
from pydantic_core import PydanticCustomError

from harness.checks.base import Params, kebab
from harness.units import ENV_PATTERN, Duration, EnvName

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
FLAG_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"


class Strict(BaseModel):
    """A mapping of the file: frozen, kebab-case, nothing unknown, nothing converted."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=kebab, use_attribute_docstrings=True
    )


class FromEnv(Strict):
    """The value of a variable of the environment that the harness runs in; always treated as a secret."""

    from_: Annotated[str, Field(alias="from", pattern=ENV_PATTERN)]
    """Name of the variable to take the value from."""


def _how_given(value: Any) -> str:
    return "<from>" if isinstance(value, (Mapping, FromEnv)) else "<text>"


EnvValue = Annotated[Annotated[str, Tag("<text>")] | Annotated[FromEnv, Tag("<from>")], Discriminator(_how_given)]
EnvChange = Annotated[
    Annotated[str | None, Tag("<text>")] | Annotated[FromEnv, Tag("<from>")], Discriminator(_how_given)
]
Text = Annotated[str, Field(min_length=1)]


class Needs(Strict):
    """What the node must have. Nothing given: any node will do."""

    gpus: Annotated[int, Field(ge=1)] | None = None
    """GPUs that one launch takes; must equal the product of the parallel sizes in `serve`."""
    gpu_memory_gib: Annotated[float, Field(gt=0)] | None = None
    """GiB of memory that each of them must have."""
    nodes: Annotated[int, Field(ge=1)] = 1
    """Reserved: only 1 for now."""

    @property
    def words(self) -> str:
        if self.gpus is None and self.gpu_memory_gib is None:
            return "any node"
        count = "a GPU" if self.gpus is None else f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}"
        return count if self.gpu_memory_gib is None else f"{count} of {self.gpu_memory_gib:g} GiB"


class Budgets(Strict):
    """Allowed time of each part of a run, in seconds once read."""

    download: Duration = 4 * 3600.0
    """To fetch weights, or check that they are present, before the server is started."""
    startup: Duration = 1800.0
    """From the spawn to health."""
    silence: Duration = 600.0
    """Without output and without CPU use while starting: then it hangs."""
    request: Duration = 120.0
    """For one request, after ready."""
    stop: Duration = 60.0
    """To end every process of the server."""


def _specifiers(text: str) -> str:
    try:
        empty = not list(SpecifierSet(text))
    except InvalidSpecifier:
        hint = f'; for exactly this one write "=={text}"' if text[:1].isdigit() else ""
        message = f'"{text}" is not a range of releases such as "<0.29.0" or ">=0.28,<0.30"{hint}'
        raise PydanticCustomError("harness", "{text}", {"text": message}) from None
    if empty:
        raise PydanticCustomError(
            "harness", "{text}", {"text": 'an empty range holds every build: say which, "<0.29.0"'}
        )
    return text


Builds = Annotated[str, AfterValidator(_specifiers)]


class When(Strict):
    """Changes for some releases: flags appear and vanish. Rules are applied in order, and recorded."""

    builds: Builds
    """A range of releases: "<0.29.0", ">=0.28,<0.30"."""
    serve: dict[str, Any] = {}
    """Flags, merged over those of the scenario; null removes one."""
    env: dict[EnvName, EnvChange] = {}
    """Variables, merged over those of the scenario; null removes one."""

    def holds(self, version: Version) -> bool:
        return in_range(version, self.builds)


def in_range(version: Version, builds: str) -> bool:
    """Whether the version is in the range, by plain order and without its local part.

    `<0.29.0` and `>=0.29.0` split *all* builds in two. PEP 440 would put 0.29.0rc1, and the builds of every commit
    before that release, into neither.
    """
    public = Version(version.public)
    return all(_in(public, specifier) for specifier in SpecifierSet(builds))


def _in(version: Version, specifier: Specifier) -> bool:
    if specifier.operator == "<":
        return version < Version(specifier.version)
    if specifier.operator == ">":
        return version > Version(specifier.version)
    return specifier.contains(version, prereleases=True)


class Expect(Strict):
    """A scenario that reproduces a known failure."""

    signature: Text
    """Id of the signature, a prefix of one, its title, or `@run.json`: that of a recorded run, beside this file."""


class Body(Strict):
    """One scenario, after its variant is merged in. `variants` are taken off before."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    """Version of this format: 1."""
    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=100)]
    """Stable: reports and histories are kept under it."""
    description: str = ""
    """One sentence for people."""
    refs: tuple[Text, ...] = ()
    """Issues and changes that it is about: vllm#54634."""
    runtime: str = "vllm"
    """Which server."""
    model: Text
    """Id on the hub, or a folder that starts with ./ (relative to this file)."""
    revision: Text | None = None
    """Branch, tag or commit of the model."""
    serve: dict[str, Any] = {}
    """Flags of the real serve command, by their real names without dashes."""
    env: dict[EnvName, EnvValue] = {}
    """Variables of the server's environment; `{from: NAME}` takes one from ours, as a secret."""
    needs: Needs = Needs()
    budgets: Budgets = Budgets()
    subject: tuple[str, ...] = ()
    """What must really be on for a PASS to mean anything."""
    checks: Any = None
    when: tuple[When, ...] = ()
    expect: Expect | None = None
    starts: tuple[Literal["cold", "warm"], ...] = ()
    """`[cold]`: with fresh compile caches; `[cold, warm]`: then once more, with those that the first start left.
    Nothing given: one start, with the caches that all runs of a build share."""


@dataclass(frozen=True, kw_only=True)
class RuntimeWords:
    """What validation needs to know of a runtime."""

    own_flags: frozenset[str]
    parallel_flags: tuple[str, ...]
    subjects: frozenset[str]
    references: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Words for a second launch (`no speculation`), and the flags that they are merged over the scenario's."""
    switches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Patterns of flags, by the check that tests nothing unless one of them is given."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Registry:
    """The runtimes and checks that scenarios may name."""

    runtimes: Mapping[str, RuntimeWords]
    checks: Mapping[str, type[Params]]
    corpora: frozenset[str] = frozenset()
    """Texts of the harness that a check may name without a path; none: any name will do."""


@lru_cache(maxsize=1)
def registered() -> Registry:
    """The runtimes and checks of this harness; imported only when the first scenario is read."""
    from harness.checks import CHECKS, CORPORA  # noqa: PLC0415 - scenario <- check <- client would be a heavy circle
    from harness.runtimes import RUNTIMES  # noqa: PLC0415

    words = {
        name: RuntimeWords(
            own_flags=runtime.own_flags,
            parallel_flags=runtime.parallel_flags,
            subjects=frozenset(runtime.subjects),
            references={word: reference.serve for word, reference in runtime.references.items()},
            switches=runtime.switches,
        )
        for name, runtime in RUNTIMES.items()
    }
    return Registry(
        runtimes=words,
        checks={name: check.params for name, check in CHECKS.items()},
        corpora=frozenset(file.stem for file in CORPORA.glob("*.txt")),
    )


@lru_cache(maxsize=8)
def body_model(registry: Registry) -> type[Body]:
    """The format with the parameters of each registered check in it, so that one validation sees all of a file."""
    fields: dict[str, Any] = {
        name: (params, Field(default=None, alias=name, description=params.__doc__))
        for name, params in registry.checks.items()
    }
    checks = create_model("Checks", __base__=Strict, **fields)
    return create_model("Scenario", __base__=Body, checks=(checks, checks()))
