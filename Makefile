# Two commands do everything on a fresh machine: `make run` and `make test`. Both need Python 3.11+ and nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD ?= release:0.32.0
SCENARIO ?= scenarios/tiny_lm.yaml
# Tests share one build environment and one cache of compiled code with `make run`.
STAMP := $(VENV)/.ready

.PHONY: run test test-real lint types fast setup bench clean

run: $(STAMP)  ## the main job on a real server: SCENARIO and BUILD choose it
	$(BIN)/harness run $(SCENARIO) --build $(BUILD)

test: lint types  ## what CI runs: lint, types, everything fast, and about ten starts of one real release
	$(BIN)/python -m pytest tests -m "not real and not slow" -n 2 --durations=10
	$(BIN)/python -m pytest tests/real -m "not slow" --durations=0

test-real: $(STAMP)  ## an hour, not minutes: all releases, all faults, and what needs torch
	$(BIN)/python -m pip install --quiet --editable ".[dev,reference]"
	$(BIN)/python -m pytest tests --durations=0 -s

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)  ## speed and memory, each as a ratio against a named rival
	$(BIN)/python -m pip install --quiet --editable ".[dev,bench]"
	for each in benchmarks/*.py; do $(BIN)/python $$each || exit 1; done

setup: $(STAMP)  ## the project's own environment in .venv

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@
