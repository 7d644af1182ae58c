"""Single lines that are a cause, or stand for one, without a Python traceback: a table.

A row's `literal` is in every line that it matches: only such lines are looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from harness.signature import Kind

Role = Literal["cause", "usage", "kernel", "death", "stopped", "hearsay", "hang", "shutdown"]
"""What a line is.

cause: as good as a traceback · usage: the command line was refused · kernel: the machine says whom it ended · death: a
process reports another's · stopped: one was told to stop · hearsay: it only says that one failed · hang: somebody waits
· shutdown: the server was told to stop.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineRule:
    """Groups of the pattern: `message`, `exception`, `process`, `code` (negative: a signal), `signal` (its number)."""

    name: str
    role: Role
    literal: str
    pattern: re.Pattern[str]
    kind: Kind = "other"
    exception: str | None = None
    message: str | None = None
    """Where the line's own words are not to be kept; `{}` fields are the pattern's groups."""
    process: str | None = None
    signal: int | None = None
    """Where words say which signal ended the process."""
    at_end: bool = False
    """Looked for at the end of a log only, which is read whole: the literal costs nothing then."""


LINES: tuple[LineRule, ...] = (
    # --- told to stop: what comes after is noise
    LineRule(
        name="vllm shutdown", role="shutdown", literal="shutdown triggered",
        pattern=re.compile(r"\[shutdown\] API server: shutdown triggered"),
    ),
    LineRule(
        name="launcher shutdown", role="shutdown", literal="Shutting down FastAPI HTTP",
        pattern=re.compile(r"^Shutting down FastAPI HTTP server"),
    ),
    LineRule(
        name="uvicorn shutdown", role="shutdown", literal="Shutting down", pattern=re.compile(r"^INFO: +Shutting down$")
    ),
    # --- the command line was refused
    LineRule(
        # On stderr, without a tag. The program's name differs (`vllm`, `vllm serve`, `main.py`).
        name="argparse", role="usage", literal=": error: ", kind="cli_usage",
        pattern=re.compile(
            r"^(?!srun|slurmstepd|make|git|gcc|g\+\+|ld|nvcc|docker)[\w./-]+(?: [\w.-]+){0,3}: error: (?P<message>.+)"
        ),
    ),
    LineRule(
        name="clap", role="usage", literal="error: ", kind="cli_usage",
        pattern=re.compile(
            r"^error: (?P<message>(?:one or more required arguments|equal sign is needed|unexpected argument"
            r"|unrecognized subcommand|invalid value|a value is required|the (?:following required )?arguments?"
            r"|the subcommand|unknown argument|Found argument).*)"
        ),
    ),
    # --- native code ends the process
    LineRule(
        name="c++ exception", role="cause", literal="terminate called", exception="SIGABRT",
        pattern=re.compile(r"^terminate called (?:after throwing an instance of '(?P<exception>[^']+)'|without )"),
        message="terminate called",
    ),
    LineRule(
        name="absl signal", role="cause", literal=" received at time=", kind="killed_signal",
        pattern=re.compile(r"\*\*\* (?P<exception>SIG[A-Z]+) received at time="), message="received {exception}",
    ),
    LineRule(
        name="shell banner", at_end=True, role="cause", literal="(core dumped)", kind="killed_signal",
        pattern=re.compile(
            r"(?:^|[: \d])"
            r"(?P<message>Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception)"
            r"\s+\(core dumped\)"
        ),
    ),
    LineRule(
        name="shell says segfault", at_end=True, role="cause", literal="Segmentation fault    ", kind="killed_signal",
        pattern=re.compile(r": line \d+: +\d+ (?P<message>Segmentation fault) {4}"),
    ),
    LineRule(
        name="kernel says segfault", role="cause", literal=": segfault at ", kind="killed_signal", exception="SIGSEGV",
        pattern=re.compile(r"\[\d+\]: segfault at \S+ .{0,200} in (?P<library>[\w.+-]+)\["),
        message="Segmentation fault in {library}",
    ),
    LineRule(
        name="ucx signal", at_end=True, role="cause", literal="Caught signal ", kind="killed_signal",
        pattern=re.compile(r"Caught signal \d+ \((?P<message>Segmentation fault|Bus error|Aborted)"),
    ),
    LineRule(
        name="library missing", at_end=True, role="cause", literal="loading shared libraries: ", kind="import_error",
        pattern=re.compile(r"error while loading shared libraries: (?P<message>.+)"), exception="ld.so",
    ),
    LineRule(
        name="command missing", at_end=True, role="cause", literal=": command not found",
        pattern=re.compile(r"(?P<message>[\w./-]+: command not found)$"),
    ),
    LineRule(
        name="module missing", at_end=True, role="cause", literal=": No module named ", kind="import_error",
        pattern=re.compile(r"^\S*python[\d.]*: (?P<message>No module named .+)"),
    ),
    LineRule(
        name="docker refused", at_end=True, role="cause", literal="Error response from daemon: ",
        pattern=re.compile(r"^docker: Error response from daemon: (?P<message>.+)"),
    ),
    LineRule(
        name="free", role="cause", literal="free(): ", kind="killed_signal", exception="SIGABRT",
        pattern=re.compile(r"^(?P<message>free\(\): [a-z].*)"),
    ),
    LineRule(
        name="malloc", role="cause", literal="malloc(): ", kind="killed_signal", exception="SIGABRT",
        pattern=re.compile(r"^(?P<message>malloc\(\): [a-z].*)"),
    ),
    LineRule(
        name="double free", role="cause", literal="double free or corr", kind="killed_signal", exception="SIGABRT",
        pattern=re.compile(r"^(?P<message>double free or corruption.*)"),
    ),
    LineRule(
        name="heap corruption", role="cause", literal="corrupted size vs", kind="killed_signal", exception="SIGABRT",
        pattern=re.compile(r"^(?P<message>corrupted size vs.*)"),
    ),
    LineRule(
        name="stack smashing", role="cause", literal="stack smashing de", kind="killed_signal", exception="SIGABRT",
        pattern=re.compile(r"\*\*\* (?P<message>stack smashing detected) \*\*\*"),
    ),
    # --- collectives
    LineRule(
        name="nccl watchdog", role="cause", literal="collective operation timeout", kind="nccl",
        pattern=re.compile(r"Watchdog caught (?P<message>collective operation timeout).*?OpType=(?P<op>\w+)"),
        message="watchdog caught collective operation timeout: {op}",
    ),
    LineRule(
        name="nccl watchdog's exception", role="cause", literal="watchdog thread terminated with",
        pattern=re.compile(r"watchdog thread terminated with exception: (?P<message>CUDA error: .*)"),
    ),
    # --- what the machine says
    LineRule(
        name="oom killer", role="kernel", literal="Killed process", kind="oom_host",
        pattern=re.compile(r"[Oo]ut of memory: Killed process \d+ \((?P<who>[^)]+)\)"),
        message="the kernel's OOM killer ended {who}",
    ),
    LineRule(
        name="cgroup oom", at_end=True, role="kernel", literal="OOMKilled", kind="oom_host",
        pattern=re.compile(r"[Rr]eason\"?:\s*\"?OOMKilled\b"),
        message="the container was ended for its memory (OOMKilled)",
    ),
    LineRule(
        name="systemd oom", at_end=True, role="kernel", literal="killed by the OOM killer", kind="oom_host",
        pattern=re.compile(r"has been killed by the OOM killer"), message="the kernel's OOM killer ended the server",
    ),
    LineRule(
        name="slurm oom", at_end=True, role="kernel", literal="srun: error: ", kind="oom_host",
        pattern=re.compile(r"^srun: error: .*: tasks? \S+: Out Of Memory"), message="Slurm ended a task for its memory",
    ),
    LineRule(
        name="xid", role="kernel", literal="NVRM: Xid (PCI:", kind="cuda_error",
        pattern=re.compile(r"NVRM: Xid \(PCI:[^)]*\): (?P<xid>\d+)"), exception="Xid", message="Xid {xid}",
    ),
    # --- a process reports another's death
    # Of several engines the one that a signal ended says more than an exit code, wherever it stands.
    LineRule(
        name="core proc by signal", role="death", literal="Failed core proc(s)",
        pattern=re.compile(r"Failed core proc\(s\): \{'(?P<process>[\w-]+)': (?P<code>-\d+)"),
    ),
    LineRule(
        name="another core proc by signal", role="death", literal="Failed core proc(s)",
        pattern=re.compile(r"Failed core proc\(s\): \{.{0,2000}?, '(?P<process>[\w-]+)': (?P<code>-\d+)"),
    ),
    LineRule(
        name="core proc by itself", role="death", literal="Failed core proc(s)",
        pattern=re.compile(r"Failed core proc\(s\): \{'(?P<process>[\w-]+)': (?P<code>\d+)"),
    ),
    LineRule(
        name="worker died", role="death", literal="died unexpectedly", process="Worker",
        pattern=re.compile(r"Worker proc (?P<process>[\w-]+) died unexpectedly(?: \(exit code: (?P<code>-?\d+)\))?"),
    ),
    LineRule(
        name="engine died", role="death", literal="died unexpectedly", process="EngineCore",
        pattern=re.compile(
            r"Engine core proc (?P<process>[\w-]+) died unexpectedly(?: \(exit code: (?P<code>-?\d+)\))?"
        ),
    ),
    LineRule(
        name="engine exited", role="death", literal="engine core exited", process="EngineCore",
        pattern=re.compile(r"engine core exited unexpectedly"),
    ),
    LineRule(
        name="shard signaled", at_end=True, role="death", literal="signaled to shutdown", process="shard",
        pattern=re.compile(r"Shard process was signaled to shutdown with signal (?P<signal>\d+)"),
    ),
    LineRule(
        name="shard cannot start", at_end=True, role="death", literal="Error: ShardCannotStart", process="shard",
        pattern=re.compile(r"^Error: ShardCannotStart"),
    ),
    LineRule(
        name="torchrun", at_end=True, role="death", literal="received by PID", process="rank",
        pattern=re.compile(r"Signal (?P<signal>\d+) \(SIG\w+\) received by PID"),
    ),
    LineRule(
        name="died with signal", at_end=True, role="death", literal="died with <Signals.", process="a process",
        pattern=re.compile(r"died with <Signals\.SIG\w+: (?P<signal>\d+)>"),
    ),
    # Only codes that stand for a signal: what else a child exits with, it has said itself.
    LineRule(
        name="exit code of a container", at_end=True, role="death", literal="exited with ", process="the server",
        pattern=re.compile(r"exited with (?:exit )?(?:code|status):? (?P<code>1[3-5]\d|-\d+)\b"),
    ),
    LineRule(
        name="shell says killed", at_end=True, role="death", signal=9, literal=" Killed    ", process="the server",
        pattern=re.compile(r": line \d+: +\d+ Killed {4}"),
    ),
    LineRule(
        name="killed", at_end=True, role="death", signal=9, literal="Killed", process="the server",
        pattern=re.compile(r"^Killed$"),
    ),
    LineRule(
        name="systemd", at_end=True, role="death", literal="Main process exited, code=", process="the server",
        pattern=re.compile(r"Main process exited, code=(?:killed|dumped), status=(?P<signal>\d+)/"),
    ),
    LineRule(
        name="srun killed", at_end=True, role="death", signal=9, literal="srun: error: ", process="a task",
        pattern=re.compile(r"^srun: error: .*: tasks? \S+: Killed"),
    ),
    LineRule(
        name="srun exit code", at_end=True, role="death", literal="Exited with exit code", process="a task",
        pattern=re.compile(r"^srun: error: .*: tasks? \S+: Exited with exit code (?P<code>1[3-5]\d)\b"),
    ),
    LineRule(
        name="worker of 2024 died", at_end=True, role="death", literal=" died, exit code: ", process="Worker",
        pattern=re.compile(r"Worker (?P<process>\w+) pid \d+ died, exit code: (?P<code>-?\d+)"),
    ),
    LineRule(
        name="exit code of a pod", at_end=True, role="death", literal="Exit Code:    1", process="the server",
        pattern=re.compile(r"^\s*Exit Code: {4}(?P<code>1[3-5]\d)\b"),
    ),
    LineRule(
        name="exit code of a process", at_end=True, role="death", literal="(exitcode: -", process="a process",
        pattern=re.compile(r"\(exitcode: (?P<code>-\d+)\)"),
    ),
    LineRule(
        name="scheduler dead", role="death", literal="scheduler is dead", process="scheduler",
        pattern=re.compile(r"Rank \d+ scheduler is dead"),
    ),
    LineRule(
        name="scheduler died", role="death", literal="scheduler died", process="scheduler",
        pattern=re.compile(r"Rank \d+ scheduler died.*exit code: (?P<code>-?\d+)"),
    ),
    LineRule(
        name="child failed", role="hearsay", literal="sigquit from a child", process="scheduler",
        pattern=re.compile(r"Received sigquit from a child proces+\."),
    ),
    LineRule(
        name="engine told to stop", role="stopped", literal="trigger received signal", process="EngineCore",
        pattern=re.compile(r"\[shutdown\] EngineCore: trigger received signal=(?P<exception>SIG[A-Z]+)"),
    ),
    LineRule(
        name="worker left", role="hearsay", literal="WorkerProc was terminated", process="Worker",
        pattern=re.compile(r"^WorkerProc was terminated"),
        message="Worker was told to stop, or left by itself (sys.exit)",
    ),
    # A worker that raised would have logged its traceback before.
    LineRule(
        name="worker initialization", role="hearsay", literal="WorkerProc initialization failed", process="Worker",
        pattern=re.compile(r"WorkerProc initialization failed due to an exception"),
    ),
    # Up to 0.29 the braces are empty whatever happened (0.32: {'EngineCore': -9}).
    LineRule(
        name="engine initialization", role="hearsay", literal="Engine core initialization failed", process="EngineCore",
        pattern=re.compile(r"Engine core initialization failed.* Failed core proc\(s\): \{\}"),
    ),
    # --- somebody waits
    LineRule(
        name="broadcast waits", role="hang", literal="shared memory broadcast block", kind="hang",
        pattern=re.compile(r"No available shared memory broadcast block found in \d+ seconds"),
        message="a worker did not answer the engine",
    ),
    LineRule(
        name="scheduler watchdog", role="hang", literal="atchdog timeout (self", kind="hang",
        pattern=re.compile(r"[Ww]atchdog timeout \(self\.watchdog_timeout="),
        message="the scheduler did not come back",
    ),
)  # fmt: skip

LONE = re.compile(r"^(?P<exception>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)): (?P<message>\S.*)")
"""An exception without its traceback."""
WHAT = re.compile(r"^ *what\(\): +(?P<message>.+)")
"""The message of a C++ exception, on the line after `terminate called`."""

LITERALS = (
    "Traceback (most recent", "The above exception was", "During handling of the above", '  File "',
    "Exception ignored ",
    "ERROR", "Error", "Fatal Python error", "Segfault encountered", "world_size=",
)  # fmt: skip
"""Beside those of the rows: what else a reader of a log looks at."""
