"""Many runs as rows, as groups of one failure, and as times to ready over nights. Pure; no run is kept whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.baseline.judgement import WINDOW, Normal, normal
from harness.baseline.samples import question
from harness.record import Launched, Run
from harness.report.cases import RANK_OF_VERDICT, known_words, outcome, under_words
from harness.report.html.facts import titles
from harness.report.html.plots import Row
from harness.report.text import one_line

SAID, LABEL = 400, 34
"""Characters of a sentence, of a name beside a picture."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One run."""

    word: str
    """PASS, FAIL, ERROR, KNOWN or SKIP."""
    title: str
    build: str
    version: str
    node_class: str
    started: str
    ready: tuple[tuple[str, float | None], ...]
    """Of each of its own starts the seconds to ready; None: never."""
    said: str
    notes: tuple[str, ...]
    identity: str
    """Of the signature; empty where there is none."""
    question: str
    plain: bool
    """It was made as it stands: under no workaround, and no probe of a search."""
    link: str
    """A file, from the page; empty: there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Runs that went wrong in one way."""

    word: str
    said: str
    identity: str
    entries: tuple[Entry, ...]
    """The newest first."""

    @property
    def titles(self) -> str:
        return _some([each.title for each in self.entries])

    @property
    def builds(self) -> str:
        return _some([each.version or each.build for each in self.entries])


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """Time to ready of one start of one scenario on one class of node, oldest first."""

    label: str
    values: tuple[float | None, ...]
    words: tuple[str, ...]
    """What each of these runs ended with."""
    usual: Normal | None
    """Of those that passed before the last one."""

    @property
    def slow(self) -> bool:
        return self.usual is not None and (self.values[-1] or 0.0) > self.usual.limit

    @property
    def row(self) -> Row:
        return Row(
            label=self.label if len(self.label) <= LABEL else f"{self.label[: LABEL - 1]}…",
            values=self.values,
            median=self.usual.median if self.usual else None,
            limit=self.usual.limit if self.usual else None,
            bad=frozenset(at for at, word in enumerate(self.words) if word != "PASS"),
        )


def entry(run: Run, link: str) -> Entry:
    return Entry(
        word=outcome(run),
        title=one_line(run.title, SAID),
        build=run.build,
        version=run.version or "",
        node_class=run.node_class,
        started=run.started,
        ready=tuple((each.launch, each.timeline.ready) for each in _in_order(run) if each.timeline.phases),
        said=one_line(titles(run)[0], SAID),
        notes=tuple(one_line(each, SAID) for each in (known_words(run), under_words(run)) if each),
        identity=run.signature.id if run.signature else "",
        question=question(run),
        plain=not run.under and not run.probe,
        link=link,
    )


def _in_order(run: Run) -> list[Launched]:
    order = list(run.resolved.get("starts") or [])
    return sorted(run.own, key=lambda each: order.index(each.launch) if each.launch in order else len(order))


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """The worst first, and of these the newest."""
    newest = sorted(entries, key=lambda each: each.started, reverse=True)
    return sorted(newest, key=lambda each: RANK_OF_VERDICT[each.word])


def groups(entries: Iterable[Entry]) -> list[Group]:
    """What went wrong, each thing once: the worst first, then what happened most often."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for each in ordered(entries):
        if each.word in ("FAIL", "ERROR", "KNOWN"):
            found.setdefault((each.word, each.identity or each.said), []).append(each)
    made = [
        Group(word=word, said=alike[0].said, identity=alike[0].identity, entries=tuple(alike))
        for (word, _), alike in found.items()
    ]
    return sorted(made, key=lambda group: (RANK_OF_VERDICT[group.word], -len(group.entries)))


def courses(entries: Iterable[Entry]) -> list[Course]:
    """What has at least two times: first what is slower than it should be, then by name."""
    found: dict[tuple[str, str, str, str], list[tuple[float | None, str]]] = {}
    for each in sorted(entries, key=lambda each: each.started):
        for start, seconds in each.ready if each.plain else ():
            found.setdefault((each.title, start, each.node_class, each.question), []).append((seconds, each.word))
    made = [
        _course(f"{title}{f' {start}' if start else ''} · {node}", seen)
        for (title, start, node, _), seen in found.items()
        if sum(seconds is not None for seconds, _ in seen) > 1
    ]
    return sorted(made, key=lambda course: (not course.slow, course.label))


def _course(label: str, seen: Sequence[tuple[float | None, str]]) -> Course:
    shown = seen[-(WINDOW + 1) :]
    passed = [seconds for seconds, word in seen[:-1] if seconds is not None and word == "PASS"]
    return Course(
        label=label,
        values=tuple(seconds for seconds, _ in shown),
        words=tuple(word for _, word in shown),
        usual=normal(passed),
    )


def _some(words: Sequence[str], most: int = 6) -> str:
    different = list(dict.fromkeys(words))
    more = f" and {len(different) - most} more" if len(different) > most else ""
    return ", ".join(different[:most]) + more
