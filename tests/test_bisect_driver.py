"""A bisection on histories with every kind of trouble in them; the builds are answered from a table."""

import json

import bisecting
import pytest
from bisecting import Bug, History
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.bisect import beginning, outcome, rendering
from harness.bisect.bench import Bench
from harness.bisect.choosing import Ends
from harness.bisect.driver import Driver
from harness.bisect.memory import Memory
from harness.bisect.ranges import Range
from harness.bisect.wish import Wish
from harness.known import Patch, beside

CHASED = "the one that is chased"


class Search:
    """One command line, as often as it takes."""

    def __init__(self, monkeypatch, folder, history, *, fix=False, patches=(), **wish):
        bisecting.patched(monkeypatch, history)
        self.history, self.fix, self.folder = history, fix, folder
        self.scenario = bisecting.scenario(folder)
        self.patches = patches
        self.wish = Wish(prefetch=False, **wish)
        self.events = []

    def __call__(self, *at, fresh=False, **words):
        """`at`: the builds of the range by their places; all of them where none are given."""
        builds = tuple(self.history.builds[each] for each in at) or self.history.builds
        older, newer = builds[0], builds[-1]
        ends = Ends(good=newer, bad=older, fix=True) if self.fix else Ends(good=older, bad=newer)
        bench = Bench(
            scenario=self.scenario, out=self.folder / "out", memory=Memory(self.folder / "out"),
            known=beside(self.scenario.path), fix=self.fix, patches=tuple(self.patches),
        )  # fmt: skip
        told, folder, bench = beginning.begin(
            bench, ends, Range(builds=builds), self.wish, fresh=fresh, command="harness bisect …"
        )
        driver = Driver(told, bench, self.wish, folder=folder, on_event=self.events.append)
        try:
            return driver.carry_out(Range(builds=builds, **words))
        finally:
            rendering.write(driver.told, folder)


@pytest.fixture
def search(monkeypatch, tmp_path):
    def make(*args, **words):
        return Search(monkeypatch, tmp_path, *args, **words)

    return make


def test_a_clean_range_takes_the_fewest_probes_that_any_search_can(search):
    history = History(33, [Bug(CHASED, 20, 32)])
    told = search(history)()
    assert (told.ending, told.culprits, told.before) == ("found", ("release:0.20.0",), "release:0.19.0")
    assert told.sentence == f"release:0.20.0 is the first build with RuntimeError: {CHASED}"
    roles = [probe.role for probe in told.probes]
    assert roles == ["bad end", "good end", *["probe"] * 5, "again", "again"]


def test_fix_finds_the_first_build_without_it(search):
    history = History(17, [Bug(CHASED, 0, 9)])
    told = search(history, fix=True)()
    assert (told.ending, told.culprits, told.before) == ("found", ("release:0.10.0",), "release:0.9.0")
    assert "first build without" in told.sentence


@pytest.mark.parametrize(
    ("bugs", "broken", "ending", "said"),
    [
        ([], (), "not reproduced", "the bad end release:0.7.0 passes: ready after 7.0 s, 2 checks passed"),
        (
            [Bug(CHASED, 0, 7)],
            (),
            "no culprit",
            f"the good end release:0.0.0 fails the same way: RuntimeError: {CHASED}",
        ),
        (
            [Bug(CHASED, 3, 7, phase="capture#2"), Bug("another", 0, 1)],
            (),
            "not reproduced",
            "the good end release:0.0.0 fails otherwise, covered by RuntimeError: another",
        ),
        (
            [Bug(CHASED, 3, 7, phase="capture#2"), Bug("says no", 0, 1, phase="config#1", kind="config_invalid")],
            (),
            "not reproduced",
            "the good end release:0.0.0 never comes to it, refused: RuntimeError: says no",
        ),
        ([Bug(CHASED, 3, 7)], (7,), "error", "the bad end release:0.7.0 could not be judged: no such wheel"),
        ([Bug(CHASED, 3, 7)], (0,), "error", "the good end release:0.0.0 could not be judged: no such wheel"),
    ],
)
def test_each_end_that_is_not_as_it_was_said_has_its_own_words(search, bugs, broken, ending, said):
    told = search(History(8, bugs, broken=set(broken)))()
    assert (told.ending, told.sentence) == (ending, said)
    assert told.fix_hint
    assert not told.culprits
    assert told.probes[0].build == "release:0.7.0"


def test_a_good_end_that_refuses_is_allowed_by_name_and_then_the_first_that_comes_to_it_is_found(search):
    bugs = [Bug(CHASED, 0, 15, phase="capture#2"), Bug("says no", 0, 9, phase="config#1", kind="config_invalid")]
    told = search(History(16, bugs), allow_unreached=True)()
    assert (told.ending, told.culprits) == ("found", ("release:0.10.0",))


def test_never_one_culprit_across_a_gap(search):
    bugs = [Bug(CHASED, 30, 63, phase="capture#2"), Bug("another", 25, 40)]
    told = search(History(64, bugs))()
    assert told.ending == "range"
    assert told.culprits == tuple(f"release:0.{at}.0" for at in range(25, 42))
    assert told.sentence.endswith("(17 builds): covered by RuntimeError: another")


def test_a_known_failures_workaround_sees_past_what_covers(search, tmp_path):
    cover = Bug("another", 25, 40, cure="cure it")
    history = History(64, [Bug(CHASED, 30, 63, phase="capture#2"), cover])
    bisecting.known(tmp_path, cover)
    told = search(history)()
    assert (told.ending, told.culprits) == ("found", ("release:0.30.0",))
    (rung,) = told.ladder
    assert (rung.cover, rung.hidden) == ("RuntimeError: another", f"RuntimeError: {CHASED}")
    assert set(rung.builds) <= {f"release:0.{at}.0" for at in range(30, 41)}
    under = {probe.under for probe in told.probes if probe.under}
    assert under == {"under edit of f in vllm/a.py, removes nothing"}


def test_a_users_patch_sees_past_what_covers_where_its_range_says(search):
    cover = Bug("another", 25, 40, cure="+cured")
    history = History(64, [Bug(CHASED, 30, 63, phase="capture#2"), cover])
    patch = Patch(name="x.diff", text="+++ b/vllm/a.py\n+cured\n", builds="0.20.0..0.50.0")
    told = search(history, patches=[patch])()
    assert (told.ending, told.culprits) == ("found", ("release:0.30.0",))
    elsewhere = Patch(name="x.diff", text="+++ b/vllm/a.py\n+cured\n", builds=">=0.50.0,<0.60.0")
    assert search(history, patches=[elsewhere])().ending == "range"


def test_a_way_around_that_takes_the_chased_failure_away_too_is_not_believed(search, tmp_path):
    """The edit cures both, so under it every build passes: the masked stretch stays a gap."""
    cover = Bug("another", 25, 40, cure="cure it")
    chased = Bug(CHASED, 30, 63, phase="capture#2", cure="cure it")
    bisecting.known(tmp_path, cover)
    told = search(History(64, [chased, cover]))()
    assert told.ending == "range"
    assert told.culprits == tuple(f"release:0.{at}.0" for at in range(25, 42))
    proofs = [probe for probe in told.probes if probe.role == "proof"]
    assert [proof.mark for proof in proofs] == ["GOOD"]


def test_the_second_of_two_stacked_failures_is_chased_by_its_name(search, tmp_path):
    """The bad end shows it only under the workaround of the first, which is then proved by that alone."""
    first = Bug("outer", 10, 63, cure="cure it")
    bisecting.known(tmp_path, first)
    chased = Bug("inner", 40, 63, phase="capture#2")
    told = search(History(64, [first, chased]), signature="RuntimeError: inner")()
    assert (told.ending, told.culprits) == ("found", ("release:0.40.0",))
    assert told.signature.title == "RuntimeError: inner"
    outer = search(History(64, [first, chased]), signature="RuntimeError: outer")()
    assert (outer.ending, outer.culprits) == ("found", ("release:0.10.0",))


def test_a_signature_that_the_bad_end_does_not_show(search):
    told = search(History(8, [Bug(CHASED, 3, 7)]), signature="abcd")()
    assert told.ending == "not reproduced"
    assert "fails otherwise" in told.sentence
    assert "not abcd" in told.sentence


def test_builds_that_cannot_be_made_are_stepped_aside_from(search):
    history = History(64, [Bug(CHASED, 45, 63)], broken={30, 31, 32, 33, 46, 47})
    told = search(history)()
    assert (told.ending, told.culprits) == ("found", ("release:0.45.0",))


def test_what_changes_its_mind_is_no_culprit(search):
    history = History(8, [Bug(CHASED, 3, 7)], passes={3: [False, True]})
    told = search(history)()
    assert told.ending == "flaky"
    assert "release:0.3.0 was BAD" in told.sentence
    assert "--confidence" in told.fix_hint


def test_what_cannot_be_run_once_more_is_told_and_the_answer_stays(search, monkeypatch):
    history = History(8, [Bug(CHASED, 3, 7)])
    answer = history.answer

    def once(at, under):
        if at == 3 and sum(build == 3 for build, _ in history.executed) > 1:
            return bisecting.run(verdict="ERROR", blame="node", reason="the port was taken")
        return answer(at, under)

    monkeypatch.setattr(history, "answer", once)
    told = search(history)()
    assert told.culprits == ("release:0.3.0",)
    assert told.notes == ("release:0.3.0 could not be run once more: the port was taken",)


def test_the_merge_base_is_judged_first(search):
    """Build 0 is on a branch of its own, which left the line of 2, 3, … at build 1."""
    history = History(16, [Bug(CHASED, 5, 15)])
    told = search(history)(0, *range(2, 16), merge_base=history.builds[1])
    assert told.culprits == ("release:0.5.0",)
    assert [probe.role for probe in told.probes][:3] == ["bad end", "good end", "merge base"]


def test_a_merge_base_that_shows_it_means_that_the_good_end_was_repaired_on_its_branch(search):
    history = History(16, [Bug(CHASED, 1, 15)])
    told = search(history)(0, *range(2, 16), merge_base=history.builds[1])
    assert told.ending == "not reproduced"
    assert told.sentence.startswith("release:0.1.0, from which release:0.0.0 branched off, already shows it")


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_killed_anywhere_the_same_command_goes_on_and_repeats_no_run(data, tmp_path_factory):
    size = data.draw(st.integers(4, 40))
    culprit = data.draw(st.integers(1, size - 1))
    whole = History(size, [Bug(CHASED, culprit, size - 1)])
    broken_off = History(size, [Bug(CHASED, culprit, size - 1)])
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected = Search(monkeypatch, tmp_path_factory.mktemp("whole"), whole)()
    broken_off.dies_at = data.draw(st.integers(0, len(whole.executed) - 1))
    folder = tmp_path_factory.mktemp("broken")
    with pytest.MonkeyPatch.context() as monkeypatch:
        search = Search(monkeypatch, folder, broken_off)
        with pytest.raises(KeyboardInterrupt):
            search()
        (file,) = folder.glob("out/bisect-*/bisection.json")
        assert outcome.load(file).state == "interrupted"
        told = search()
    assert told.culprits == expected.culprits == (f"release:0.{culprit}.0",)
    assert broken_off.executed == whole.executed


def test_nothing_is_run_twice_unless_asked(search):
    history = History(17, [Bug(CHASED, 9, 16)])
    made = search(history)
    first = made()
    count = len(history.executed)
    again = made()
    assert len(history.executed) == count
    assert again.culprits == first.culprits
    made(fresh=True)
    assert len(history.executed) == 2 * count


def test_coarse_first_then_what_lies_between_the_two_found(search):
    history = History(40, [Bug(CHASED, 23, 39)])

    def finer(before, after):
        low, high = history.at(before), history.at(after)
        between = history.builds[low : high + 1]
        return Range(builds=between, notes=("the commits between",)) if len(between) > 2 else None

    told = search(history)(0, 10, 20, 30, 39, finer=finer)
    assert told.culprits == ("release:0.23.0",)
    assert told.notes == ("the commits between",)
    assert told.range == tuple(f"release:0.{at}.0" for at in range(20, 31))


def test_where_the_finer_line_began_after_the_change_the_coarse_answer_stays(search):
    """The merge base of the two releases shows it already: it was repaired on the branch of the good one alone."""
    history = History(12, [Bug(CHASED, 5, 11)])

    def finer(before, after):
        return Range(builds=(before, history.builds[6], after), merge_base=history.builds[5])

    told = search(history)(0, 4, 8, 11, finer=finer)
    assert (told.ending, told.culprits) == ("found", ("release:0.8.0",))
    (note,) = told.notes
    assert note.startswith("release:0.5.0, from which release:0.4.0 branched off, already shows it")


def test_the_record_and_its_reports_say_it_all(search, tmp_path):
    told = search(History(8, [Bug(CHASED, 3, 7)]))()
    (folder,) = (tmp_path / "out").glob("bisect-*")
    assert outcome.load(folder) == told
    text = (folder / "bisection.md").read_text()
    assert text.startswith("### release:0.3.0 is the first build with RuntimeError: ")
    assert "✗ BAD" in text
    assert "harness bisect …" in text
    stored = json.loads((folder / "bisection.json").read_text())
    assert [probe["build"] for probe in stored["probes"]][:2] == ["release:0.7.0", "release:0.0.0"]
    assert '<testcase name="culprit"' in (folder / "junit.xml").read_text()
