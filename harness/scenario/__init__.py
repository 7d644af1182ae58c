"""Scenarios: find, read, validate, merge. One YAML file asks one question of a build; variants ask it in other ways."""

from __future__ import annotations

from harness.scenario.find import available, find, folders
from harness.scenario.format import Budgets, Expect, FromEnv, Needs, Registry, RuntimeWords, When
from harness.scenario.loading import ScenarioFile, load, load_file, warnings
from harness.scenario.meaning import meaning
from harness.scenario.model import Scenario
from harness.scenario.schema import json_schema

__all__ = [
    "Budgets",
    "Expect",
    "FromEnv",
    "Needs",
    "Registry",
    "RuntimeWords",
    "Scenario",
    "ScenarioFile",
    "When",
    "available",
    "find",
    "folders",
    "json_schema",
    "load",
    "load_file",
    "meaning",
    "warnings",
]
