"""What a run says beside those before it: still green, red, known, slower, repaired. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.baseline.samples import samples
from harness.checks.startup_time import NAME as STARTUP_TIME
from harness.checks.startup_time import StartupTimeParams, judge
from harness.record import Run
from harness.report import compare
from harness.report.cases import headline, outcome
from harness.runtimes.vllm_recipes import DISTRIBUTIONS

Status = Literal["FAIL", "ERROR", "SLOW", "KNOWN", "SKIP", "PASS"]
News = Literal["new", "still", "fixed", ""]
ORDER: tuple[Status, ...] = ("FAIL", "ERROR", "SLOW", "KNOWN", "SKIP", "PASS")
"""The worst first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One scenario on one build that is watched."""

    title: str
    build: str
    node_class: str
    status: Status
    news: News = ""
    said: str = ""
    """One sentence."""
    fix: str = ""
    version: str | None = None
    signature: str = ""
    """Id of what it failed with."""
    run: str = ""
    """Its folder; empty where nothing ran."""
    green: str = ""
    """The run before it that passed last."""
    green_build: str = ""
    packages: tuple[str, ...] = ()
    """Beside the build itself, what differs from that run."""
    reproduce: str = ""

    @property
    def key(self) -> str:
        """Of what is worth telling once; empty: nothing is.

        A failure that goes on over many builds is one piece of news until something was green in between.
        """
        who = f"{self.title} on {self.node_class}"
        if self.status == "FAIL":
            return f"red {who} {self.signature} since {self.green or 'ever'}"
        if self.status == "ERROR":
            return f"error {who} {self.build} {self.run}"
        if self.status == "SLOW" or self.news == "fixed":
            return f"{self.news or 'slow'} {who} {self.run}"
        return ""


def judged(
    run: Run, *, earlier: Sequence[Run], green: Run | None, past: Mapping[tuple[str, str], Sequence[float]]
) -> Row:
    """One run as a row.

    `earlier` are runs of the same question on builds before this one, `green` the last of them that passed, `past` is
    the history of start-up times.
    """
    slower = _slower(run, past)
    status = _status(run, slower)
    return Row(
        title=run.title,
        build=run.build,
        node_class=run.node_class,
        status=status,
        news=_news(run, earlier=earlier, green=green),
        said=slower if status == "SLOW" else headline(run),
        fix="`harness baseline accept` the run if it is meant to be so" if status == "SLOW" else run.fix,
        version=run.version,
        signature=run.signature.id if run.signature and run.verdict == "FAIL" else "",
        run=run.id,
        green=green.id if green else "",
        green_build=green.build if green else "",
        packages=compare.packages(green, run, held=DISTRIBUTIONS) if green and status in ("FAIL", "SLOW") else (),
        reproduce=run.reproduce,
    )


def _status(run: Run, slower: str) -> Status:
    found = outcome(run)
    if found == "PASS":
        return "SLOW" if slower else "PASS"
    by_word: Mapping[str, Status] = {"FAIL": "FAIL", "KNOWN": "KNOWN", "SKIP": "SKIP"}
    return by_word.get(found, "ERROR")


def _slower(run: Run, past: Mapping[tuple[str, str], Sequence[float]]) -> str:
    """Why it is slower than is normal here; empty: it is not, or the scenario has a check that says so itself."""
    if run.verdict != "PASS" or STARTUP_TIME in (run.resolved.get("checks") or {}):
        return ""
    found = judge(StartupTimeParams(), samples(run), past)
    return found.message if found.outcome == "fail" else ""


def _news(run: Run, *, earlier: Sequence[Run], green: Run | None) -> News:
    since = [each for each in earlier if green is None or each.started > green.started]
    if run.verdict == "FAIL" and not run.expected and run.signature:
        alike = (each for each in since if each.signature and each.verdict == "FAIL")
        return "still" if any(each.signature.id == run.signature.id for each in alike if each.signature) else "new"
    last = max(earlier, key=lambda each: each.started, default=None)
    return "fixed" if run.verdict == "PASS" and last and last.verdict == "FAIL" else ""


def same_question(run: Run, meaning: str, classes: Collection[str]) -> bool:
    return run.meaning == meaning and run.node_class in classes
