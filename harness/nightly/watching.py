"""The newest build of each source of builds, and the order in which its builds came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from harness import git, node
from harness.bisect import choosing
from harness.bisect.choosing import Ends
from harness.bisect.ranges import Range
from harness.build import Accelerator, Build, parse
from harness.clock import Deadline
from harness.environment import commit_index
from harness.errors import BuildError, NodeError, UsageError
from harness.events import Event, OnEvent
from harness.nightly.config import Commits, Config, Watch
from harness.record import Run
from harness.runtimes.vllm_recipes import recipe
from harness.scenario.format import in_range

NEXT = Version("9999")
"""A release that nobody has seen yet is called as the last ones are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """A source of builds, and the newest that it has."""

    watch: Watch
    build: Build

    def before(self, one: Build, config: Config) -> bool:
        """Whether a build came before the newest one, as far as there is an order that can be told without a search."""
        if self.watch.releases:
            return one.kind == "release" and one.version < self.build.version
        if self.watch.list:
            listed = choosing.listed(config.local(self.watch.list))
            return one in listed and listed.index(one) < listed.index(self.build)
        return self.watch.commits is not None and one.kind == "commit" and one != self.build

    def latest(self, runs: Sequence[Run], config: Config) -> Run | None:
        """Of runs on builds that came before the newest one that on the last of these builds."""
        order = choosing.listed(config.local(self.watch.list)) if self.watch.list else ()

        def place(run: Run) -> tuple[Version, int, str]:
            build = parse(run.build)
            version = build.version if build.kind == "release" else Version("0")
            return version, order.index(build) if order else 0, run.started

        return max(runs, key=place, default=None)

    def between(self, good: Build, config: Config) -> tuple[Ends, Range]:
        """The builds from a good one to the newest.

        Raises:
            UsageError: there is no order between them.
            NodeError: the package index cannot be read.
        """
        ends = Ends(good=good, bad=self.build)
        if self.watch.list:
            return choosing.of_list(config.local(self.watch.list), good=good, bad=self.build, fix=False)
        repo = self.watch.repo or (self.watch.commits and self.watch.commits.repo)
        return ends, choosing.between(ends, repo=config.local(repo) if repo else None)


def newest(watch: Watch, config: Config, on_event: OnEvent) -> Watched:
    """Ask where the builds come from.

    Raises:
        UsageError: there is none.
        NodeError: an index cannot be read.
    """
    if watch.releases:
        found = _release(watch.releases, watch.accelerator)
    elif watch.commits:
        found = _commit(watch.commits, config.local(watch.commits.repo), watch.accelerator, on_event)
    else:
        found = choosing.listed(config.local(watch.list))[-1] if watch.list else parse(watch.build or "current")
    return Watched(watch=watch, build=found)


def _release(wanted: str, accelerator: Accelerator | None) -> Build:
    from harness.bisect import releases  # noqa: PLC0415 - needs a library that an offline node may lack

    distribution = recipe(NEXT, accelerator or node.read().accelerator).distribution
    there = [each.version for each in releases.available(distribution) if not each.yanked]
    fitting = [version for version in there if not version.is_prerelease and in_range(version, wanted)]
    if not fitting:
        raise UsageError(
            f'{distribution} has no release in "{wanted}" for this Python and machine', fix="widen the range"
        )
    return replace(parse(str(max(fitting))), accelerator=accelerator)


def _commit(commits: Commits, repo: Path, accelerator: Accelerator | None, on_event: OnEvent) -> Build:
    """The newest commit that has a wheel: fresh ones wait for theirs, some never get one."""
    machine = accelerator or node.read().accelerator
    for sha in _line(commits, repo):
        where = replace(commit_index.index(sha), wait=0.0)
        try:
            commit_index.find(where, machine, deadline=Deadline.after(0), on_step=_unheard)
        except BuildError:
            on_event(Event(kind="notice", text=f"{sha[:12]} has no wheel, looking further back"))
            continue
        return Build(kind="commit", ref=sha, accelerator=accelerator)
    raise NodeError(
        f"none of the last {commits.depth} commits of {commits.rev} has a wheel in the index",
        fix=f"fetch, correct {commit_index.INDEX}, or raise `depth`",
    )


def _line(commits: Commits, repo: Path) -> list[str]:
    words = ("rev-list", "--first-parent", f"--max-count={commits.depth}", "--end-of-options", commits.rev)
    try:
        return git.ask(repo, *words).splitlines()
    except git.GitError as error:
        raise UsageError(f"{repo} has no commits of {commits.rev}: {error}", fix="name a clone and a branch") from error


def _unheard(text: str) -> None:
    """That a wheel is waited for: none is."""
    del text
