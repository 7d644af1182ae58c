"""The second launch of a scenario, whose answers the first one's are held against.

same_output:
  against: no speculation                          words that the runtime knows
  against: {serve: {enforce-eager: true}}          overrides, as in a variant
  against: {build: "release:0.31.0"}               another build of the server
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from harness.checks.base import kebab
from harness.units import EnvName


def alike(one: Any, other: Any) -> bool:
    """Whether two values are one on a command line. `true` is a bare flag and 1 a value; to Python they are equal."""
    return _text(one) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


class Overrides(BaseModel):
    """What is different in the second launch: flags and variables (null removes one), or the build."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=kebab, use_attribute_docstrings=True
    )

    serve: dict[str, Any] = {}
    """Flags, merged over those of the scenario; null removes one."""
    env: dict[EnvName, str | None] = {}
    """Variables, merged over those of the scenario; null removes one."""
    build: Annotated[str, Field(min_length=1)] | None = None
    """Another build: `release:0.31.0`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Overrides) and alike(self.model_dump(), other.model_dump())

    def __hash__(self) -> int:
        return hash(_text(self.model_dump()))

    @model_validator(mode="after")
    def _different(self) -> Overrides:
        if not (self.serve or self.env or self.build):
            raise PydanticCustomError(
                "harness", "a launch against itself shows nothing: give `serve`, `env` or `build`"
            )
        return self


def _how_given(value: Any) -> str:
    return "<overrides>" if isinstance(value, (Mapping, Overrides)) else "<words>"


Against = Annotated[
    Annotated[Annotated[str, Field(min_length=1)], Tag("<words>")] | Annotated[Overrides, Tag("<overrides>")],
    Discriminator(_how_given),
]
"""Words that the runtime knows (`no speculation`), or overrides."""
