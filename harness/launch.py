"""The planned command. Pure: nothing here starts or opens anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from harness import masking
from harness.environment import Environment
from harness.environment.copies import PYTHONPATH
from harness.errors import ScenarioError
from harness.leases import Lease
from harness.runtimes.base import Runtime
from harness.scenario import FromEnv, Scenario

RECORDED = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HF_HOME", "HF_HUB_OFFLINE", "LD_PRELOAD", "NCCL_*", "OMP_NUM_THREADS",
    "PYTHONPATH", "PYTORCH_*", "TORCHINDUCTOR_*", "TORCH_*", "TRITON_*", "VLLM_*",
)  # fmt: skip
"""The allow list: inherited variables that change what a server does, so a record without them could not be re-run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Everything that the server process is given."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """The complete environment of the child; never written anywhere."""
    recorded_env: Mapping[str, str]
    """The part of it that may be written: set by the scenario, by us, or on the allow list; secrets blotted out."""
    host: str
    port: int
    served_model_name: str
    """Unique to this launch, so that an answer from somebody else's server is noticed."""
    caches: Path
    """Folder of what the server compiles."""
    secrets: tuple[str, ...] = ()
    """Values that become *** in every written byte."""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def plan(
    scenario: Scenario,
    *,
    runtime: Runtime,
    environment: Environment,
    lease: Lease,
    inherited: Mapping[str, str],
    caches: Path,
    port: int,
    name: str,
) -> Launch:
    """The command of one launch.

    `inherited` is the harness's own environment, `caches` the folder for what the server compiles, `name` the unique
    served model name.

    Raises:
        ScenarioError: `env: {X: {from: Y}}` and Y is not set.
    """
    given, from_values = scenario_env(scenario, inherited)
    if PYTHONPATH in given and PYTHONPATH in environment.env:  # else another package would be tested than the build's
        given[PYTHONPATH] = os.pathsep.join((environment.env[PYTHONPATH], given[PYTHONPATH]))
    ours = {
        **runtime.cache_env(caches),
        **environment.env,
        **(
            {"CUDA_VISIBLE_DEVICES": ",".join(str(g.index) for g in lease.gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
            if lease.gpus
            else {}
        ),
    }
    kept = {k: v for k, v in inherited.items() if k not in runtime.dropped_env}
    env = {**kept, **ours, **given, "PATH": _path(environment, given.get("PATH", kept.get("PATH", os.defpath)))}
    written = {k: v for k, v in env.items() if k in ours or k in given or any(fnmatchcase(k, p) for p in RECORDED)}
    return Launch(
        argv=runtime.argv(
            command=environment.command,
            model=scenario.model,
            revision=scenario.revision,
            serve=scenario.serve,
            host="127.0.0.1",
            port=port,
            served_model_name=name,
        ),
        env=env,
        recorded_env=masking.redact(written),
        host="127.0.0.1",
        port=port,
        served_model_name=name,
        caches=caches,
        secrets=secrets(scenario, env, from_values),
    )


def scenario_env(scenario: Scenario, inherited: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables that a scenario sets, and the values among them that came in by `from` (always secret)."""
    given: dict[str, str] = {}
    from_values: list[str] = []
    for key, value in scenario.env.items():
        if not isinstance(value, FromEnv):
            given[key] = value
        elif value.from_ in inherited:
            given[key] = inherited[value.from_]
            from_values.append(given[key])
        else:
            raise ScenarioError(
                f"{scenario.path}: env.{key} takes the variable {value.from_}, which is not set here",
                fix=f"export {value.from_}=… before the run, or give env.{key} a value",
            )
    return given, tuple(from_values)


def secrets(scenario: Scenario, env: Mapping[str, str], from_values: tuple[str, ...]) -> tuple[str, ...]:
    """All values that must not be written: named so in the environment or among the flags, or given by `from`."""
    flags = masking.secrets_under(scenario.serve)
    return tuple(dict.fromkeys((*from_values, *flags, *masking.secret_values(env))))


def _path(environment: Environment, path: str) -> str:
    # A server calls tools of its own environment (ninja, ptxas) by name, as it would in an activated one.
    return f"{environment.python.parent}{os.pathsep}{path}"
