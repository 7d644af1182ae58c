"""The last step of a night: what the jobs left is merged, annotated, and new failures are handed to bisections.

artifacts of each job ─▶ collected/KEY/reports/RUN ─┬─▶ collected/junit/BUILD.xml
                                                   ├─▶ one annotation a scenario, one of all
                                                   └─▶ nights ─▶ collected/bisect.yml, uploaded
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import record, report
from harness import run as running
from harness.build import Build, parse
from harness.errors import UsageError
from harness.pipeline import nights, steps, text
from harness.pipeline.agent import Agent, Style
from harness.pipeline.jobs import Job, slug
from harness.pipeline.nights import Nights
from harness.pipeline.steps import COLLECTED, REPORTS, Shop, Step
from harness.record import Run, replace_text, writable
from harness.report import summary
from harness.report.cases import outcome
from harness.report.markdown import code, escape, joined

ORDERED = ("release", "source", "commit")
"""Kinds of builds between two of which harness knows an order."""
_STYLES: dict[str, Style] = {"PASS": "success", "KNOWN": "info", "SKIP": "info", "FAIL": "error", "ERROR": "warning"}
_WORST: tuple[Style, ...] = ("error", "warning", "info", "success")


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """A job, and what it left."""

    job: Job
    run: Run | None = None
    folder: Path | None = None
    trouble: str = ""
    """Why there is no record; empty where there is one."""

    @property
    def style(self) -> Style:
        return _STYLES[outcome(self.run)] if self.run else "warning"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the command line says of bisections."""

    nights: Path | None = None
    good: Build | None = None
    """Good, where no night knows better."""
    repo: Path | None = None


def collect(
    jobs: Sequence[Job], *, agent: Agent, shop: Shop, asked: Asked, folder: Path = Path(COLLECTED)
) -> list[Done]:
    """Do all of it; what each job left, in their order.

    Raises:
        NodeError: the agent refuses a step or an annotation, or another job has the file of the nights.
        UsageError: that file is none of ours.
    """
    done = [_fetched(job, agent, folder) for job in jobs]
    _merge(done, folder)
    for title, group in _by_title(done):
        body = joined([_block(each) for each in group], [])
        agent.annotate(body, style=_worst(group), context=slug("run", title))
    with nights.kept(asked.nights) as past:
        made, words = _bisections(done, past, agent=agent, shop=shop, asked=asked)
        _upload(made, agent, folder)
    agent.annotate(_overview(done, words, folder), style=_worst(done), context=slug("all", *(job.key for job in jobs)))
    return done


def _fetched(job: Job, agent: Agent, folder: Path) -> Done:
    """The newest record of a job: one that was retried on the same machine may have sent both."""
    place = folder / job.key
    trouble = agent.download(f"{REPORTS}/**/*", place, step=job.key)
    found = sorted(_records(place / REPORTS), key=lambda pair: (pair[0].started, pair[0].id))
    if not found:
        return Done(job=job, trouble=trouble or "it left no record")
    run, where = found[-1]
    return Done(job=job, run=run, folder=where)


def _records(reports: Path) -> Iterator[tuple[Run, Path]]:
    for file in sorted(reports.glob("*/run.json")):
        try:
            yield record.load(file), file.parent
        except UsageError:  # half a file: the machine went away while it was sent
            continue


def _merge(done: Sequence[Done], folder: Path) -> None:
    """One JUnit file for each build: in one file two builds would be two attempts at the same cases."""
    with writable(folder):
        (folder / "junit").mkdir(parents=True, exist_ok=True)
        for build in dict.fromkeys(str(each.job.build) for each in done):
            made = [each.folder for each in done if str(each.job.build) == build and each.folder]
            if made:
                report.write_junit(made, folder / "junit" / f"{slug('night', build)}.xml")


def _by_title(done: Sequence[Done]) -> Iterator[tuple[str, list[Done]]]:
    for title in dict.fromkeys(each.job.scenario.title for each in done):
        yield title, [each for each in done if each.job.scenario.title == title]


def _worst(done: Iterable[Done]) -> Style:
    there = {each.style for each in done}
    return next(style for style in _WORST if style in there)


def _block(done: Done) -> str:
    if done.run and done.folder:
        return summary.render(done.run, done.folder)
    lost = f"### ERROR · {escape(done.job.scenario.title)} · no record of {code(str(done.job.build))}"
    return f"{lost}\n\n{escape(done.trouble)}\n\n**What to do:** read the log of its job; it may never have begun"


def _overview(done: Sequence[Done], bisections: Sequence[str], folder: Path) -> str:
    table = report.render_many([each.folder for each in done if each.folder])
    lost = [
        f"- no record: {escape(each.job.scenario.title)} on {code(str(each.job.build))}"
        for each in done
        if not each.run
    ]
    body = joined([table.rstrip("\n"), "\n".join(lost), "\n".join(f"- {line}" for line in bisections)], [])
    with writable(folder):
        replace_text(folder / "summary.md", body)
    return body


# --- what is new


def _bisections(
    done: Sequence[Done], past: Nights, *, agent: Agent, shop: Shop, asked: Asked
) -> tuple[list[Step], list[str]]:
    """A step for each failure that is new, and a line on each failure; the builds of one night teach each other."""
    made: list[Step] = []
    words: list[str] = []
    for each in done:
        run = each.run
        if run and run.verdict == "FAIL" and run.signature and not run.expected:
            if past.is_new(run, met_in=agent.build):
                good = past.of(run).green or str(asked.good or "")
                step, line = _search(each.job, run, good, shop=shop, asked=asked)
                made += [step] if step else []
            else:
                line = "it was red before: no new bisection"
            words.append(f"{escape(run.title)} {code(run.signature.id)}: {line}")
        if run:
            past.learn(run, met_in=agent.build)
    return made, words


def _search(job: Job, run: Run, good: str, *, shop: Shop, asked: Asked) -> tuple[Step | None, str]:
    bad = nights.named(run)
    assert run.signature is not None  # nothing else is searched for
    if not good:
        return None, "new, but no build is known to be good: name one with --good, or keep the nights with --nights"
    if parse(good).kind != parse(bad).kind or parse(bad).kind not in ORDERED:
        return (
            None,
            f"new, but between {code(good)} and {code(bad)} no order is known: list them in a file for --builds",
        )
    if good == bad:
        return None, f"new, but {code(good)} was green before: it comes and goes"
    finer = ["--repo", str(asked.repo)] if asked.repo else []
    ends = ["--good", good, "--bad", bad, "--signature", run.signature.id]
    sets = [word for each in shop.sets for word in ("--set", each)]
    words = ["bisect", *running.named(job.scenario), *sets, *ends, *finer]
    return steps.bisect_step(job, words, run.signature.id, shop), f"new since {code(good)}: a bisection was added"


def _upload(made: Sequence[Step], agent: Agent, folder: Path) -> None:
    """Add them to the build, once: Buildkite refuses a key that it has."""
    if not made:
        return
    file, mark = folder / "bisect.yml", slug("harness", *(str(step["key"]) for step in made))
    with writable(folder):
        replace_text(file, text.pipeline(made, head="harness pipeline --collect: what is new, one search each"))
    if not agent.marked(mark):
        agent.upload(file)
        agent.mark(mark)
