"""`contracts.yaml`: which hierarchies are looked at, by which rules, and which counts must agree."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from harness.errors import ScenarioError
from harness.scenario import problems as found_by
from harness.scenario import yaml_source
from harness.scenario.format import Strict, Text

SHIPPED = Path(__file__).parent.parent / "runtimes" / "vllm_contracts.yaml"
FIX = "correct the file; CONTRIBUTING.md says what stands in it"
_OPERATORS = ("==", "<=")
Form = TypeVar("Form", bound=Strict)
ClassRule = Literal["dropped-argument", "never-set", "override"]


def _dotted(text: str) -> str:
    if not all(part.isidentifier() for part in text.split(".")):
        message = f'"{text}" is no dotted name, such as vllm.v1.core.Class'
        raise PydanticCustomError("harness", "{text}", {"text": message})
    return text


Dotted = Annotated[str, AfterValidator(_dotted)]


def _comparison(text: str) -> str:
    words = text.split()
    compares = len(words) == 3 and words[1] in _OPERATORS  # noqa: PLR2004 - left, operator, right
    if not compares or not (words[0].isidentifier() and words[2].isidentifier()):
        message = f'"{text}" compares nothing: write METHOD == METHOD or METHOD <= METHOD'
        raise PydanticCustomError("harness", "{text}", {"text": message})
    return text


def _condition(text: str) -> str:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError) as error:
        message = f'"{text}" is no Python condition: {error}'
        raise PydanticCustomError("harness", "{text}", {"text": message}) from error
    return text


class Hierarchy(Strict):
    """Classes that descend from one of some roots."""

    name: Text
    roots: Annotated[tuple[Dotted, ...], Field(min_length=1)]
    """Dotted names; those that a build lacks are told and left out."""
    refs: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Why it is looked at: vllm#54636."""
    rules: Annotated[tuple[ClassRule, ...], Field(min_length=1)] = ("dropped-argument", "never-set", "override")


class Where(Strict):
    """Only in builds in which a function asserts something."""

    function: Dotted
    asserts: Annotated[Text, AfterValidator(_condition)]
    """The condition, as Python writes it: `len(a) == len(b)`."""


class Count(Strict):
    """Two methods that return as many values as each other."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    roots: Annotated[tuple[Dotted, ...], Field(min_length=1)]
    refs: Annotated[tuple[Text, ...], Field(min_length=1)]
    must: Annotated[str, AfterValidator(_comparison)]
    """`METHOD == METHOD`, or `<=`."""
    where: Where | None = None

    @property
    def sides(self) -> tuple[str, str, str]:
        """Left method, operator, right method."""
        left, operator, right = self.must.split()
        return left, operator, right


class Elsewhere(Strict):
    """Modules that not every build of a release has."""

    modules: Annotated[tuple[Dotted, ...], Field(min_length=1)]
    """With all that is below them."""
    why: Text


class Contracts(Strict):
    """`contracts.yaml`."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    """Version of this format: 1."""
    package: Dotted
    hierarchies: tuple[Hierarchy, ...] = ()
    counts: tuple[Count, ...] = ()
    imports: bool = True
    """Whether names that functions import are looked for in the whole package."""
    not_in_every_build: tuple[Elsewhere, ...] = ()


def load(path: Path = SHIPPED) -> Contracts:
    """Read a `contracts.yaml`; without a path the one for vLLM.

    Raises:
        ScenarioError: everything that is wrong in it, each line as file:line:column.
    """
    return read_as(path, Contracts)


def read_as(path: Path, model: type[Form]) -> Form:
    """Read a strict YAML file.

    Raises:
        ScenarioError: everything that is wrong in it, each line as file:line:column.
    """
    source = str(path)
    document = yaml_source.parse(yaml_source.read(path), source)
    found_by.refuse(document.problems, fix=FIX)
    try:
        return model.model_validate_json(json.dumps(document.root.plain()))
    except ValidationError as error:
        found_by.refuse(found_by.problems(error, document.root, model), fix=FIX)
        raise ScenarioError(f"{source}: {error}", fix=FIX) from error
