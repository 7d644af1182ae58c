"""Starts a real server with one fault and writes its log down, line by line, as a sample for tests/logs."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
from fault import Fault, Strike

SHIPPED = Path(__file__).parents[2] / "scenarios" / "models" / "tiny_lm"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
DEFAULTS = ("--max-model-len", "512", "--max-num-seqs", "4", "--dtype", "bfloat16", "--enforce-eager")
ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONUNBUFFERED": "1",
    "LANG": "C.UTF-8",
}
ULIMIT = {"RLIMIT_NOFILE": ("-n", 1), "RLIMIT_AS": ("-v", 1024)}
"""Flag of the shell's builtin, and its unit in bytes."""
HOOK = """
import importlib.util, sys

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name != {module!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            exec(compile({code!r}, "/data/plugin/raising.py", "exec"), {{"module": module, "__name__": "raising"}})
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Hook())
"""


def record(fault: Fault, venv: Path, out: Path) -> str:
    """Write `out`; returns how the leader ended."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="provoked-")))
        port = _free_port()
        env = _env(fault, folder)
        if fault.hub is not None:
            env["HF_ENDPOINT"] = stack.enter_context(_hub(fault.hub))
            env["HF_HUB_OFFLINE"] = "0"
        argv = _argv(fault, venv, folder, port)
        lines, how = _run(fault, argv, env, folder, port)
    neutral = _neutral(venv, folder)
    head = [f"# cause: {fault.cause}", f"# argv: {' '.join(argv)}", "# columns: seconds since spawn, stream, line"]
    whole = [*head, *lines, f"# ended: {how}", ""]
    out.write_bytes("\n".join(neutral(line) for line in whole).encode("utf-8", "surrogateescape"))
    return how


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _argv(fault: Fault, venv: Path, folder: Path, port: int) -> list[str]:
    model = folder / "model"
    model.mkdir()
    for name in FILES:
        shutil.copy(SHIPPED / name, model / name)
    if callable(fault.model):
        fault.model(model)
    served = fault.model if isinstance(fault.model, str) else str(model)
    return [
        str(venv / "bin" / "vllm"),
        "serve",
        served,
        *DEFAULTS,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        *fault.serve,
    ]


def _env(fault: Fault, folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "USER", "TMPDIR")}
    env = {
        **kept,
        **ENV,
        **fault.env,
    }
    env["HOME"] = str(folder / "home")
    (folder / "home").mkdir()
    if fault.patch is not None:
        site = folder / "plugin"
        site.mkdir()
        (site / "sitecustomize.py").write_text(HOOK.format(module=fault.patch.module, code=fault.patch.code))
        env["PYTHONPATH"] = str(site)
    return env


def _run(fault: Fault, argv: list[str], env: dict[str, str], folder: Path, port: int) -> tuple[list[str], str]:
    lines: list[str] = []
    started = time.monotonic()

    limits = " ".join(f"ulimit {ULIMIT[name][0]} {value // ULIMIT[name][1]};" for name, value in fault.limits.items())
    server = subprocess.Popen(
        ("sh", "-c", f'{limits} exec "$@"', "sh", *argv), env=env, cwd=folder, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip

    def pump(stream: str, pipe: object) -> None:
        for raw in pipe:  # type: ignore[attr-defined]
            text = raw.decode("utf-8", "surrogateescape").removesuffix("\n")
            lines.append(f"{time.monotonic() - started:7.2f} {stream} {text}")

    pumps = [
        threading.Thread(target=pump, args=(name, pipe), daemon=True)
        for name, pipe in (("o", server.stdout), ("e", server.stderr))
    ]
    for thread in pumps:
        thread.start()
    how = _follow(fault, server, lines, started, port)
    _end(server)
    for thread in pumps:
        thread.join(10)
    return lines, how


def _follow(fault: Fault, server: subprocess.Popen[bytes], lines: list[str], started: float, port: int) -> str:
    struck = asked = False
    while time.monotonic() - started < fault.seconds:
        if (code := server.poll()) is not None:
            return f"exit {code}" if code >= 0 else signal.Signals(-code).name
        text = "\n".join(lines)
        if fault.strike and not struck and fault.strike.after in text:
            struck = _hit(server.pid, fault.strike, lines, started)
        if "Application startup complete" in text and not asked:
            asked = True
            if not fault.request and not fault.strike:
                return "still running, healthy"
            if fault.request:
                _ask(port, _model(server), lines, started)
        time.sleep(0.2)
    return "still running"


def _model(server: subprocess.Popen[bytes]) -> str:
    return str(server.args[6])  # type: ignore[index]


def _hit(leader: int, strike: Strike, lines: list[str], started: float) -> bool:
    tree = [psutil.Process(leader), *psutil.Process(leader).children(recursive=True)]
    for process in tree:
        with suppress(psutil.Error):
            if strike.process in " ".join(process.cmdline()):
                lines.append(
                    f"# {time.monotonic() - started:.2f}: {signal.Signals(strike.signal).name} to {strike.process}"
                )
                process.send_signal(strike.signal)
                return True
    return False


def _ask(port: int, model: str, lines: list[str], started: float) -> None:
    body = json.dumps({"model": model, "prompt": "In the beginning", "max_tokens": 4}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            said = f"HTTP {answer.status}"
    except urllib.error.HTTPError as error:
        said = f"HTTP {error.code}"
    except OSError as error:
        said = type(error).__name__
    lines.append(f"# {time.monotonic() - started:.2f}: a completion was answered with {said}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """The leader first, politely; then whatever else is in its session (a server overwrites its own environment)."""
    if server.poll() is None:
        server.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            server.wait(10)
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == server.pid:
                process.kill()
    with suppress(subprocess.TimeoutExpired):
        server.wait(10)


def _neutral(venv: Path, folder: Path) -> Callable[[str], str]:
    """Paths and addresses of this machine out of a line."""
    release = re.search(r"vllm-(\d[\d.]*)", str(venv))[1]  # type: ignore[index]
    names = [(str(folder), "/data"), (str(venv.resolve()), f"/opt/envs/{release}"), (str(venv), f"/opt/envs/{release}")]
    library = re.compile(r"/[\w./-]*/lib/python3\.(\d+)/(?!site-packages)")

    def neutral(line: str) -> str:
        for name, other in names:
            line = line.replace(name, other)
        line = library.sub(r"/usr/lib/python3.\1/", line)
        return re.sub(r"\b(?:10|172|192|169|21|198)(?:\.\d{1,3}){3}\b", "192.0.2.2", line)

    return neutral


@contextmanager
def _hub(status: int) -> Iterator[str]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if status in (401, 404):
                self.send_header("X-Error-Code", {401: "GatedRepo", 404: "RepoNotFound"}[status])
                self.send_header(
                    "X-Error-Message", {401: "Access to model is restricted", 404: "Repository not found"}[status]
                )
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
