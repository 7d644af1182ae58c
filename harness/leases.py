"""Who may use which GPUs of this machine, or its CPU: one run at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import clock, locks
from harness.errors import NodeError
from harness.node import Gpu, Node, check_needs, large_enough, words_of

CPU_SHARES = "HARNESS_CPU_SHARES"
"""Into how many parts the CPU may be leased; unset: it is leased whole. Who wants it whole waits for all parts."""
_RETRY_SECONDS = 0.1
_TURNSTILE_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """What one run may use until it ends; nobody else on this machine gets it meanwhile."""

    gpus: tuple[Gpu, ...]
    """Empty: the CPU is leased."""
    fds: tuple[int, ...] = ()
    """Descriptors that hold the locks, not inherited. A process that gets them (`pass_fds`) keeps the lease with us."""


@contextmanager
def lease(
    node: Node,
    *,
    gpus: int,
    wait: float,
    on_wait: Callable[[str], None] = lambda _: None,
    what: str = "a run",
    gpu_memory_gib: float | None = None,
) -> Iterator[Lease]:
    """Hold `gpus` GPUs, for 0 the CPU or a part of it, against all other runs here until the block or the process ends.

    All or nothing, so that two that want overlapping sets never wait for each other. Emptiest GPUs first. `wait` is the
    seconds to wait for others (0 tries once), `on_wait` is told once for each new holder that we wait for, `what` is
    what others read of us meanwhile, GPUs of less than `gpu_memory_gib` are left to them.

    Raises:
        UnmetError: the node has too few such GPUs at all.
        NodeError: still taken after `wait` seconds; names who holds it.
    """
    check_needs(node, gpus=gpus, gpu_memory_gib=gpu_memory_gib)
    folder, deadline, told = lease_folder(), clock.Deadline.after(wait), ""
    able = sorted(large_enough(node.gpus, gpu_memory_gib), key=lambda gpu: (gpu.used_mib, gpu.index))
    wanted: dict[str, Gpu | None] = {gpu.uuid: gpu for gpu in able} if gpus else dict.fromkeys(_cpu())
    whole = ("cpu",) if "cpu" not in wanted and not gpus else ()
    while True:
        with ExitStack() as stack:
            with _turnstile(folder, wait):
                held, busy = _try(stack, folder, tuple(wanted), count=max(gpus, 1), what=what, whole=whole)
            if held:
                taken = [gpu for name in held if (gpu := wanted.get(name))]
                yield Lease(gpus=tuple(sorted(taken, key=lambda gpu: gpu.index)), fds=tuple(held.values()))
                return
        words = f"{words_of(gpus) if gpus else 'the CPU'}, held by {busy}"
        if deadline.expired:
            raise NodeError(f"waited {wait:g} s for {words}", fix="wait for that run to end, or end it, and try again")
        if words != told:
            on_wait(f"waiting for {words}")
            told = words
        clock.sleep(min(_RETRY_SECONDS, deadline.left))


def _cpu() -> tuple[str, ...]:
    """The locks one of which holds the CPU, or a part of it."""
    word = os.environ.get(CPU_SHARES, "")
    if not word:
        return ("cpu",)
    if not (word.isascii() and word.isdecimal() and int(word)):
        raise NodeError(f"{CPU_SHARES} is {word!r}", fix="give it a whole number of at least 1, or unset it")
    return tuple(f"cpu-{number}" for number in range(int(word)))


def _try(
    stack: ExitStack, folder: Path, names: Sequence[str], *, count: int, what: str, whole: Sequence[str] = ()
) -> tuple[dict[str, int], str]:
    """One pass: `count` of the named locks with their descriptors, or none of them and who holds the rest.

    `whole` are the locks of what the named ones are parts of: held too, together with others that hold parts.
    """
    held: dict[str, int] = {}
    busy: list[str] = []
    for name in (*whole, *names):
        fd = locks.open_file(folder / f"{name}.lock")
        if not locks.try_lock(fd, shared=name in whole):
            os.close(fd)
            busy.append(locks.holder(folder / f"{name}.lock"))
            if name in whole:
                break
            continue
        stack.callback(os.close, fd)
        locks.sign(fd, what)
        held[name] = fd
        if len(held) == len(whole) + count:
            return held, ""
    stack.close()  # inside the turnstile: nobody sees the half that we give back
    return {}, " and ".join(dict.fromkeys(busy))


@contextmanager
def _turnstile(folder: Path, wait: float) -> Iterator[None]:
    # One process at a time tries, so that two half-successful tries never keep taking from each other. A pass takes
    # milliseconds; only a stopped process can hold it longer.
    deadline = clock.Deadline.after(max(wait, _TURNSTILE_SECONDS))
    path = folder / "turnstile.lock"
    fd = locks.open_file(path)
    try:
        while not locks.try_lock(fd):
            if deadline.expired:
                raise NodeError(
                    f"{path} is held by a stopped process", fix="find it with `lsof` on that file and end it"
                )
            clock.sleep(0.005)
        yield
    finally:
        os.close(fd)


def lease_folder() -> Path:
    """Where the lock files of this machine's leases are: $HARNESS_LEASES, else one folder for all users."""
    folder = Path(os.environ.get("HARNESS_LEASES") or "/tmp/harness-leases")  # noqa: S108 - for all users
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o1777)  # whatever the umask: every user may add locks, nobody may take away another's
    except FileExistsError:
        pass
    except OSError as error:
        raise NodeError(
            f"cannot make {folder}: {error.strerror}", fix="set HARNESS_LEASES to a folder for all runs here"
        ) from error
    return folder
