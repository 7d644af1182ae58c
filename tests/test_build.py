from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.build import Accelerator, Build, parse, sort_key
from harness.errors import UsageError


@pytest.mark.parametrize(
    ("word", "build", "canonical"),
    [
        ("release:0.30.0", Build(kind="release", ref="0.30.0"), "release:0.30.0"),
        ("0.30.0", Build(kind="release", ref="0.30.0"), "release:0.30.0"),
        ("v0.30.0", Build(kind="release", ref="0.30.0"), "release:0.30.0"),
        ("0.30", Build(kind="release", ref="0.30.0"), "release:0.30.0"),
        ("0.30rc2", Build(kind="release", ref="0.30.0rc2"), "release:0.30.0rc2"),
        ("release:0.30.0+cpu", Build(kind="release", ref="0.30.0", accelerator="cpu"), "release:0.30.0+cpu"),
        (
            "0.12.0.post2+cuda",
            Build(kind="release", ref="0.12.0.post2", accelerator="cuda"),
            "release:0.12.0.post2+cuda",
        ),
        ("lock:/r/x/packages.lock", Build(kind="lock", ref="/r/x/packages.lock"), "lock:/r/x/packages.lock"),
        ("venv:/opt/e", Build(kind="venv", ref="/opt/e"), "venv:/opt/e"),
        ("tree:/a, /b/../c", Build(kind="tree", ref="/a,/c"), "tree:/a,/c"),
        ("current", Build(kind="current", ref=""), "current"),
        ("source:/src", Build(kind="source", ref="/src"), "source:/src"),
        ("source:/src/@main", Build(kind="source", ref="/src", rev="main"), "source:/src@main"),
        ("source:/src@origin/a,b", Build(kind="source", ref="/src", rev="origin/a,b"), "source:/src@origin/a,b"),
        (
            "source:/src@main@{upstream}",
            Build(kind="source", ref="/src", rev="main@{upstream}"),
            "source:/src@main@{upstream}",
        ),
        ("source:/a@b@", Build(kind="source", ref="/a@b"), "source:/a@b@"),
        ("source:/a@b@v1", Build(kind="source", ref="/a@b", rev="v1"), "source:/a@b@v1"),
        ("source:/src,base=0.30", Build(kind="source", ref="/src", base="0.30.0"), "source:/src,base=0.30.0"),
        (
            "source:/src@HEAD~3,base=v0.30.0+cpu",
            Build(kind="source", ref="/src", rev="HEAD~3", base="0.30.0", accelerator="cpu"),
            "source:/src@HEAD~3,base=0.30.0+cpu",
        ),
        ("commit:0ABCDEF", Build(kind="commit", ref="0abcdef"), "commit:0abcdef"),
        ("commit:" + "a" * 40, Build(kind="commit", ref="a" * 40), "commit:" + "a" * 40),
        ("commit:0abcdef+cuda", Build(kind="commit", ref="0abcdef", accelerator="cuda"), "commit:0abcdef+cuda"),
    ],
)
def test_words_and_their_canonical_form(word: str, build: Build, canonical: str) -> None:
    assert parse(word) == build
    assert str(build) == canonical
    assert parse(canonical) == build


@given(
    path=st.text(st.sampled_from("ab@{} ,=+.")),
    rev=st.from_regex(r"([ab~^/.,][ab~^/.,{}]*(@\{[ab1]*\})?)?", fullmatch=True),
    base=st.sampled_from(["", "0.30.0", "0.31.0rc1"]),
    accelerator=st.sampled_from([None, "cpu", "cuda"]),
)
def test_every_source_can_be_written_down(path: str, rev: str, base: str, accelerator: Accelerator | None) -> None:
    ref = f"/r{path}/x"
    build = Build(kind="source", ref=ref, rev=rev, base=base, accelerator=accelerator if base else None)
    assert parse(str(build)) == build


def test_paths_are_absolute_so_that_the_word_means_the_same_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(parse("venv:e")) == f"venv:{tmp_path}/e"
    assert str(parse("venv:~/e")) == "venv:/home/somebody/e"
    assert str(parse("lock:reports/x/packages.lock")) == f"lock:{tmp_path}/reports/x/packages.lock"


def test_a_link_to_an_environment_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert parse(f"venv:{tmp_path}/link").ref == f"{tmp_path}/link"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("relase:0.30.0", "did you mean 'release:0.30.0'?"),
        ("releases:0.30.0", "did you mean 'release:0.30.0'?"),
        ("curent", "did you mean 'current'?"),
        ("vnev:/opt/e", "did you mean 'venv:/opt/e'?"),
        ("commit:abc123", "'abc123' is no commit"),
        ("commit:" + "a" * 41, "is no commit"),
        ("commit:main", "'main' is no commit"),
        ("commit:abc1234+rocm", "unknown accelerator 'rocm'"),
        ("commits:abc1234", "did you mean 'commit:abc1234'?"),
        ("source:", "a path is empty"),
        ("source:@main", "a path is empty"),
        ("source:/src@--output=x", "'--output=x' is no revision"),
        ("source:/src@a b", "'a b' is no revision"),
        ("source:/src@main,bse=0.30.0", "a source has no option 'bse'"),
        ("source:/src@main,base=", "'' is not a version"),
        ("source:/src@main,base=0.30.0+rocm", "unknown accelerator 'rocm'"),
        ("image:repo/vllm:1", "builds of kind 'image' cannot be made yet"),
        ("release:newest", "'newest' is not a version"),
        ("release:", "'' is not a version"),
        ("0.30.0+cu129", "unknown accelerator 'cu129'"),
        ("0.30.x", "'0.30.x' is not a version"),
        ("./e", "is a path, not a build"),
        ("lock:", "a path is empty"),
        ("venv:", "a path is empty"),
        ("tree:/a,,/b", "a path is empty"),
        ("", "names no build"),
        ("xyzzy", "names no build"),
    ],
)
def test_what_is_no_build(word: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(word)
    assert said in caught.value.what
    assert caught.value.fix
    assert caught.value.exit_code == 2


def test_releases_are_ordered_as_versions_not_as_text() -> None:
    words = ["0.10.0", "0.9.2", "0.10.0rc1", "0.12.0.post2", "0.12.0"]
    assert [b.ref for b in sorted(map(parse, words), key=sort_key)] == [
        "0.9.2",
        "0.10.0rc1",
        "0.10.0",
        "0.12.0",
        "0.12.0.post2",
    ]


def test_what_is_no_release_has_no_order() -> None:
    with pytest.raises(UsageError, match="current has no version"):
        sort_key(parse("current"))
