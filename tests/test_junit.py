"""JUnit as Jenkins, GitLab and Buildkite read it: valid, bounded, the same names every night."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import runs
from runs import EVERY_KIND, LAYER_NAMES

from harness import report
from harness.errors import UsageError
from harness.masking import Masker
from harness.record import KnownFailure, Run, load, save
from harness.report import junit, text
from harness.timeline import Timeline

SCHEMA = Path(__file__).parents[2] / "shared" / "schemas" / "junit-10.xsd"

# What the schema that Jenkins publishes allows, written down so that a checkout alone can test it.
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {
        *("name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp"),
        *("hostname", "id", "package", "file", "log", "url", "version"),
    },
    "testcase": {"name", "time", "classname", "group"},
    "properties": set(),
    "property": {"name", "value"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
    "system-out": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase", "system-out"},
    "testcase": {"failure", "error", "skipped", "system-out"},
    "properties": {"property"},
}
REQUIRED = {
    "testsuite": {"name", "tests", "failures", "errors"},
    "testcase": {"name", "classname"},
    "property": {"name", "value"},
}


def rendered(run: Run, tmp_path: Path, *, log: bytes | None = None) -> ET.Element:
    folder = runs.write(run, tmp_path, log=log)
    assert report.render(folder) == ("junit.xml", "summary.md", "report.html")
    return ET.fromstring((folder / "junit.xml").read_bytes())


def outcomes(root: ET.Element) -> dict[str, str]:
    """Name of every case and its outcome, in order."""
    found = {}
    for case in root.iter("testcase"):
        results = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        assert len(results) <= 1
        found[case.attrib["name"]] = results[0] if results else "pass"
    return found


def properties(root: ET.Element) -> dict[str, str]:
    return {p.attrib["name"]: p.attrib["value"] for p in root.iter("property")}


def one(root: ET.Element, path: str) -> ET.Element:
    (found,) = root.findall(f".//{path}")
    return found


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind_of_run_keeps_the_rules_of_the_published_schema(kind, tmp_path):
    root = rendered(kind(), tmp_path, log=runs.crash_log())
    for element in root.iter():
        assert element.tag in ATTRIBUTES
        assert set(element.attrib) <= ATTRIBUTES[element.tag], element.tag
        assert REQUIRED.get(element.tag, set()) <= set(element.attrib)
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        if element.tag in ("testsuites", "testsuite", "testcase"):
            assert re.fullmatch(r"[0-9]+(\.[0-9]{1,3})?", element.attrib["time"])


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind_of_run_is_valid_against_the_published_schema_itself(kind, tmp_path):
    if not SCHEMA.is_file():
        pytest.skip("the schema lies beside the checkout, not in it")
    etree = pytest.importorskip("lxml.etree")
    schema = etree.XMLSchema(etree.parse(SCHEMA))
    folder = runs.write(kind(), tmp_path, log=runs.crash_log())
    report.render(folder)
    schema.assertValid(etree.parse(folder / "junit.xml"))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_nothing_that_a_reader_chokes_on(kind, tmp_path):
    folder = runs.write(kind(), tmp_path, log=runs.crash_log() * 1000)
    report.render(folder)
    raw = (folder / "junit.xml").read_bytes()
    decoded = raw.decode("utf-8")  # strict
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff\u202e]", decoded)
    root = ET.fromstring(raw)
    for element in root.iter():
        assert len((element.text or "").encode()) <= 1_000_000
        assert all(len(value.encode()) <= 4_100 for value in element.attrib.values())
    for output in root.iter("system-out"):
        assert len((output.text or "").encode()) <= 40_000
    assert len(raw) < 30_000_000


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_rendering_twice_gives_the_same_bytes(kind, tmp_path):
    folder = runs.write(kind(), tmp_path, log=runs.crash_log())
    report.render(folder)
    first = [(folder / name).read_bytes() for name in report.REPORTS]
    report.render(folder)
    assert [(folder / name).read_bytes() for name in report.REPORTS] == first


def test_pass(tmp_path):
    root = rendered(runs.passed(), tmp_path)
    suite = one(root, "testsuite")
    assert suite.attrib["name"] == "tiny_lm"
    assert suite.attrib["hostname"] == "builder-7"
    assert suite.attrib["timestamp"] == "2026-11-30T23:46:00"
    assert suite.attrib["time"] == "24.873"
    assert [suite.attrib[k] for k in ("tests", "failures", "errors", "skipped")] == ["3", "0", "0", "0"]
    assert outcomes(root) == {"startup": "pass", "warmup": "pass", "perplexity": "pass"}
    assert [case.attrib["time"] for case in root.iter("testcase")] == ["20.123", "3.25", "1.5"]
    assert {case.attrib["classname"] for case in root.iter("testcase")} == {"tiny_lm"}
    assert "Reproduce: harness run scenarios/tiny_lm.yaml --build release:0.32.0" in one(root, "system-out").text


def test_suite_properties(tmp_path):
    found = properties(rendered(runs.failed_at_startup(), tmp_path))
    expected = {
        "scenario": "tiny_lm", "variant": "mini", "build": "release:0.32.0", "version": "0.32.0",
        "fingerprint": "0123456789ab", "node_class": "cpu", "run": "20261130-235000-tiny_lm.mini-cc22dd", "schema": "1",
        "verdict": "FAIL", "state": "finished", "blame": "product", "refs": "vllm#54636",
        "phase.weights#1": "0.250", "phase.spawn#1": "2.500", "signature.startup": "3f2a9c0d1e4b",
        "reproduce": "harness run scenarios/tiny_lm.yaml --build release:0.32.0",
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    assert "phase.capture#1" not in found  # it never ended
    assert "ready" not in found


def test_phases_keep_their_occurrences(tmp_path):
    found = properties(rendered(runs.passed(), tmp_path))
    assert (found["phase.capture#1"], found["phase.capture#2"], found["ready"]) == ("4.750", "3.500", "20.123")
    assert not any(name.startswith("signature.") for name in found)


def test_failure_at_startup_has_the_title_the_cause_and_one_culprit(tmp_path):
    root = rendered(runs.failed_at_startup(), tmp_path, log=runs.crash_log())
    assert one(root, "testsuite").attrib["name"] == "tiny_lm[mini]"
    assert outcomes(root) == {"startup": "failure", "warmup": "skipped", "perplexity": "skipped"}
    failure = one(root, "failure")
    assert failure.attrib == {"message": LAYER_NAMES, "type": "python_exception"}
    assert failure.text.startswith(LAYER_NAMES + "\ndied while starting (exit 1 at 14.0 s, in capture)")
    for word in ("3f2a9c0d1e4b", "ranks: 2/2", "process: Worker_TP0", "kda.py:88", "or: RuntimeError: cancelled"):
        assert word in failure.text
    assert "only reports it: RuntimeError: Engine core initialization failed." in failure.text
    assert "INFO line 130\n" in failure.text
    assert "INFO line 129\n" not in failure.text
    assert "Reproduce: harness run scenarios/tiny_lm.yaml" in failure.text
    cause = f"not reached: startup failed ({LAYER_NAMES})"
    assert [skip.attrib["message"] for skip in root.iter("skipped")] == [cause, cause]


def test_output_of_a_failing_startup_is_the_log_around_the_cause_and_its_end(tmp_path):
    root = rendered(runs.failed_at_startup(), tmp_path, log=runs.crash_log())
    output = one(root, "testcase/system-out").text
    assert output.startswith("server.log, around the cause:\nINFO line 130\n")
    assert "Traceback (most recent call last):\nINFO line 151" in output  # without the CR at its end
    assert "␛[31mESC␛[0m ␀ \\xff ]]> ``` </details> | <b>" in output
    assert output.endswith("RuntimeError: Engine core initialization failed. See root cause above.")
    assert output.count("INFO line 172\n") == 1  # the two parts do not overlap


def test_failure_in_a_check(tmp_path):
    root = rendered(runs.failed_in_check(), tmp_path)
    expected = {
        "startup": "pass",
        "warmup": "pass",
        "perplexity": "failure",
        "prefix_cache": "skipped",
        "spec_decode": "skipped",
    }
    assert outcomes(root) == expected
    failure = one(root, "failure")
    assert failure.attrib["message"] == "check perplexity failed: perplexity above its limit"
    assert "perplexity 6.24 (at most 4.5) ✗" in failure.text
    assert properties(root)["signature.perplexity"] == "77aa88bb99cc"
    cause = "not reached: perplexity failed (check perplexity failed: perplexity above its limit)"
    assert {skip.attrib["message"] for skip in root.iter("skipped")} == {cause}


def test_unmet_needs_are_an_error_with_what_to_do(tmp_path):
    root = rendered(runs.unmet(), tmp_path)
    assert outcomes(root) == {"startup": "error", "warmup": "skipped", "perplexity": "skipped"}
    error = one(root, "error")
    assert error.attrib["type"] == "scenario"
    assert error.attrib["message"] == "kimi-k3-dspark needs 8 GPUs of 130 GiB, this node has none"
    assert "try `--variant mini` on one GPU" in error.text
    assert one(root, "testcase/system-out").text == "no server.log: the server was never started"


def test_skip(tmp_path):
    root = rendered(runs.skipped(), tmp_path)
    assert set(outcomes(root).values()) == {"skipped"}
    reasons = {skip.attrib["message"] for skip in root.iter("skipped")}
    assert reasons == {
        "kimi-k3-dspark needs 8 GPUs of 130 GiB, this node has none; try `--variant mini` on one GPU, or `tiny_lm`"
    }


def test_interrupted_in_a_check(tmp_path):
    root = rendered(runs.interrupted(), tmp_path)
    assert outcomes(root) == {"startup": "pass", "warmup": "pass", "perplexity": "error"}
    assert one(root, "error").attrib == {"message": "interrupted: SIGTERM", "type": "interrupted"}
    assert properties(root)["state"] == "interrupted"


def test_record_of_a_killed_node(tmp_path):
    root = rendered(runs.killed_node(), tmp_path)
    assert outcomes(root) == {"startup": "error", "warmup": "skipped", "perplexity": "skipped"}
    assert one(root, "error").attrib["message"] == "interrupted: the record ends in capture#1"
    assert one(root, "error").attrib["type"] == "interrupted"
    assert (properties(root)["state"], properties(root)["verdict"]) == ("running", "ERROR")


def test_killed_before_the_server_was_started(tmp_path):
    root = rendered(runs.killed_node(timeline=Timeline()), tmp_path)
    assert one(root, "error").attrib["message"] == "interrupted: the record ends before the server was started"


def test_what_belongs_to_no_case_gets_one_of_its_own(tmp_path):
    run = runs.passed(verdict="ERROR", blame="node", reason="passed, but was not taken down: 4711 VLLM::Worker")
    root = rendered(run, tmp_path)
    assert outcomes(root) == {"startup": "pass", "warmup": "pass", "perplexity": "pass", "run": "error"}
    assert one(root, "error").attrib == {"message": run.reason, "type": "node"}


def test_reproduced_failure_is_no_failure(tmp_path):
    run = runs.failed_at_startup(verdict="PASS", reason=f"reproduced: {LAYER_NAMES}")
    root = rendered(run, tmp_path)
    assert outcomes(root) == {"startup": "pass", "warmup": "skipped", "perplexity": "skipped"}
    assert "failure" not in {element.tag for element in root.iter()}


KNOWN = KnownFailure(refs=("vllm#54636",), title=LAYER_NAMES, fixed="0.30.0", builds=">=0.29.0,<0.30.0")


def test_a_known_failure_says_so_and_stays_a_failure(tmp_path):
    root = rendered(runs.failed_at_startup(known=KNOWN), tmp_path)
    assert outcomes(root)["startup"] == "failure"
    assert one(root, "failure").attrib["message"] == LAYER_NAMES
    assert "\nknown: vllm#54636, fixed in 0.30.0\n" in one(root, "failure").text
    assert properties(root)["known"] == "vllm#54636, fixed in 0.30.0"


def test_an_expected_failure_is_skipped_with_the_reason(tmp_path):
    root = rendered(runs.failed_at_startup(known=KNOWN, expected=True), tmp_path, log=runs.crash_log())
    assert set(outcomes(root).values()) == {"skipped"}
    first = next(root.iter("skipped"))
    assert first.attrib == {"type": "known", "message": f"known: vllm#54636, fixed in 0.30.0: {LAYER_NAMES}"}
    assert (properties(root)["verdict"], properties(root)["signature.startup"]) == ("FAIL", "3f2a9c0d1e4b")
    later = rendered(runs.failed_in_check(known=KNOWN, expected=True), tmp_path)
    assert outcomes(later) == {
        **dict.fromkeys(("startup", "warmup"), "pass"),
        **dict.fromkeys(("perplexity", "prefix_cache", "spec_decode"), "skipped"),
    }


def test_what_is_behind_a_failure_is_no_second_attempt_at_it(tmp_path):
    folders = [
        runs.write(runs.failed_at_startup(known=KNOWN), tmp_path),
        runs.write(
            runs.passed(id="second", variant="mini", under=("edit of f in vllm/a.py, removes nothing",)), tmp_path
        ),
    ]
    root = ET.fromstring(junit.to_text(report.merge_junit(folders)))
    assert [suite.attrib["name"] for suite in root] == ["tiny_lm[mini]", "tiny_lm[mini] under 1 workaround"]
    assert properties(root[1])["under"] == "edit of f in vllm/a.py, removes nothing"
    assert "under edit of f in vllm/a.py, removes nothing" in one(root[1], "system-out").text


def test_names_have_no_volatile_part(tmp_path):
    """The same scenario on another build, node, day and port: the same names."""
    second = runs.passed(
        id="20270101-010203-tiny_lm-ffee00", build="release:0.33.0", node={"hostname": "other"}, fingerprint="f" * 12
    )
    names = []
    for run in (runs.passed(), second):
        root = rendered(run, tmp_path)
        names.append(
            [(e.attrib["name"], e.attrib.get("classname")) for e in root.iter() if e.tag in ("testsuite", "testcase")]
        )
    assert names[0] == names[1]


def test_messages_of_megabytes_keep_head_and_tail(tmp_path):
    run = runs.failed_at_startup(reason="HEAD" + "x" * 5_000_000 + "TAIL")
    failure = one(rendered(run, tmp_path), "failure")
    assert "HEADxxx" in failure.text
    assert re.search(r"\[… \d+ bytes cut …\]", failure.text)
    assert failure.text.endswith("Reproduce: harness run scenarios/tiny_lm.yaml --build release:0.32.0")
    assert 990_000 < len(failure.text.encode()) <= 1_000_000


def test_attempts_at_one_scenario_are_one_case(tmp_path):
    folders = [
        runs.write(runs.passed(), tmp_path),
        runs.write(runs.failed_at_startup(variant=None, id="second"), tmp_path, log=runs.crash_log()),
        runs.write(runs.failed_at_startup(variant=None, id="third", evidence=()), tmp_path),
        runs.write(runs.failed_at_startup(), tmp_path),
    ]
    root = ET.fromstring(junit.to_text(report.merge_junit(folders)))
    assert [suite.attrib["name"] for suite in root] == ["tiny_lm", "tiny_lm[mini]"]
    assert [root.attrib[k] for k in ("tests", "failures", "errors")] == ["6", "2", "0"]
    first = root[0]
    assert outcomes(first) == {"startup": "failure", "warmup": "pass", "perplexity": "pass"}
    assert properties(first)["attempts"] == "2/3 bad"
    assert properties(first)["run"] == "20261130-234600-tiny_lm-aa11bb, second, third"
    failure = one(first, "failure")
    assert failure.text.startswith(f"{LAYER_NAMES}\n2 of 3 attempts failed")
    assert "run: second" in failure.text
    assert "run: third" in failure.text
    assert first[1].attrib["time"] == "12.874"  # the mean of 20.123 and twice 9.25


def test_merged_file_stays_readable_for_gitlab(tmp_path, monkeypatch):
    """Nodes within their own limit may be too much together: then each gets less, and none is dropped."""
    monkeypatch.setattr(junit, "MAX_FILE_BYTES", 700_000)
    run = runs.failed_at_startup(reason="<" * 60_000)  # four bytes each, once escaped
    folders = [runs.write(replace(run, id=f"r{n}", scenario=f"s{n}"), tmp_path) for n in range(10)]
    out = tmp_path / "all.xml"
    report.write_junit(folders, out)
    assert out.stat().st_size < 700_000
    failures = list(ET.parse(out).getroot().iter("failure"))
    assert len(failures) == 10
    assert all("bytes cut" in failure.text for failure in failures)


def test_too_many_cases_for_one_file(tmp_path):
    run = runs.passed(resolved={"checks": {f"c{n}": {} for n in range(3000)}}, checks=())
    folders = [runs.write(replace(run, id=name, scenario=name), tmp_path) for name in ("a", "b")]
    with pytest.raises(UsageError, match="6002 cases, but a JUnit file may have 5000"):
        report.merge_junit(folders)


def test_folder_without_a_record(tmp_path):
    with pytest.raises(UsageError, match=r"run\.json is not a readable run record"):
        report.render(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [("[1]", "has schema None"), ('{"schema": 1}', "is not a run record: id: Field required"), ("{", "not a readable")],
)
def test_a_record_that_is_none(tmp_path, text, said):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UsageError, match=said):
        load(tmp_path)


def test_undecodable_bytes_in_a_record_survive_saving(tmp_path):
    run = runs.passed(reason="byte \udcff, half a pair \ud800, ordinary ü")
    save(run, tmp_path, Masker())
    assert load(tmp_path) == run


def test_log_excerpt_costs_a_seek_where_there_is_no_evidence(tmp_path):
    log = tmp_path / "server.log"
    with log.open("wb") as out:
        out.truncate(20 << 30)  # a sparse file: reading it all would take minutes
        out.seek(0, 2)
        out.write(b"\nthe last line\n")
    excerpt = text.log_excerpt(tmp_path / "server.log", (), limit=1000)
    assert excerpt.endswith("the last line")
    assert len(excerpt.encode()) <= 1000


def test_evidence_beyond_the_end_of_a_log_is_no_trouble(tmp_path):
    (tmp_path / "server.log").write_bytes(b"only line")
    assert text.log_excerpt(tmp_path / "server.log", ((500, 510),), limit=1000) == "server.log, last lines:\nonly line"


def test_a_line_without_end_is_cut(tmp_path):
    (tmp_path / "server.log").write_bytes(b"first\n" + b"x" * 3_000_000 + b"\nlast\n")
    excerpt = text.log_excerpt(tmp_path / "server.log", ((2, 2),), limit=40_000)
    assert excerpt.startswith("server.log, around the cause:\nfirst\nxxx")
    assert excerpt.endswith("last")
    assert "2996040 bytes cut" in excerpt


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x1b[1mb\x00\x7f", "a␛[1mb␀␡"),
        ("see [[ATTACHMENT|/etc/passwd]]", "see [ [ATTACHMENT|/etc/passwd]]"),
        ("tab\tline\nend\r\n", "tab\tline\nend\n"),
        ("10%\r20%\r", "10%␍20%"),
        ("\udcff\ud800\x85\ufffe\u202e", "\\xff\\ud800\\x85\\ufffe\\u202e"),
        ("ordinary ü 日本 🙂", "ordinary ü 日本 🙂"),
    ],
)
def test_visible(given, shown):
    assert text.visible(given) == shown
