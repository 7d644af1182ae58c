"""A stand-in for Buildkite and its agent: runs the steps of a pipeline in their order, each job in its own checkout.

It keeps to what a pipeline may rely on: `$NAME` is filled in while a pipeline is uploaded, artifacts are stored under
their paths and fetched by step, the last job of a step that was retried counts, what a job uploads comes behind it.
As a program on PATH (`buildkite-agent`) it answers from the folder of the build, in $AGENCY.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import yaml

SCHEMA = Path(__file__).parents[2] / "shared" / "schemas" / "buildkite-pipeline.schema.json"
_VARIABLE = re.compile(r"\$\$|\\\$|\$\{(\w+)(?::-([^}]*))?\}|\$([A-Za-z_]\w*)")
LOST = -1


def problems(pipeline) -> list[str]:
    """What the schema that Buildkite publishes says against a pipeline.

    Without the schema, which lies beside the checkout or nowhere, only that there are steps is asked.
    """
    if not SCHEMA.is_file():
        return [] if pipeline["steps"] else ["no steps"]
    import jsonschema  # noqa: PLC0415 - the program on PATH starts often, and seldom needs it

    schema = json.loads(SCHEMA.read_text())
    return [error.message for error in jsonschema.validators.validator_for(schema)(schema).iter_errors(pipeline)]


def filled(value, env):
    """What the agent makes of each text of a pipeline."""
    if isinstance(value, dict):
        return {key: filled(each, env) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, env) for each in value]

    def one(found):
        if found[0] in ("$$", "\\$"):
            return "$"
        return env.get(found[1] or found[3], "") or found[2] or ""

    return _VARIABLE.sub(one, value) if isinstance(value, str) else value


def upload(text, env, build: Path) -> list[dict]:
    """The steps of a pipeline as the build has them from now on."""
    pipeline = filled(yaml.safe_load(text), env)
    if found := problems(pipeline):
        sys.exit(f"no pipeline: {found}")
    known = build / "keys"
    keys = set(known.read_text().split()) if known.exists() else set()
    new = [step["key"] for step in pipeline["steps"] if "key" in step]
    if len(set(new)) < len(new) or keys & set(new):
        sys.exit(f"these keys are used already: {sorted(keys & set(new)) or new}")
    known.write_text(" ".join(keys | set(new)))
    return pipeline["steps"]


# --- the program


def program(words) -> None:
    build, step = Path(os.environ["AGENCY"]), os.environ["BUILDKITE_STEP_KEY"]
    with (build / "calls").open("a") as calls:
        calls.write(json.dumps([step, *words]) + "\n")
    verb, *rest = words
    if verb == "artifact":
        _, pattern, folder, *options = rest
        download(build / "artifacts", pattern, Path(folder), options[1] if options else None)
    elif verb == "annotate":
        given = dict(zip(rest[::2], rest[1::2], strict=True))
        body = sys.stdin.read()
        assert len(body.encode()) <= 1 << 20, "an annotation is too large"
        (build / "annotations").mkdir(exist_ok=True)
        note = {"style": given["--style"], "body": body}
        (build / "annotations" / given["--context"]).write_text(json.dumps(note))
    elif verb == "meta-data":
        action, name, *value = rest
        data = build / "meta-data" / name
        if action == "exists":
            sys.exit(0 if data.is_file() else 100)
        data.parent.mkdir(exist_ok=True)
        data.write_text(value[0])
    elif verb == "pipeline":
        steps = upload(Path(rest[1]).read_text(), os.environ, build)
        waiting = build / "uploaded.json"
        before = json.loads(waiting.read_text()) if waiting.exists() else []
        waiting.write_text(json.dumps([*before, *steps]))
    else:
        sys.exit(f"{words} is not known here")


def download(store: Path, pattern: str, folder: Path, step: str | None) -> None:
    stores = [store / step] if step else sorted(store.glob("*"))
    found = [(each, file) for each in stores for file in each.glob(pattern) if file.is_file()]
    if not found:
        sys.exit(f"No artifacts found for downloading: {pattern}")
    for each, file in found:
        target = folder / file.relative_to(each)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


# --- the build


@dataclass
class Build:
    """One build: `folder` keeps what the service keeps, `checkout` is copied for each job."""

    folder: Path
    checkout: Path
    env: dict[str, str] = field(default_factory=dict)
    source: str = "schedule"
    lost: dict[str, int] = field(default_factory=dict)
    """Keys of steps whose agents go away, and how often."""
    exits: dict[str, list[int]] = field(default_factory=dict)
    """How each job of a step ended."""
    steps: dict[str, dict] = field(default_factory=dict)
    output: str = ""

    def run(self, text: str) -> None:
        """Upload a pipeline and run all of its steps, and those that they upload."""
        self.folder.mkdir(parents=True)
        self._install()
        waiting = upload(text, self._env(), self.folder)
        while waiting:
            step, *waiting = waiting
            if step.get("if") == 'build.source == "schedule"' and self.source != "schedule":
                continue
            self.steps[step["key"]] = step
            self._step(step)
            uploaded = self.folder / "uploaded.json"
            if uploaded.exists():
                waiting = [*json.loads(uploaded.read_text()), *waiting]
                uploaded.unlink()

    def passed(self, key: str) -> bool:
        soft = [rule["exit_status"] for rule in self.steps[key].get("soft_fail", [])]
        return self.exits[key][-1] in (0, *soft)

    @property
    def annotations(self) -> dict[str, dict]:
        return {file.name: json.loads(file.read_text()) for file in (self.folder / "annotations").glob("*")}

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def keys(self, lead: str) -> list[str]:
        return [key for key in self.steps if key.startswith(f"{lead}-")]

    def _install(self) -> None:
        agent = self.folder / "bin" / "buildkite-agent"
        agent.parent.mkdir()
        agent.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
        agent.chmod(0o755)

    def _env(self, **more: str) -> dict[str, str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        ids = {"BUILDKITE_BUILD_ID": self.folder.name, "AGENCY": str(self.folder)}
        return {**os.environ, **self.env, **ids, "PATH": path, **more}

    def _step(self, step: dict) -> None:
        needed = [key for key in step.get("depends_on", []) if not self.passed(key)]
        assert not needed or step.get("allow_dependency_failure"), f"{step['key']} would never begin"
        key, tried = step["key"], self.exits.setdefault(step["key"], [])
        while not tried or self._again(step, tried):
            if self.lost.get(key, 0) > len(tried):
                tried.append(LOST)
                continue
            tried.append(self._job(step, self.folder / "jobs" / f"{key}-{len(tried)}"))

    def _again(self, step: dict, tried: list[int]) -> bool:
        rules = step["retry"]["automatic"]
        limits = [rule["limit"] for rule in rules if rule.get("exit_status") == tried[-1]]
        return bool(limits) and tried.count(tried[-1]) <= limits[0]

    def _job(self, step: dict, place: Path) -> int:
        shutil.copytree(self.checkout, place, symlinks=True)
        words = [shutil.which("bash") or "bash", "-e", "-c", step["command"]]
        env = self._env(BUILDKITE_STEP_KEY=step["key"])
        done = subprocess.run(
            words, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        self.output += f"--- {step['key']}\n{done.stdout}"
        store = self.folder / "artifacts" / step["key"]
        shutil.rmtree(store, ignore_errors=True)  # the last job of a step counts
        for pattern in step.get("artifact_paths", []):
            for file in (each for each in place.glob(pattern) if each.is_file()):
                target = store / file.relative_to(place)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
        return done.returncode


if __name__ == "__main__":
    program(sys.argv[1:])
