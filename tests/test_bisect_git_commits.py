"""Which commits lie between two revisions, and which release's binaries are nearest to one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repositories import Repository

from harness.bisect import commits
from harness.errors import UsageError


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


def line(repo: Repository, count: int) -> list[str]:
    return [repo.commit({"a": f"{repo.count}"}) for _ in range(count)]


def test_a_straight_line_has_both_ends_and_all_between(repo: Repository) -> None:
    made = line(repo, 5)
    found = commits.between(repo.folder, made[1], "main")
    assert found == commits.CommitRange(commits=tuple(made[1:]))
    assert commits.between(repo.folder, made[3], made[4]).commits == (made[3], made[4])


def test_a_subfolder_and_a_bare_clone_have_the_same_commits(repo: Repository, tmp_path: Path) -> None:
    repo.commit({"vllm/x": ""})
    first = repo.git("rev-parse", "HEAD")
    second = repo.commit({"b": "1"})
    bare = tmp_path / "bare"
    repo.git("clone", "--quiet", "--bare", ".", str(bare))
    for place in (repo.folder / "vllm", bare):
        assert commits.between(place, first, second).commits == (first, second)


def test_what_was_merged_comes_with_its_merge(repo: Repository) -> None:
    first, *_ = line(repo, 1)
    repo.git("switch", "--quiet", "--create", "feature")
    inside = repo.commit({"f": "1"})
    repo.git("switch", "--quiet", "main")
    second = repo.commit({"a": "x"})
    merged = repo.merge("feature")
    last = repo.commit({"a": "y"})
    assert commits.between(repo.folder, first, last).commits == (first, second, merged, last)
    told = commits.log(repo.folder, second, merged).splitlines()
    assert [words.split()[0] for words in told] == [merged[:12], inside[:12]]
    assert told[0] == f"{merged[:12]} merge 4"


def test_a_good_end_on_another_branch_gives_where_it_left(repo: Repository) -> None:
    made = line(repo, 3)
    repo.git("switch", "--quiet", "--create", "release", made[1])
    good = repo.commit({"r": "1"})
    repo.git("switch", "--quiet", "main")
    bad = repo.commit({"a": "later"})
    found = commits.between(repo.folder, good, "main")
    assert found.merge_base == made[1]
    assert found.commits == (made[1], made[2], bad)
    assert found.notes == (
        f"{good} is not an ancestor of main: the commits run from {made[1][:12]}, where it left that line",
    )


def test_a_good_end_that_was_merged_is_not_on_the_line_either(repo: Repository) -> None:
    (first,) = line(repo, 1)
    repo.git("switch", "--quiet", "--create", "feature")
    good = repo.commit({"f": "1"})
    repo.git("switch", "--quiet", "main")
    second = repo.commit({"a": "x"})
    merged = repo.merge("feature")
    found = commits.between(repo.folder, good, merged)
    assert (found.merge_base, found.commits) == (first, (first, second, merged))
    assert found.notes[0].startswith(f"{good} was merged on the way to {merged}: ")


def test_only_commits_that_change_a_path(repo: Repository) -> None:
    made = [repo.commit({name: str(number)}) for number, name in enumerate("xaxbbxab")]
    found = commits.between(repo.folder, made[0], made[-2], paths=("b",))
    assert found.commits == (made[0], made[3], made[4], made[-2]), "the ends are there whatever they change"
    with pytest.raises(UsageError, match=r"no commit between .* changes c d"):
        commits.between(repo.folder, made[0], made[-1], paths=("c", "d"))


def test_ends_that_are_none(repo: Repository, tmp_path: Path) -> None:
    made = line(repo, 2)

    def said(place: Path, good: str, bad: str) -> str:
        with pytest.raises(UsageError) as caught:
            commits.between(place, good, bad)
        assert caught.value.fix
        return caught.value.what

    (tmp_path / "none").mkdir()
    assert "is not a git repository" in said(tmp_path / "none", "a", "b")
    assert "is not a git repository" in said(tmp_path / "missing", "a", "b")
    assert said(repo.folder, "nope", "main") == f"{repo.folder} has no commit nope"
    assert said(repo.folder, "main", "0" * 40).endswith(f"has no commit {'0' * 40}")
    assert said(repo.folder, "--all", "main").endswith("has no commit --all")
    assert said(repo.folder, "main", made[1]) == f"main and {made[1]} are the same commit {made[1][:12]}"
    assert said(repo.folder, made[1], made[0]).startswith(f"{made[0]} is an ancestor of {made[1]}")
    repo.git("switch", "--quiet", "--orphan", "other")
    other = repo.commit({"o": "1"})
    assert said(repo.folder, made[0], other) == f"{made[0]} and {other} have no commit in common"


def test_a_shallow_clone_says_that_it_is_one(repo: Repository, tmp_path: Path) -> None:
    made = line(repo, 3)
    clone = tmp_path / "shallow"
    repo.git("clone", "--quiet", "--depth=1", repo.folder.as_uri(), str(clone))
    with pytest.raises(UsageError) as caught:
        commits.between(clone, made[0], made[2])
    assert "--unshallow" in caught.value.fix


def test_the_base_is_the_release_with_fewer_native_files_changed(repo: Repository) -> None:
    repo.commit({"csrc/a.cu": "1", "csrc/b.cu": "1", "vllm/x.py": "1"}, tag="v0.29.0")
    near = repo.commit({"vllm/x.py": "2", "vllm/y.py": "1"})
    middle = repo.commit({"csrc/a.cu": "2"})
    far = repo.commit({"csrc/b.cu": "2", "setup.py": "1"})
    repo.commit({"tests/test.cu.py": "", "requirements/test.txt": "x"}, tag="v0.30.0")
    chosen = [commits.nearest_base(repo.folder, rev, "v0.29.0", "v0.30.0") for rev in (near, middle, far)]
    assert chosen == ["v0.29.0", "v0.29.0", "v0.30.0"]
    assert commits.nearest_base(repo.folder, near, "v0.28.0", "v0.30.0") == "v0.30.0", "the other has no tag"
    with pytest.raises(UsageError, match=r"neither a tag v1 nor v2"):
        commits.nearest_base(repo.folder, near, "v1", "v2")


@settings(max_examples=12)
@given(steps=st.lists(st.sampled_from(["commit", "branch"]), min_size=2, max_size=7), data=st.data())
def test_each_commit_of_a_line_is_the_first_parent_of_the_next(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], data: st.DataObject
) -> None:
    repo = Repository(tmp_path_factory.mktemp("any") / "repo")
    trunk, branches = [repo.commit({"a": "0"})], list[str]()
    for number, step in enumerate(steps):
        if step == "branch":
            repo.git("switch", "--quiet", "--create", f"b{number}")
            branches.append(repo.commit({f"f{number}": "1"}))
            repo.git("switch", "--quiet", "main")
            trunk.append(repo.commit({"a": f"{number}"}))
            trunk.append(repo.merge(f"b{number}"))
        else:
            trunk.append(repo.commit({"a": f"{number}"}))
    good = data.draw(st.sampled_from([*trunk[:-1], *branches]))
    found = commits.between(repo.folder, good, trunk[-1])
    assert list(found.commits) == trunk[trunk.index(found.commits[0]) :]
    assert found.merge_base == (None if good in trunk else found.commits[0])
    assert repo.git("merge-base", good, trunk[-1]) in (good, found.commits[0])
    assert repo.git("merge-base", good, found.commits[1]) == found.commits[0] or good == found.commits[0]
