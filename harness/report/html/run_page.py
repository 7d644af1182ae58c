"""The page of one run: verdict and title first, then what a reader asks next."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from harness import launches
from harness.record import Launched, Run
from harness.report.cases import (
    RANK_OF_VERDICT,
    environment,
    known_words,
    outcome,
    signature_facts,
    under_words,
    verdict,
)
from harness.report.html import excerpts, facts, plots, stacks
from harness.report.html.log import PAGE_BYTES, Packed, pack
from harness.report.html.page import fill
from harness.report.node_facts import remarks
from harness.report.text import log_excerpt

NAME = "report.html"
PRINTED_BYTES = 30_000
"""Of a log, what stands on paper and where no script runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerPart:
    """One server on the page."""

    name: str
    of: Launched
    phases: tuple[facts.PhaseRow, ...]
    timeline: Markup
    trend: facts.Trend | None
    lines: Markup
    """The trend as a picture."""
    log: Packed | None
    printed: str


def render(run: Run, folder: Path) -> str:
    """The page of a run, from its record and what is in its folder."""
    shown = [each for each in (run.launched, *run.others) if each.argv or each.timeline.phases] or [run.launched]
    held, more_held = stacks.read(folder)
    room = PAGE_BYTES // len(shown)
    choosing = [each for each in shown if each.choices]
    title, under = facts.titles(run)
    return fill(
        "run.html",
        run=run,
        word=outcome(run),
        headline=title,
        under_headline=under,
        notes=[words for words in (known_words(run), under_words(run)) if words],
        where=environment(run),
        identity=signature_facts(run) if verdict(run) != "PASS" or run.signature else (),
        excerpts=excerpts.read(folder / run.log, run.evidence),
        checks=run.checks,
        case=launches.case,
        servers=[_server(run, each, at, folder, room) for at, each in enumerate(shown)],
        few=facts.few(run),
        at_end=run.quiet_seconds is not None,
        chosen_by=[each.launch or "the server" for each in choosing],
        choices=list(facts.choices(choosing)),
        facts=facts,
        remarks=remarks(run),
        stacks=held,
        more_stacks=more_held,
        pictures=plots.available(),
        without=plots.WITHOUT,
        rank=RANK_OF_VERDICT,
    )


def _server(run: Run, launched: Launched, at: int, folder: Path, room: int) -> ServerPart:
    own = {each.launch for each in run.own}
    nights = run.nights if launched.launch in own else ()
    rows = facts.phases(launched, nights)
    over = facts.trend(run, launched) if nights else None
    evidence = run.evidence if launched.log == run.log else ()
    file = folder / launched.log
    return ServerPart(
        name=launched.launch or "the server",
        of=launched,
        phases=rows,
        timeline=plots.timeline(facts.bars(rows), name=f"timeline-{at}"),
        trend=over,
        lines=plots.trend(over.rows, name=f"trend-{at}") if over else Markup(),
        log=pack(file, evidence, room=room),
        printed=log_excerpt(file, evidence, limit=PRINTED_BYTES),
    )
