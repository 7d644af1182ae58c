"""The format as a JSON Schema (draft 2020-12), so that editors complete and check scenario files.

It is made from the models that validate, and says what they say: kebab-case keys, parameters of each check, variants in
which everything is optional, null removes and `{replace: …}` stops merging. Rules across values are the loader's alone.
"""

from __future__ import annotations

import copy
from typing import Any

from harness.scenario.format import FLAG_PATTERN, NAME_PATTERN, Registry, body_model, registered
from harness.scenario.overlays import FIXED
from harness.units import ENV_PATTERN

Schema = dict[str, Any]

_ITEM: Schema = {"type": ["string", "number", "object"]}
_LIST: Schema = {"type": "array", "minItems": 1, "items": _ITEM}
_FLAG: Schema = {
    "description": "true: bare flag · false: its --no- form · null: removed · mapping: JSON · list: one flag, then its"
    " items · {repeat: […]}: the flag once for each item · {replace: …}: not merged with what is inherited",
    "anyOf": [
        {"type": ["string", "number", "boolean", "null"]},
        _LIST,
        {"type": "object", "properties": {"repeat": _LIST}},
    ],
}


def json_schema(registry: Registry | None = None) -> Schema:
    """JSON Schema of scenario files."""
    registry = registry or registered()
    schema = body_model(registry).model_json_schema(by_alias=True)
    definitions = schema.pop("$defs", {})
    _tighten(schema, definitions, registry)
    overlay = _overlay({key: value for key, value in schema.items() if key != "title"}, definitions)
    for name in FIXED:
        overlay["properties"].pop(name, None)
    schema["properties"]["variants"] = {
        "type": "object",
        "description": "Named overrides: merged over the scenario, null removes, {replace: …} stops merging.",
        "propertyNames": {"pattern": NAME_PATTERN},
        "additionalProperties": overlay,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "description": "A scenario: a server to start, and what must be true of it.",
        **schema,
        "$defs": definitions,
    }


def _tighten(schema: Schema, definitions: Schema, registry: Registry) -> None:
    own = sorted({flag for words in registry.runtimes.values() for flag in words.own_flags})
    serve = {
        "type": "object",
        "description": "Flags of the real serve command, by their real names without dashes.",
        "propertyNames": {"pattern": FLAG_PATTERN, "not": {"enum": own}},
        "additionalProperties": _FLAG,
    }
    variables = {
        "type": "object",
        "description": "Variables of the server's environment; {from: NAME} takes one from ours, null removes one.",
        "propertyNames": {"pattern": ENV_PATTERN},
        "additionalProperties": {"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/FromEnv"}]},
    }
    for holder in (schema, definitions["When"]):
        holder["properties"].update(serve=serve, env=variables)
    if "Overrides" in definitions:  # the second launch of a check that compares
        second = definitions["Overrides"]["properties"]
        second.update(serve=serve, env={**second["env"], "propertyNames": {"pattern": ENV_PATTERN}})
    schema["properties"]["runtime"]["enum"] = sorted(registry.runtimes)
    subjects = sorted({word for words in registry.runtimes.values() for word in words.subjects})
    if subjects:
        schema["properties"]["subject"]["items"]["enum"] = subjects
    for check in definitions["Checks"]["properties"].values():
        check.pop("default", None)  # None there means "not asked for"; a file cannot write that


def _overlay(schema: Schema, definitions: Schema) -> Schema:
    """The same mapping with everything optional; null and `replace` beside each value. Lists are replaced whole."""
    target = schema
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
    if target.get("type") != "object" or "properties" not in target:
        return _or_replaced(schema)
    loose = copy.deepcopy({key: value for key, value in target.items() if key not in {"required", "default"}})
    loose["properties"] = {
        name: {"anyOf": [_overlay(value, definitions), {"type": "null"}]}
        for name, value in target["properties"].items()
    }
    return {"anyOf": [loose, _replaced(schema)]} if target is not schema else loose


def _or_replaced(schema: Schema) -> Schema:
    if schema.get("type") != "object":
        return schema
    loose = {**schema, "additionalProperties": {"anyOf": [schema.get("additionalProperties", {}), {"type": "null"}]}}
    return {"anyOf": [loose, _replaced(schema)]}


def _replaced(schema: Schema) -> Schema:
    return {"type": "object", "properties": {"replace": schema}, "required": ["replace"], "additionalProperties": False}
