"""One healthy real server for tests of what it answers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import node
from harness.checks import CHECKS, CORPORA
from harness.checks.base import CheckContext, CheckResult
from harness.client.server_client import ServerClient
from harness.environment import Environment
from harness.launch import Launch
from harness.masking import Masker
from harness.runtimes import RUNTIMES
from harness.server.living import Ready, Server

VLLM = RUNTIMES["vllm"]
SERVE: Mapping[str, Any] = {"max-model-len": 512, "max-num-seqs": 4, "dtype": "bfloat16", "enforce-eager": True}
ENV = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


@dataclass(frozen=True, kw_only=True)
class Served:
    client: ServerClient

    def check(self, name: str, **params: Any) -> CheckResult:
        """Run a check with parameters as a scenario writes them, but for underscores."""
        check = CHECKS[name]
        made = check.params.model_validate({key.replace("_", "-"): value for key, value in params.items()})
        context = CheckContext(client=self.client, params=made, node_class="cpu", lines=tuple, corpora=CORPORA)
        return check.run(context)


@contextmanager
def serving(environment: Environment, model: Path, folder: Path, **flags: Any) -> Iterator[Served]:
    """A server of a model that is healthy; `flags` go on top of SERVE: `dtype="float32"`, `hf_overrides={…}`."""
    name, port = f"checks-{folder.name}", node.free_port()
    serve = {**SERVE, **{flag.replace("_", "-"): value for flag, value in flags.items()}}
    argv = VLLM.argv(
        command=environment.command,
        model=str(model),
        revision=None,
        serve=serve,
        host="127.0.0.1",
        port=port,
        served_model_name=name,
    )
    inherited = {name: value for name, value in os.environ.items() if name not in VLLM.dropped_env}
    env = {**inherited, **environment.env, **VLLM.env, **ENV}
    launch = Launch(argv=argv, env=env, recorded_env={}, host="127.0.0.1", port=port, served_model_name=name)
    with _server(launch, folder / "server") as server:
        assert isinstance(server.wait_ready(), Ready), "\n".join(server.tail(40))
        client = ServerClient(launch.url, name, request_seconds=60.0)
        server.on_exit(client.abort)
        yield Served(client=client)


def _server(launch: Launch, folder: Path) -> Server:
    folder.mkdir()
    return Server(
        launch,
        folder=folder,
        health_path=VLLM.health_path,
        literals=VLLM.literals,
        startup=300.0,
        silence=120.0,
        stop=30.0,
        masker=Masker(),
        on_line=lambda _: None,
    )
