"""Ranges of commits from real repositories, with release tags on branches as vLLM has them."""

import subprocess
from pathlib import Path

import pytest

from harness.bisect import choosing, releases, sources
from harness.bisect.choosing import Ends
from harness.build import parse
from harness.environment.commit_index import INDEX
from harness.errors import UsageError


class Repository:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self("init", "-q", "-b", "main")

    def __call__(self, *words: str) -> str:
        argv = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
        return subprocess.run(argv, cwd=self.folder, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, text: str, file: str = "vllm/a.py") -> str:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self("add", "-A")
        self("commit", "-q", "-m", text)
        return self("rev-parse", "HEAD")


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """main: c0 … c6, the release 0.1.0 on a branch that leaves it at c2, 0.2.0 on one that leaves it at c5."""
    monkeypatch.delenv(INDEX, raising=False)
    made = Repository(tmp_path / "repo")
    made.commits = []
    for at in range(7):
        made.commits.append(made.commit(f"c{at}", "csrc/x.cu" if at == 4 else "vllm/a.py"))
        if at in (2, 5):
            made("checkout", "-q", "-b", f"release-{at}")
            made.commit(f"released {at}", "VERSION")
            made("tag", f"v0.{at // 2}.0")
            made("checkout", "-q", "main")
    return made


def build(repo, at, base=",base=0.1.0"):
    return parse(f"source:{repo.folder}@{repo.commits[at]}{base}")


def test_between_two_commits_of_one_repository(repo):
    found = sources.of_one_repository(build(repo, 1), build(repo, 4))
    assert found.builds == tuple(build(repo, at) for at in (1, 2, 3, 4))
    assert found.merge_base is None
    assert [line.split()[-1] for line in found.log(build(repo, 2), build(repo, 4)).splitlines()] == ["c4", "c3"]


def test_they_may_be_named_in_any_way_that_git_understands(repo):
    ends = Ends(good=parse(f"source:{repo.folder}@HEAD~3"), bad=parse(f"source:{repo.folder}@main"))
    found = choosing.between(ends, repo=None)
    assert found.builds == (ends.good, build(repo, 4, ""), build(repo, 5, ""), ends.bad)


def test_a_good_commit_on_a_branch_has_a_merge_base(repo):
    good = parse(f"source:{repo.folder}@v0.1.0,base=0.1.0")
    found = sources.of_one_repository(good, build(repo, 5))
    assert found.builds == (good, *(build(repo, at) for at in (3, 4, 5)))
    assert found.merge_base == build(repo, 2)
    assert "is not an ancestor of" in found.notes[0]


@pytest.mark.parametrize(
    ("older", "newer", "said"),
    [
        ("source:{0}", "source:{0}@main", "is a working tree"),
        ("source:{0}@v0.1.0,base=0.1.0", "source:{0}@main,base=0.2.0", "not of one repository and base"),
        ("source:{0}@v0.1.0", "source:{0}/..@main", "not of one repository and base"),
        ("source:{0}@main", "source:{0}@main~2", "is an ancestor of"),
        ("source:{0}@nothing", "source:{0}@main", "has no commit nothing"),
    ],
)
def test_ends_that_have_no_order(repo, older, newer, said):
    good, bad = (parse(word.format(repo.folder)) for word in (older, newer))
    with pytest.raises(UsageError, match=said):
        choosing.between(Ends(good=good, bad=bad), repo=None)


def test_wheels_of_commits_are_in_the_order_of_their_repository(repo):
    good, bad = (parse(f"commit:{repo.commits[at]}") for at in (1, 4))
    found = choosing.between(Ends(good=good, bad=bad), repo=repo.folder)
    assert found.builds == tuple(parse(f"commit:{repo.commits[at]}") for at in (1, 2, 3, 4))
    with pytest.raises(UsageError, match="commits have no order without their repository"):
        choosing.between(Ends(good=good, bad=bad), repo=None)


def test_between_two_releases_the_commits_from_where_the_older_one_branched_off(repo):
    """c3 is nearer to 0.1.0, c4 changed a kernel and is nearer to 0.2.0, c5 is where 0.2.0 branched off."""
    good, bad = parse("0.1.0"), parse("0.2.0")
    found = sources.of_releases(good, bad, repo.folder)
    assert found.builds == (
        good, build(repo, 3), build(repo, 4, ",base=0.2.0"), build(repo, 5, ",base=0.2.0"), bad,
    )  # fmt: skip
    assert found.merge_base == build(repo, 2)
    assert "c4" in found.log(build(repo, 3), build(repo, 5, ",base=0.2.0"))


def test_between_two_releases_as_wheels_where_an_index_has_them(repo, monkeypatch):
    monkeypatch.setenv(INDEX, "https://example.org/{commit}/")
    found = sources.of_releases(parse("0.1.0"), parse("0.2.0"), repo.folder)
    assert found.builds[1:-1] == tuple(parse(f"commit:{repo.commits[at]}") for at in (3, 4, 5))


def test_releases_first_and_then_the_commits_between_the_two_found(repo, monkeypatch):
    known = [releases.Release(version=parse(word).version) for word in ("0.1.0", "0.2.0", "0.3.0")]
    monkeypatch.setattr(releases, "available", lambda _: known)
    found = choosing.between(Ends(good=parse("0.1.0"), bad=parse("0.3.0")), repo=repo.folder)
    assert [str(each) for each in found.builds] == ["release:0.1.0", "release:0.2.0", "release:0.3.0"]
    commits = found.finer(parse("0.1.0"), parse("0.2.0"))
    assert commits.builds[1] == build(repo, 3)
    assert commits.finer is None
    with pytest.raises(UsageError, match=r"has no tag v0\.3\.0"):
        found.finer(parse("0.2.0"), parse("0.3.0"))
