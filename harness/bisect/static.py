"""The first build in which a contract is broken, or kept again: judged from sources, so no server is started.

    GOOD    the class is there and keeps the contract
    BAD     the finding is there
    MASKED  this build has no such class
    SKIP    its sources cannot be had

The search, the order of builds and the reports are those of every bisection; sources say the same each time, so nothing
is looked at twice.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from harness import __version__, clock, node
from harness.bisect import ends, strategies
from harness.bisect.choosing import Ends
from harness.bisect.ends import UNREACHED, Unfit
from harness.bisect.ledger import Ledger
from harness.bisect.marks import Judged
from harness.bisect.outcome import Bisection, Probe
from harness.bisect.ranges import Range
from harness.bisect.search import Answer, Seen, Unknown
from harness.build import Build
from harness.contracts import fetching, keeping
from harness.contracts.contracts_file import Contracts
from harness.contracts.model import Finding, Rule, State
from harness.contracts.reading import Sources
from harness.errors import BuildError, Interrupted, UsageError
from harness.record import writable
from harness.signature import Signature

_CLASS = re.compile(r"_*[A-Z]\w*")
FORM = "write RULE:CLASS, RULE:CLASS.MEMBER, or with =live at the end for what somebody runs into"


@dataclass(frozen=True, kw_only=True, slots=True)
class Contract:
    """What `--contract` names."""

    rule: Rule
    name: str
    """The end of a finding's dotted name: `Class`, `Class.member`, `package.module.Class.member`."""
    state: State | None = None
    """None: latent counts as broken too."""

    def __str__(self) -> str:
        return f"{self.rule}:{self.name}" + (f"={self.state}" if self.state else "")

    def broken_by(self, finding: Finding) -> bool:
        ends_of = (finding.subject, f"{finding.subject}.{finding.member}")
        named = any(each == self.name or each.endswith(f".{self.name}") for each in ends_of)
        return finding.rule == self.rule and named and self.state in (None, finding.state)

    def reachable(self, sources: Sources) -> bool:
        """Whether a build has the class; an import is looked for in whatever there is."""
        name = next((part for part in self.name.split(".") if _CLASS.fullmatch(part)), "")
        defined = re.compile(rf"^[ \t]*class[ \t]+{name}\b", re.MULTILINE)
        if not name or self.rule == "missing-import":
            return True
        return any(name in text and defined.search(text) for file in sources.names if (text := sources.text(file)))

    def unheard_of(self, sources: Sources) -> str:
        """Words for a member whose name is nowhere in a build, as one that was mistyped is."""
        member = self.name.rpartition(".")[2]
        if any(member in sources.text(file) for file in sources.names):
            return ""
        return f", for nothing in this build is called {member}"


def parse(word: str) -> Contract:
    """Read RULE:CLASS[.MEMBER][=STATE].

    Raises:
        UsageError: it is none.
    """
    rule, _, rest = word.partition(":")
    name, equals, state = rest.partition("=")
    if rule not in get_args(Rule):
        close = difflib.get_close_matches(rule, get_args(Rule), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(
            f"--contract {word!r}: there is no rule {rule!r}{hint}", fix=f"one of {', '.join(get_args(Rule))}"
        )
    if not name or (equals and state not in get_args(State)):
        raise UsageError(f"--contract {word!r} names nothing", fix=FORM)
    return Contract(rule=rule, name=name, state=state or None)  # type: ignore[arg-type]  # both checked above


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Says of one build whether it breaks a contract."""

    contract: Contract
    contracts: Contracts

    def __call__(self, build: Build, on_step: Callable[[str], None]) -> Judged:
        try:
            sources = fetching.of_build(build, self.contracts.package, on_step=on_step)
        except BuildError as error:
            return Judged(mark="SKIP", why=error.what, blame=error.blame)
        report = keeping.report(sources, self.contracts, build=str(build))
        found = next((each for each in report.findings if self.contract.broken_by(each)), None)
        if found:
            return Judged(mark="BAD", why=f"{found.state}: {found.message}")
        if not self.contract.reachable(sources):
            why = f"not exercised: this build has no {self.contract.name}"
            return Judged(mark="MASKED", why=why, masking="not exercised")
        return Judged(mark="GOOD", why=f"the contract is kept{self.contract.unheard_of(sources)}")


def begin(
    judge: Judge, named: Ends, builds: Range, *, out: Path, command: str, allow_unreached: bool, repo: str
) -> tuple[Bisection, Path]:
    """The first record and its folder; the same question has the same.

    Raises:
        NodeError: the folder cannot be made.
    """
    asked = [str(judge.contract), judge.contracts.model_dump_json(by_alias=True), str(named.good), str(named.bad)]
    rest: list[Any] = [named.fix, allow_unreached, repo, list(map(str, builds.builds))]
    digest = hashlib.sha256(json.dumps([*asked, *rest]).encode()).hexdigest()[:8]
    name = f"bisect-contract-{digest}"
    with writable(out / name):
        (out / name).mkdir(parents=True, exist_ok=True)
    told = Bisection(
        id=name,
        scenario=f"contract {judge.contract}",
        variant=None,
        good=str(named.good),
        bad=str(named.bad),
        fix=named.fix,
        node_class=node.read().node_class,
        command=command,
        started=clock.utc(),
        harness=__version__,
        signature=_signature(judge.contract),
    )
    return told, out / name


def _signature(contract: Contract) -> Signature:
    """The contract in the place of a failure, for the reports."""
    identity = hashlib.sha256(str(contract).encode()).hexdigest()[:12]
    return Signature(
        id=identity, kind="other", exception=None, message=str(contract), normalised=str(contract), frames=(),
        process=None, phase=None, ranks=None, title=f"a broken contract {contract}",
    )  # fmt: skip


class Driver:
    """Carries one such bisection out."""

    def __init__(self, ledger: Ledger, judge: Judge, *, fix: bool, allow_unreached: bool) -> None:
        self._ledger, self._judge, self._fix, self._allow = ledger, judge, fix, allow_unreached
        self._known: dict[Build, Judged] = {}

    def carry_out(self, builds: Range) -> Bisection:
        """Find the change.

        Raises:
            Interrupted, KeyboardInterrupt: the same command goes on: what was read is kept.
            HarnessError: trouble that is not a build's.
        """
        try:
            self._find(builds)
        except Unfit as error:
            self._ledger.update(ending=error.ending, sentence=error.sentence, fix_hint=error.hint)
        except (Interrupted, KeyboardInterrupt):
            self._ledger.update(state="interrupted", ended=clock.utc())
            raise
        self._ledger.update(state="finished", ended=clock.utc())
        return self._ledger.told

    def _find(self, builds: Range) -> None:
        older, newer = builds.builds[0], builds.builds[-1]
        bad, good = (older, newer) if self._fix else (newer, older)
        self._ledger.note(*builds.notes)
        self._check_bad(bad, self._mark(bad, "bad end"))
        self._check_good(good, self._mark(good, "good end"))
        finer: Range | None = self._from_merge_base(builds)
        while finer:
            builds = finer
            self._ledger.note(*builds.notes)
            self._ledger.update(range=tuple(map(str, builds.builds)), predicted=f"{len(builds.builds)} builds")
            found = self._search(builds)
            between = (builds.builds[found.first - 1], builds.builds[found.last])
            finer = builds.finer(*between) if builds.finer and found.single else None
        self._answer(builds, found)

    def _mark(self, build: Build, role: Any) -> Judged:
        begun = clock.now()
        judged = self._known.setdefault(build, self._judge(build, self._ledger.say))
        seconds = round(clock.now() - begun, 1)
        self._ledger.tell_probe(
            Probe(build=str(build), role=role, mark=judged.mark, why=judged.why, runs=(), seconds=seconds)
        )
        return judged

    def _check_bad(self, bad: Build, judged: Judged) -> None:
        if judged.mark == "SKIP":
            raise Unfit("error", f"the bad end {bad} could not be judged: {judged.why}", hint="name another one")
        if judged.mark != "BAD":
            raise Unfit(
                "not reproduced",
                f"the bad end {bad} does not break {self._judge.contract}: {judged.why}",
                hint="`harness contracts BUILD` says what a build breaks",
            )

    def _check_good(self, good: Build, judged: Judged) -> None:
        if judged.mark == "SKIP":
            raise Unfit("error", f"the good end {good} could not be judged: {judged.why}", hint="name another one")
        if judged.mark == "BAD":
            hint = f"name {'a newer' if self._fix else 'an older'} one: all of these have it"
            raise Unfit("no culprit", f"the good end {good} breaks it too, {judged.why}", hint=hint)
        if judged.mark == "MASKED" and not self._allow:
            hint = "name another good end, or --allow-unreached: what has no such class breaks nothing"
            raise Unfit("not reproduced", f"the good end {good}: {judged.why}", hint=hint)

    def _from_merge_base(self, builds: Range) -> Range:
        base = builds.merge_base
        if base is None or base in builds.builds:
            return builds
        side = self._side(self._mark(base, "merge base"))
        if side == "after":
            raise ends.unfit_base(base, builds.builds[0], fix=self._fix)
        return replace(builds, builds=(base, *builds.builds[1:]), merge_base=None) if side == "before" else builds

    def _side(self, judged: Judged) -> Seen:
        if judged.mark == "BAD":
            return "before" if self._fix else "after"
        if judged.mark == "GOOD" or (self._allow and judged.masking in UNREACHED):
            return "after" if self._fix else "before"
        return Unknown(cause=judged.cause)

    def _search(self, builds: Range) -> Answer:
        while True:
            seen = {at: self._side(self._known[each]) for at, each in enumerate(builds.builds) if each in self._known}
            now = strategies.Settling(size=len(builds.builds), seen=seen)
            if found := now.answer():
                return found
            for position in now.targets(workers=1, running=()):
                self._mark(builds.builds[position], "probe")

    def _answer(self, builds: Range, found: Answer) -> None:
        culprits = tuple(str(builds.builds[at]) for at in range(found.first, found.last + 1))
        before, last = builds.builds[found.first - 1], builds.builds[found.last]
        inside = (builds.builds[at] for at in range(found.first, found.last))
        reason = next((self._known[each].why for each in inside if each in self._known), "")
        self._ledger.update(
            ending="found" if found.single else "range",
            culprits=culprits,
            before=str(before),
            untested=tuple(str(builds.builds[at]) for at in found.untested),
            sentence=ends.answered(culprits, self._ledger.told, reason),
            log=builds.log(before, last) if builds.log else "",
        )
