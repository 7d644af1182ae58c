"""What pydantic found, as sentences at positions: `file:line:column: what is wrong; what to write`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.errors import ScenarioError
from harness.scenario.format import NAME_PATTERN, Body
from harness.scenario.yaml_source import Mark, Node, Problem
from harness.units import ENV_PATTERN

FIX = "correct the file; `harness schema` prints the format, so that an editor completes it"

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
NAME_WORDS = 'holds only letters, digits, ".", "_" and "-", and begins with a letter or digit'
_PATTERNS = {
    NAME_PATTERN: NAME_WORDS,
    ENV_PATTERN: 'holds only letters, digits and "_", and begins with no digit',
}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing where no known word is near."""
    known = list(known)
    plain = {name.replace("_", "-").lower(): name for name in known}
    near = difflib.get_close_matches(word.strip("-").replace("_", "-").lower(), plain, n=1)
    return f"; did you mean `{plain[near[0]]}`?" if near else ""


def described(node: Node) -> str:
    """What stands there, in words."""
    if isinstance(node.value, bool):
        return node.raw or str(node.value).lower()
    if isinstance(node.value, (int, float)):
        return f"the number {node.raw or node.value}"
    names: dict[type, str] = {dict: "a mapping", list: "a list", type(None): "nothing"}
    return names.get(type(node.value)) or f'"{node.value}"'


def problems(error: ValidationError, root: Node, model: type[BaseModel]) -> Iterator[Problem]:
    """One problem for each of pydantic's errors, at the place in the file that it is about."""
    for found in error.errors(include_url=False):
        place = _Place(found, root, model)
        yield Problem.at(place.mark, place.sentence())


def refuse(found: Iterable[Problem], *, fix: str = FIX) -> None:
    """Raise one error for all of them, in the order of the file; `fix` says what to do.

    Raises:
        ScenarioError: there is at least one.
    """
    ordered = sorted(set(found))
    if ordered:
        raise ScenarioError("\n".join(map(str, ordered)), fix=fix)


class _Place:
    """Where in the tree one of pydantic's errors points, and what to say there."""

    def __init__(self, found: ErrorDetails, root: Node, model: type[BaseModel]) -> None:
        self.found = found
        self.model = model
        self.node, self.parent = root, root
        self.path: list[str | int] = []
        for part in found["loc"]:
            if child := self.node.child(part):  # others are names of types, `[key]`, or the key that is missing
                self.parent, self.node = self.node, child
                self.path.append(part)

    @property
    def last(self) -> str:
        """The key that the error is about, also where it is not in the file."""
        return str(self.found["loc"][-1]) if self.found["loc"] else ""

    @property
    def name(self) -> str:
        return dotted(self.path)

    @property
    def mark(self) -> Mark:
        of_key = self.found["type"] == "extra_forbidden" or "[key]" in self.found["loc"]
        return self.parent.keys[str(self.path[-1])] if of_key and self.path else self.node.mark

    def sentence(self) -> str:
        kind = self.found["type"]
        context = self.found.get("ctx", {})
        if kind in _SENTENCES:
            return _SENTENCES[kind](self, context)
        if kind in _WANTED:
            return f"`{self.name}` must be {_WANTED[kind]}, not {described(self.node)}{self._how(kind)}"
        return f"`{self.name}`: {self.found['msg'][:1].lower()}{self.found['msg'][1:]}"

    def _how(self, kind: str) -> str:
        if kind == "string_type" and isinstance(self.node.value, (bool, int, float)):
            return f'; quote it: "{self.node.raw}"'
        if kind in {"list_type", "tuple_type"} and isinstance(self.node.value, (str, bool, int, float)):
            return f"; write [{self.node.raw or self.node.value}]"
        if kind.startswith(("model", "dict")) and self.node.value is None:
            return "; write {} for an empty one" if self.path else ""
        return ""

    def missing(self, _: Any) -> str:
        inside = f" in `{self.name}`" if self.path else ""
        return f"`{self.last}` is missing{inside}"

    def unknown(self, _: Any) -> str:
        holder = model_at(self.model, self.path[:-1])
        known = [field.alias or name for name, field in holder.model_fields.items()] if holder else []
        what = "check" if self.path[:-1] == ["checks"] else "key"
        if not self.path[:-1] and issubclass(self.model, Body):
            known.append("variants")
        inside = f" in `{dotted(self.path[:-1])}`" if len(self.path) > 1 and what == "key" else ""
        return f"unknown {what} `{self.last}`{inside}{did_you_mean(self.last, known)}"

    def pattern(self, context: Any) -> str:
        allowed = _PATTERNS.get(context["pattern"], f"matches {context['pattern']}")
        what = "the name of a variable" if "[key]" in self.found["loc"] else "it"
        return f"`{self.name}` is no good name: {what} {allowed}"


_SENTENCES: dict[str, Callable[[_Place, Any], str]] = {
    "missing": _Place.missing,
    "extra_forbidden": _Place.unknown,
    "string_pattern_mismatch": _Place.pattern,
    "harness": lambda place, _: f"`{place.name}`: {place.found['msg']}",
    "literal_error": lambda p, c: f"`{p.name}` must be {c['expected'].replace(chr(39), '')}, not {described(p.node)}",
    "greater_than_equal": lambda p, c: f"`{p.name}` must be at least {c['ge']}, not {described(p.node)}",
    "less_than_equal": lambda p, c: f"`{p.name}` must be at most {c['le']}, not {described(p.node)}",
    "greater_than": lambda p, c: f"`{p.name}` must be above {c['gt']:g}, not {described(p.node)}",
    "string_too_short": lambda p, _: f"`{p.name}` is empty text",
    "string_too_long": lambda p, c: f"`{p.name}` is longer than {c['max_length']} characters",
}


def dotted(path: Iterable[str | int]) -> str:
    """`when[0].serve.x`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def model_at(model: type[BaseModel] | None, path: Iterable[str | int]) -> type[BaseModel] | None:
    """The model that describes the mapping at a path; None where the format leaves it open."""
    for part in path:
        if isinstance(part, int) or model is None:
            continue
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        if part in fields:  # others are keys of an open mapping (`env`), whose values the model describes
            model = _model_in(fields[part].annotation)
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
