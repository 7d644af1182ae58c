"""A recipe carried out with uv: make a virtual environment, install, add what the recipe adds, verify."""

from __future__ import annotations

import collections
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uv
from packaging.version import Version

from harness import clock
from harness.build import Build
from harness.clock import Deadline
from harness.environment import bytecode, interpreter
from harness.environment.envcache import Entry
from harness.environment.uv_words import find_links, index_options, variables
from harness.errors import BuildError, HarnessError, NodeError
from harness.masking import Masker
from harness.runtimes.vllm_recipes import PROGRAM, Recipe

OnStep = Callable[[str], None]
TAIL_LINES = 15
_WANTED = "wanted.txt"
_TOLD = re.compile(r"(Resolved|Prepared|Installed) \d+ packages? in ")
_NOISE = re.compile(r" *([+~-] \S+==|Downloading |Downloaded )")
_TORCH = re.compile(r"torch==\S+\+cpu|Failed to fetch.*torch")
"""The one package that the index lacks: that is the recipe's trouble, not the network's."""
_UNREACHED = re.compile(r"Failed to fetch|error sending request|dns error|timed out|Network connectivity is disabled")


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Where one environment is made, and what all steps of making it share."""

    entry: Entry
    recipe: Recipe
    deadline: Deadline
    lock_fd: int
    """Inherited by every installer process: were we killed, the lock would live as long as the last of them."""
    on_step: OnStep
    wheel: str = ""
    """URL of the server's wheel where it is not the package index that has it."""


def made(site: Site, build: Build, pins: Sequence[str] | None = None) -> dict[str, Any]:
    """Install a build, and say what its notes in the cache begin with.

    Raises:
        BuildError: a step failed; names it, with the last lines it printed and what to do.
        NodeError: the disk is full.
    """
    begun = clock.now()
    found = install(site, pins)
    return {
        "build": str(build),
        "accelerator": site.recipe.accelerator,
        "python": found.version,
        "recipe": site.recipe.digest,
        "created": clock.utc(),
        "seconds": round(clock.now() - begun, 1),
        "packages": dict(found.packages),
    }


def install(site: Site, pins: Sequence[str] | None = None) -> interpreter.Interpreter:
    """Make the environment at its final place, exactly as pinned or as resolved now; returns what is in it.

    Raises:
        BuildError: a step failed; names it, with the last lines it printed and what to do.
        NodeError: the disk is full.
    """
    folder, recipe = site.entry.folder, site.recipe
    site.entry.log.write_text("", encoding="utf-8")
    site.on_step(f"installing {recipe.requirement} into {folder}")
    if folder.exists():  # half built by a process that was killed
        site.entry.remove()
    _run(site, "make the virtual environment", [uv.find_uv_bin(), "venv", "--python", sys.executable, str(folder)])
    try:
        _run(site, f"install {recipe.requirement}", _install_argv(site, pins))
    finally:
        if site.wheel:  # its URL may hold a password
            (folder / _WANTED).unlink(missing_ok=True)
    found = interpreter.inspect(site.entry.python)
    _add_aliases(site, found)
    _compile(site, found)
    _verify(site, found)
    return found


def _install_argv(site: Site, pins: Sequence[str] | None) -> list[str]:
    overrides, wanted = site.entry.folder / "overrides.txt", site.entry.folder / _WANTED
    overrides.write_text("".join(f"{line}\n" for line in site.recipe.overrides), encoding="utf-8")
    asked = f"{site.recipe.distribution} @ {site.wheel}" if site.wheel else site.recipe.requirement
    wanted.write_text("".join(f"{line}\n" for line in pins or (asked,)), encoding="utf-8")
    argv = [uv.find_uv_bin(), "pip", "install", "--python", str(site.entry.python), "--requirements", str(wanted)]
    argv += ["--no-deps"] if pins else ["--overrides", str(overrides)]
    return [*argv, *index_options(site.recipe)]


def _add_aliases(site: Site, found: interpreter.Interpreter) -> None:
    folder = _site_packages(site, found)
    for name, version in site.recipe.aliases:
        alias = folder / f"{name}-{version}.dist-info"
        if name in found.packages or alias.exists():  # the distribution brings it after all
            continue
        alias.mkdir()
        (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        (alias / "INSTALLER").write_text(f"{interpreter.OURS}\n", encoding="utf-8")


def _compile(site: Site, found: interpreter.Interpreter) -> None:
    folder = _site_packages(site, found)
    _share_bytecode(site, folder)
    compile_below(site, folder, site.entry.python)


def compile_below(site: Site, folder: Path, python: Path) -> None:
    """Write the byte code that an interpreter will look for; what is up to date is left alone.

    Raises:
        BuildError: it took too long.
    """
    for skipped in site.recipe.values("compile"):
        argv = [str(python), "-m", "compileall", "-q", "-j", "0", "-x", skipped, str(folder)]
        # Some packages ship files that no interpreter compiles (templates, tests of syntax errors): never a failure.
        _run(site, "compile byte code", argv, allowed=(0, 1))


def _share_bytecode(site: Site, folder: Path) -> None:
    below = folder.relative_to(site.entry.folder)  # lib/python3.11/site-packages: the same only for the same Python
    others = (path / below for path in sorted(site.entry.folder.parent.glob("[!.]*")) if path != site.entry.folder)
    bytecode.share(folder, [other for other in others if other.is_dir()])


def _site_packages(site: Site, found: interpreter.Interpreter) -> Path:
    return next(path for path in found.paths if path.is_relative_to(site.entry.folder) and path.name == "site-packages")


def _verify(site: Site, found: interpreter.Interpreter) -> None:
    recipe, script = site.recipe, site.entry.folder / "bin" / PROGRAM
    got = found.packages.get(recipe.distribution)
    if got is None or Version(got).public != recipe.version.public:
        raise _failed(site, "verify", f"it has {recipe.distribution} {got or 'not at all'}, not {recipe.version}", ())
    if not os.access(script, os.X_OK):
        raise _failed(site, "verify", f"{recipe.requirement} brought no program {script}", ())


def _run(site: Site, step: str, argv: list[str], *, allowed: tuple[int, ...] = (0,)) -> None:
    """Run one step: all output to the log, the last lines kept, the summary lines told."""
    tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
    masker = Masker()
    with site.entry.log.open("a", encoding="utf-8") as log, _process(site, argv) as process:
        assert process.stdout is not None
        for line in map(masker.text, process.stdout):
            log.write(line)
            if not _NOISE.match(line):
                tail.append(line.rstrip())
            if _TOLD.match(line):
                site.on_step(line.rstrip())
        code = process.wait()
    if site.deadline.expired:
        raise _failed(site, step, f"it took more than {site.deadline.budget:g} s", tail)
    if code not in allowed:
        raise _failed(site, step, f"exit {code}", tail)


@contextmanager
def _process(site: Site, argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The step's process, ended at the deadline and with the block."""
    with subprocess.Popen(
        argv,
        cwd="/",  # not in a project: its pyproject.toml would steer uv, also one above the cache
        env=variables(site.entry.cache),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=(site.lock_fd,),
        start_new_session=True,  # so that what it starts (a build of a source distribution) ends with it
    ) as process:
        watch = threading.Timer(site.deadline.left, _kill, (process,))
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _failed(site: Site, step: str, why: str, tail: Sequence[str] | collections.deque[str]) -> HarnessError:
    text = "\n".join(tail)
    quoted = "".join(f"\n  | {line}" for line in tail)
    what = f"{site.recipe.requirement}: the step '{step}' failed ({why}){quoted}"
    if re.search(r"No space left on device|os error 28\b|Disk quota exceeded|os error 122\b", text):
        return NodeError(what, fix="free some disk (`harness env prune`), or set HARNESS_CACHE to a folder with 4 GB")
    if _UNREACHED.search(text) and not _TORCH.search(" ".join(text.split())):
        fix = "the package index cannot be reached: try again, or name a mirror in UV_DEFAULT_INDEX"
        return NodeError(what, fix=f"{fix}; the whole output is in {site.entry.log}")
    return BuildError(what, fix=f"{_advice(site, text)}; the whole output is in {site.entry.log}")


def _advice(site: Site, text: str) -> str:
    distribution = re.escape(site.recipe.distribution)
    flat = " ".join(text.split())
    if re.search(rf"no version of {distribution}==|{distribution} was not found", flat):
        return _nearest(site)
    if _TORCH.search(flat):
        return "name a folder with the CPU wheel of that torch in PIP_FIND_LINKS, or let PyTorch's CPU index be reached"
    return "try again"


def _nearest(site: Site) -> str:
    """The releases next to one that does not exist, by asking the resolver for it from both sides."""
    name, version = site.recipe.distribution, site.recipe.version
    asked = ((f"{name}<{version}", "highest"), (f"{name}>{version}", "lowest"))
    found = [release for wanted, way in asked if (release := _resolve(site, name, wanted, way))]
    return (
        f"the nearest releases are {' and '.join(found)}"
        if found
        else f"no release of {name} can be found on the package index"
    )


def _resolve(site: Site, name: str, wanted: str, way: str) -> str | None:
    argv = [
        uv.find_uv_bin(),
        "pip",
        "install",
        "--dry-run",
        "--no-deps",
        "--python",
        str(site.entry.python),
        "--resolution",
        way,
        wanted,
    ]
    argv += [option for place in find_links() for option in ("--find-links", place)]
    try:
        done = subprocess.run(
            argv,
            cwd="/",
            env=variables(site.entry.cache),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    match = re.search(rf"\+ {re.escape(name)}==(\S+)", done.stdout + done.stderr)
    return match[1] if match else None
