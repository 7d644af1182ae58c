"""`harness report --compare`: whether the same code ran, and what differs beside it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import cli
from harness.errors import UsageError
from harness.record import Run
from harness.report import comparing, comparison, sides
from harness.report.comparison import Comparison, Pair, Row
from harness.timeline import Timeline
from tests import runs

LOGS = Path(__file__).parent / "logs" / "vllm"
EAGER_029 = LOGS / "0.29.0-cuda-tp1-dspark-eager-healthy.log"
DIED_029 = LOGS / "0.29.0-cuda-tp1-replayssm-prefixcache.log"
HEALTHY_030 = LOGS / "0.30.0-cuda-tp1-replayssm-prefixcache-healthy.log"
TP2_030 = LOGS / "0.30.0-cuda-tp2-replayssm-prefixcache-starting.log"
SAMPLES = (EAGER_029, DIED_029, HEALTHY_030, TP2_030, LOGS / "0.32.0-cpu-tp2-healthy.log")
SAME = "same choices: the same code paths were taken"
CHOSEN = {"attention_backend": ("FLASH_ATTN_MLA", "TRITON_MLA"), "moe_backend": ("TritonExperts",), "vllm": ("0.30.0",)}


def compared(one: Path, other: Path) -> Comparison:
    return comparison.compare(sides.read(one), sides.read(other))


def of_runs(tmp_path: Path, one: Run, other: Run) -> Comparison:
    """Records alone, without logs beside them."""
    folders = [runs.write(run, tmp_path / side, log=None) for side, run in (("a", one), ("b", other))]
    return compared(*folders)


def passed(**changes: object) -> Run:
    return runs.passed(**{"argv": ("vllm", "serve"), "choices": CHOSEN, **changes})


def named(rows: tuple[Row, ...]) -> dict[str, str]:
    return {row.name: row.state for row in rows}


# --- choices


def test_two_releases_on_one_gpu() -> None:
    found = compared(EAGER_029, HEALTHY_030)
    (pair,) = found.pairs
    assert named(pair.differing) == {
        "eager": "differs",
        "kernel_priority": "differs",
        "cudagraph_mode": "differs",
        "breakable_cudagraph": "only other",
        "captured_graphs": "only other",
    }
    assert found.sentence == (
        "5 choices differ: eager (True / False), kernel_priority, cudagraph_mode (NONE / FULL_AND_PIECEWISE), "
        "breakable_cudagraph (not said / on) and 1 more"
    )
    assert found.same is False
    assert named(pair.sizes)["attention_block_tokens"] == "differs"
    assert named(pair.versions) == {"vllm": "differs"}
    assert {row.name for row in found.sections["flags"] if row.state != "same"} == {
        "enable-prefix-caching", "enforce-eager", "use-replayssm",
    }  # fmt: skip


def test_one_gpu_against_two() -> None:
    (pair,) = compared(HEALTHY_030, TP2_030).pairs
    assert named(pair.differing) == {
        "custom_fusions": "differs",
        "executor": "only other",
        "all_reduce_backends": "only other",
        "flashinfer_all_reduce": "only other",
        "symmetric_memory": "only other",
    }
    # That server is still starting: what is said at the very end is no difference.
    assert named(pair.choices)["chat_template_format"] == "not reached"


def test_what_a_server_that_died_did_not_come_to_is_no_difference(tmp_path: Path) -> None:
    early = {"attention_backend": ("FLASH_ATTN_MLA",), "vllm": ("0.30.0",)}
    died = replace(runs.failed_at_startup(), argv=("vllm",), choices=early)
    found = of_runs(tmp_path, passed(), died)
    assert found.sentence == f"{SAME}, as far as B came (capture#1); 2 choices are not known of both"
    assert found.same is None
    both = of_runs(tmp_path / "3", died, died)
    assert both.sentence == f"{SAME}, as far as A came (capture#1) and B came (capture#1)"
    assert both.same is None
    other = replace(died, choices={"attention_backend": ("TRITON_MLA",)})
    assert of_runs(tmp_path / "2", passed(), other).sentence == (
        "1 choice differs: attention_backend (FLASH_ATTN_MLA, TRITON_MLA / TRITON_MLA)"
    )


def test_sizes_and_versions_are_no_choices(tmp_path: Path) -> None:
    full = passed(choices={**CHOSEN, "kv_cache_tokens": ("4,369,612",), "attention_block_tokens": ("1536",)})
    mini = passed(choices={**CHOSEN, "kv_cache_tokens": ("1,024",), "attention_block_tokens": ("640",)})
    found = of_runs(tmp_path, mini, full)
    assert (found.sentence, found.same) == (SAME, True)
    assert named(found.pairs[0].sizes) == {"attention_block_tokens": "differs", "kv_cache_tokens": "differs"}


def test_the_order_of_values_counts(tmp_path: Path) -> None:
    swapped = {**CHOSEN, "attention_backend": ("TRITON_MLA", "FLASH_ATTN_MLA")}
    assert of_runs(tmp_path, passed(), passed(choices=swapped)).sentence == (
        "1 choice differs: attention_backend (FLASH_ATTN_MLA, TRITON_MLA / TRITON_MLA, FLASH_ATTN_MLA)"
    )


def test_a_choice_that_no_table_knows_is_one_of_a_path(tmp_path: Path) -> None:
    found = of_runs(
        tmp_path, passed(choices={"by_an_older_harness": ("x",)}), passed(choices={"attention_backend": ("A",)})
    )
    assert found.sentence == ("2 choices differ: attention_backend (not said / A), by_an_older_harness (x / not said)")


def test_nothing_to_compare(tmp_path: Path) -> None:
    assert of_runs(tmp_path, passed(), runs.unmet()).sentence == (
        "nothing to compare: there is a side on which no server was started"
    )
    silent = passed(choices={})
    found = of_runs(tmp_path / "2", silent, passed())
    assert (found.sentence, found.same) == ("nothing to compare: A logged no choices (it came to ready#1)", None)


# --- everything else


def test_what_differs_beside_choices(tmp_path: Path) -> None:
    one = passed(
        resolved={
            "model": "a",
            "serve": {"max-model-len": 512, "speculative-config": {"method": "ngram"}, "off": None},
        },
        packages={"numpy": "2.1", "only-a": "1"},
        node={"hostname": "a", "gpus": [{"name": "H200", "driver": "570"}]},
        env={"HF_HUB_OFFLINE": "1", "VLLM_CACHE_ROOT": "/a"},
    )
    other = passed(
        resolved={"model": "a", "serve": {"max-model-len": 512, "speculative-config": {"method": "dspark"}}},
        packages={"numpy": "2.2"},
        node={"hostname": "a", "gpus": [{"name": "H200", "driver": "580"}]},
        env={"HF_HUB_OFFLINE": "0", "VLLM_CACHE_ROOT": "/b"},
        build="release:0.31.0",
        checks=runs.failed_in_check().checks,
        timeline=Timeline(phases=runs.STARTED.phases[:2], ready=25.0),
    )
    found = of_runs(tmp_path, one, other)
    apart = {
        name: {row.name: (row.one, row.other) for row in rows if row.state != "same"}
        for name, rows in found.sections.items()
    }
    assert apart["flags"] == {"speculative-config.method": (("ngram",), ("dspark",))}
    assert apart["packages"] == {"numpy": (("2.1",), ("2.2",)), "only-a": (("1",), None)}
    assert apart["node"] == {"gpus.0.driver": (("570",), ("580",))}
    assert apart["build"] == {"build": (("release:0.32.0",), ("release:0.31.0",))}
    assert apart["checks"] == {
        "perplexity": (("pass",), ("fail",)),
        "perplexity: max |Δ log p|": (("0.12 nats (at most 0.5)",), None),
        "perplexity: perplexity": (("3.681 (at most 4.5)",), ("6.24 (at most 4.5) ✗",)),
        "prefix_cache": (None, ("not_tested",)),
    }
    (pair,) = found.pairs
    assert pair.env is not None
    assert named(pair.env) == {"HF_HUB_OFFLINE": "differs"}  # our own folders for compiled code are left out
    assert [(each.phase, each.one, each.other) for each in pair.phases] == [
        ("spawn#1", 2.5, 2.5), ("config#1", 6.5, 6.5), ("weights#1", 0.25, None), ("capture#1", 4.75, None),
        ("capture#2", 3.5, None), ("ready#1", 0.0, None), ("time to ready", 20.1234, 25.0),
    ]  # fmt: skip


def test_launches_are_compared_by_name(tmp_path: Path) -> None:
    one = runs.several()
    one = replace(one, argv=("vllm",), choices=CHOSEN, others=tuple(replace(o, choices=CHOSEN) for o in one.others))
    cold = replace(one.others[0], choices={**CHOSEN, "moe_backend": ("Other",)})
    other = replace(one, others=(cold,))
    found = of_runs(tmp_path, one, other)
    assert [pair.name for pair in found.pairs] == ["cold", "warm"]
    assert found.alone == (("no speculation",), ())
    assert found.sentence == f"cold: 1 choice differs: moe_backend (TritonExperts / Other); warm: {SAME}"
    text = comparing.to_text(found)
    assert "Choices [cold]   = same" in text
    assert "launch no speculation: only in A" in text


def test_a_run_of_one_server_is_held_against_the_one_that_the_other_record_speaks_of(tmp_path: Path) -> None:
    several = replace(runs.several(), argv=("vllm",), choices=CHOSEN)
    found = of_runs(tmp_path, several, passed())
    assert [pair.name for pair in found.pairs] == ["warm / the only one"]
    assert found.alone == (("cold", "no speculation"), ())
    assert found.sentence == SAME


def test_ranks_that_differ_are_shown(tmp_path: Path) -> None:
    uneven = {"moe_backend": {"Worker_TP0": ("A",), "Worker_TP1": ("B",)}}
    found = of_runs(tmp_path, passed(), passed(uneven=uneven))
    assert "Ranks of one server chose differently\n  B  moe_backend: Worker_TP0 A, Worker_TP1 B" in comparing.to_text(
        found
    )


def test_a_log_beside_a_record_is_read_anew(tmp_path: Path) -> None:
    """A record of an older harness has fewer choices than the same log gives today."""
    folder = runs.write(passed(choices={"moe_backend": ("TritonExperts",)}), tmp_path, log=HEALTHY_030.read_bytes())
    found = compared(folder, HEALTHY_030)
    assert (found.sentence, found.same) == (SAME, True)
    (folder / "server.log").unlink()
    found = compared(folder, HEALTHY_030)
    assert found.same is False
    assert found.one.notes == ("server.log is not there: of the choices only those that were recorded are known",)


def test_a_log_says_what_cannot_be_compared(tmp_path: Path) -> None:
    found = compared(runs.write(passed(), tmp_path), HEALTHY_030)
    assert found.unknown == dict.fromkeys(("build", "packages", "node", "verdict", "checks", "env"), ("B",)) | {
        "packages": ("A", "B")
    }
    assert "flags" in found.sections
    text = comparing.to_text(found)
    assert "\n  B does not say: build, node, verdict, checks, env\n" in text
    assert "\n  A and B do not say: packages\n" in text
    assert "\n  B: of the flags it has only those that are no default\n" in text
    assert text.endswith("B: its seconds are between the stamps of its lines, the first one is 0")


def test_of_a_log_with_several_attempts_the_last_counts(tmp_path: Path) -> None:
    log = tmp_path / "restarted.log"
    log.write_bytes(EAGER_029.read_bytes() + HEALTHY_030.read_bytes())
    assert compared(log, HEALTHY_030).sentence == SAME


def test_a_log_without_its_head(tmp_path: Path) -> None:
    lines = HEALTHY_030.read_bytes().split(b"\n")
    begin = next(n for n, line in enumerate(lines) if b"Initializing a V1" in line) + 1
    log = tmp_path / "tail.log"
    log.write_bytes(b"\n".join(lines[begin:]))
    found = compared(log, HEALTHY_030)
    assert "the engine's configuration does not stand in it, so what is said there is not compared" in found.one.notes
    assert named(found.pairs[0].choices)["attention_backend"] == "same"


def test_a_failure_in_a_log_is_named() -> None:
    found = compared(DIED_029, HEALTHY_030)
    title = {row.name: row.one for row in found.sections["signature"]}["title"]
    assert title is not None
    assert "GDN_ATTN declares 4 states" in title[0]


# --- laws


@pytest.mark.parametrize("log", SAMPLES, ids=lambda log: log.stem)
def test_anything_is_the_same_as_itself(log: Path) -> None:
    found = compared(log, log)
    up = all(server.came_up for server in found.one.servers)
    assert found.sentence == SAME if up else found.sentence.startswith(f"{SAME}, as far as A came (")
    assert found.same is (True if up else None)
    assert {row.state for row in _rows(found)} == {"same"}


@pytest.mark.parametrize("run", [kind() for kind in runs.EVERY_KIND], ids=lambda run: run.id[-6:])
def test_any_record_can_be_compared(run: Run, tmp_path: Path) -> None:
    found = of_runs(tmp_path, run, runs.hostile(argv=("vllm",), choices={"a": (runs.HOSTILE,)}))
    text = comparing.to_text(found)
    assert "\x1b" not in text
    assert "\x00" not in text
    json.dumps(comparing.to_json(found))


FACTS = st.dictionaries(
    st.sampled_from(["attention_backend", "moe_backend", "kv_cache_tokens", "vllm", "new"]),
    st.lists(st.sampled_from("ABC"), min_size=1, max_size=2, unique=True).map(tuple),
)


@given(FACTS, FACTS, st.booleans(), st.booleans())
def test_the_order_of_arguments_mirrors(one: sides.Facts, other: sides.Facts, up: bool, came: bool) -> None:  # noqa: FBT001
    a, b = _side("a", one, up=up), _side("b", other, up=came)
    there, back = comparison.compare(a, b), comparison.compare(b, a)
    assert there.same == back.same
    assert [row.mirrored for row in _rows(there)] == _rows(back)
    assert there.unknown == back.unknown
    assert comparison.compare(a, a).same is (True if one and up else None)
    assert {row.state for row in _rows(comparison.compare(a, a))} <= {"same"}


def _side(name: str, choices: sides.Facts, *, up: bool) -> sides.Side:
    timeline = Timeline(phases=runs.STARTED.phases[:2], ready=9.0 if up else None)
    server = sides.Server(launch="", choices=choices, uneven={}, timeline=timeline)
    return sides.Side(
        name=name, what="", runtime=sides.RUNTIMES["vllm"], servers=(server,), facts={"flags": choices}
    )  # fmt: skip


def _rows(found: Comparison) -> list[Row]:
    def of(pair: Pair) -> tuple[Row, ...]:
        return (*pair.choices, *pair.sizes, *pair.versions, *(pair.env or ()))

    return [
        *(row for pair in found.pairs for row in of(pair)),
        *(row for rows in found.sections.values() for row in rows),
    ]


# --- the command


def test_the_command_says_it_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = runs.write(passed(), tmp_path, log=HEALTHY_030.read_bytes())
    before = sorted(path.name for path in folder.iterdir())
    assert cli.main(["report", "--compare", str(folder), str(HEALTHY_030)]) == 0
    told = capsys.readouterr().out.split("\n")
    assert told[:3] == [SAME, "", f"A  {folder}  (tiny_lm · release:0.32.0 · 0.32.0 · cpu · PASS)"]
    assert "  = attention_backend           FLASH_ATTN_MLA, TRITON_MLA" in told
    assert sorted(path.name for path in folder.iterdir()) == before  # nothing was rendered


def test_rows_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["report", "--compare", str(EAGER_029), str(HEALTHY_030)])
    told = capsys.readouterr().out
    assert "\n  ≠ eager                       A  True\n                                B  False\n" in told
    assert "\n  capture#1             —      25.0\n" in told


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "--compare", str(EAGER_029), str(HEALTHY_030), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["same"] is False
    rows = {row["name"]: row for row in told["servers"][0]["choices"]}
    assert rows["breakable_cudagraph"] == {
        "name": "breakable_cudagraph", "state": "only other", "one": None, "other": ["on"],
    }  # fmt: skip
    assert told["servers"][0]["phases"][0] == {"phase": "spawn#1", "one": 0.0, "other": 0.0}
    assert told["not_compared"]["packages"] == ["A", "B"]


@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["report", "--json", "x"],
        ["report", "x", "--compare", "a", "b"],
        ["report", "--compare", "a", "b", "--junit", "c"],
        ["report", "--compare", "nowhere", str(HEALTHY_030)],
        ["report", "--compare", str(HEALTHY_030), str(Path(__file__))],
        ["report", "--compare", str(HEALTHY_030), str(LOGS)],
    ],
    ids=" ".join,
)
def test_bad_input(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert capsys.readouterr().err.startswith("harness: ")


def test_an_unreadable_record(tmp_path: Path) -> None:
    folder = runs.write(passed(), tmp_path)
    (folder / "run.json").write_text("{}")
    with pytest.raises(UsageError, match="schema"):
        sides.read(folder)
    shutil.rmtree(folder)
    with pytest.raises(UsageError, match="no such run or log"):
        sides.read(folder)
