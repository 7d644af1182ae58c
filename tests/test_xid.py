"""Xids: the table, the kernel's log, and what they do to a verdict and a report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import runs
import smi
from hypothesis import given
from hypothesis import strategies as st
from standin_build import HEALTHY, make_build, make_scenario

from harness import clock, kernel_log, record, report, run, scenario, triage, verdict
from harness.bisect.memory import rejudged
from harness.conduct import Finding
from harness.environment import elsewhere
from harness.events import Event
from harness.kernel_log import Heard, KernelLog
from harness.node import Gpu
from harness.record import Run, Teardown
from harness.triage.wording import GROUPING
from harness.xid import MEANINGS, Xid, numbers

CLEAN = Teardown(seconds=0.1, steps=())
GPUS = tuple(
    Gpu(index=i, uuid=f"GPU-{i}", name="NVIDIA H200", memory_mib=143771, used_mib=4, address=f"0000:{0x1B + i:02x}:00")
    for i in range(2)
)
FELL = "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def message(number: int, text: str = FELL, *, place: str = "PCI:0000:1b:00", level: int = 3, after: float = 1.0) -> str:
    """A record of /dev/kmsg, `after` seconds from now."""
    return f"{level},2104,{int((clock.now() + after) * 1e6)},-;NVRM: Xid ({place}): {number}, {text}\n"


@pytest.fixture
def kmsg(tmp_path: Path) -> Path:
    file = tmp_path / "kmsg"
    file.write_text(message(79, "of an earlier run"))
    return file


def say(file: Path, *messages: str) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.writelines(messages)


# --- the table


@pytest.mark.parametrize("number", [8, 11, 13, 25, 31, 43, 45, 69])
def test_faults_that_a_kernel_of_the_product_can_make(number: int) -> None:
    assert MEANINGS[number].fault == "application"
    assert not MEANINGS[number].fatal


@pytest.mark.parametrize("number", [48, 62, 64, 74, 79, 94, 95, 109, 110, 119, 120, 140, 143, 158])
def test_faults_of_hardware_that_nothing_survives(number: int) -> None:
    assert (MEANINGS[number].fault, MEANINGS[number].fatal) == ("hardware", True)


@pytest.mark.parametrize("number", [32, 63, 92, 145, 157])
def test_faults_of_hardware_that_work_goes_on_after(number: int) -> None:
    assert (MEANINGS[number].fault, MEANINGS[number].fatal) == ("hardware", False)


def test_a_number_without_a_row_is_taken_for_hardwares() -> None:
    meaning = Xid(number=4711, address="0000:1b:00", text="", second=0.0).meaning
    assert (meaning.fault, meaning.fatal) == ("hardware", False)


def test_every_row_belongs_to_somebody() -> None:
    assert sorted(numbers("application", "hardware", "nobody")) == sorted(MEANINGS)
    assert {154, 121, 106} <= set(numbers("nobody"))


# --- the kernel's log


def test_what_came_since_the_log_was_opened(kmsg: Path) -> None:
    with KernelLog(GPUS, leased=["GPU-0"], path=kmsg) as log:
        assert log.heard() == Heard()
        say(kmsg, "6,2103,5,-;usb 1-1: new device\n SUBSYSTEM=usb\n", message(79, after=2.0))
        say(kmsg, message(31, "pid=4711, name=python3", place="PCI:0000:1c:00", after=3.5))
        say(kmsg, message(63, "Row Remapper: New row", place="PCI:0000:aa:00", after=4.0))
        heard = log.heard()
    assert heard.trouble == ""
    assert [(x.number, x.address, x.gpu, x.own) for x in heard.xids] == [
        (79, "0000:1b:00", 0, True),
        (31, "0000:1c:00", 1, False),
        (63, "0000:aa:00", None, False),
    ]
    first = heard.xids[0]
    assert (first.text, round(first.second)) == (FELL, 2)
    assert first.words == f"Xid 79 on GPU 0 after {first.second:.1f} s: the GPU has fallen off the bus"
    assert heard.xids[2].words.startswith("Xid 63 on a GPU at 0000:aa:00, which this run did not use, after 4.")


@pytest.mark.parametrize(
    ("place", "gpu"),
    [
        ("PCI:0000:1b:00", 0),
        ("0000:1b:00", 0),
        ("PCI:0000:1B:00.0", 0),
        ("PCI:0000:1b:00 GPU-I:05", 0),
        ("PCI:00000000:1b:00", 0),
        ("PCI:0001:1b:00", None),
    ],
)
def test_every_form_of_a_place(kmsg: Path, place: str, gpu: int | None) -> None:
    with KernelLog(GPUS, leased=["GPU-0"], path=kmsg) as log:
        say(kmsg, message(95, place=place))
        (xid,) = log.heard().xids
    assert (xid.number, xid.gpu) == (95, gpu)


def test_what_a_program_wrote_is_no_message_of_the_kernel(kmsg: Path) -> None:
    with KernelLog(GPUS, leased=["GPU-0"], path=kmsg) as log:
        say(kmsg, message(79, level=12), "NVRM: Xid (PCI:0000:1b:00): 79, a line without a header\n")
        assert log.heard() == Heard()


def test_asked_again_it_tells_everything_again(kmsg: Path) -> None:
    with KernelLog(GPUS, leased=["GPU-0"], path=kmsg) as log:
        say(kmsg, message(13))
        assert [xid.number for xid in log.heard().xids] == [13]
        say(kmsg, message(43))
        assert [xid.number for xid in log.heard().xids] == [13, 43]


def test_messages_that_were_overwritten_are_told() -> None:
    answers: Iterator[Any] = iter([BrokenPipeError(), message(48).encode(), BlockingIOError()])

    def read(_fd: int, size: int) -> bytes:
        assert size >= 8192, "the kernel refuses a buffer that a record does not fit into"
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return bytes(answer)

    with KernelLog(GPUS, leased=["GPU-0"], path=Path(os.devnull).parent / "kmsg", read=read) as log:
        heard = log.heard()
    assert [xid.number for xid in heard.xids] == [48]
    assert heard.trouble == "the kernel log was overwritten before it was read, Xids may be missing"


def test_a_loop_of_faults_fills_no_memory(kmsg: Path) -> None:
    with KernelLog(GPUS, leased=["GPU-0"], path=kmsg) as log:
        say(kmsg, *[message(31)] * 5000)
        heard = log.heard()
    assert len(heard.xids) == kernel_log.MOST_XIDS
    assert heard.trouble == "4900 more Xids than the 100 that are kept"


def test_a_log_that_is_not_there_or_is_something_else(tmp_path: Path) -> None:
    with KernelLog(GPUS, leased=["GPU-0"], path=tmp_path / "kmsg") as log:
        missing = log.heard()
    assert missing == Heard(trouble=f"the kernel log cannot be read: {tmp_path}/kmsg: No such file or directory")
    with KernelLog(GPUS, leased=["GPU-0"], path=Path(os.devnull)) as log:
        assert log.heard().trouble == "the kernel log cannot be read: /dev/null: it is another device here"


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="this machine does not show its kernel log")
def test_the_kernels_own_log_can_be_followed() -> None:
    with KernelLog(GPUS, leased=["GPU-0"]) as log:
        heard = log.heard()
    assert heard == Heard(), "no GPU failed, and the end of the log was found"


@given(st.binary(max_size=400))
def test_any_bytes_are_survived(raw: bytes) -> None:
    pieces = iter([raw, b""])
    with KernelLog(GPUS, leased=["GPU-0"], path=Path(__file__), read=lambda *_: next(pieces)) as log:
        assert log.heard().trouble == ""


# --- the verdict


def xid(number: int, *, own: bool = True) -> Xid:
    return Xid(number=number, address="0000:1b:00", gpu=0 if own else 1, own=own, text=FELL, second=31.24)


BAD = Finding(reason="died while starting: KeyError: 'x'", signature=triage.hang("capture#1", "silence"))
FINE = Finding(reason="ready after 1.0 s, 0 checks passed")


def test_a_failure_beside_a_fault_of_hardware_is_not_the_products() -> None:
    judged = verdict.judge(BAD, CLEAN, expect=None, xids=[xid(31), xid(79)])
    assert (judged.verdict, judged.blame, judged.fix) == ("ERROR", "node", verdict.DRAIN)
    assert judged.reason == (
        "Xid 79 on GPU 0 after 31.2 s: the GPU has fallen off the bus, so this says nothing of the product: "
        "died while starting: KeyError: 'x'"
    )
    assert verdict.judge(BAD, CLEAN, expect=None, xids=[xid(63)]).verdict == "ERROR", "an accusation needs no doubt"
    assert verdict.judge(BAD, CLEAN, expect=None, xids=[xid(4711)]).verdict == "ERROR"


@pytest.mark.parametrize("number", [13, 31, 43, 45, 154])
def test_a_failure_with_an_xid_of_its_own_making_stays_the_products(number: int) -> None:
    judged = verdict.judge(BAD, CLEAN, expect=None, xids=[xid(number)])
    assert judged == verdict.judge(BAD, CLEAN, expect=None)
    assert judged.verdict == "FAIL"


def test_a_fault_of_another_gpu_changes_nothing() -> None:
    assert verdict.judge(BAD, CLEAN, expect=None, xids=[xid(79, own=False)]).verdict == "FAIL"
    assert verdict.judge(FINE, CLEAN, expect=None, xids=[xid(79, own=False)]).verdict == "PASS"


@pytest.mark.parametrize(("number", "word"), [(48, "ERROR"), (94, "ERROR"), (63, "PASS"), (92, "PASS"), (13, "PASS")])
def test_a_pass_counts_unless_data_was_lost(number: int, word: str) -> None:
    judged = verdict.judge(FINE, CLEAN, expect=None, xids=[xid(number)])
    assert judged.verdict == word
    assert (judged.blame == "node") == (word == "ERROR")


def test_what_is_an_error_already_stays_that_error() -> None:
    held = replace(CLEAN, survivors=("4711 VLLM::Worker",))
    assert verdict.judge(FINE, held, expect=None, xids=[xid(79)]) == verdict.judge(FINE, held, expect=None)


def test_gpus_that_are_gone_after_the_stop_are_not_the_products_failure() -> None:
    lost = replace(CLEAN, gpus_lost="GPU 0 is no longer listed by nvidia-smi")
    failed = verdict.judge(BAD, lost, expect=None)
    assert (failed.verdict, failed.blame) == ("ERROR", "node")
    assert failed.reason.startswith("the GPUs cannot be read any more (GPU 0 is no longer listed by ")
    passed = verdict.judge(FINE, lost, expect=None)
    assert (passed.verdict, passed.blame) == ("ERROR", "node")
    assert "GPU 0 is no longer listed" in passed.reason


def test_a_stored_failure_is_judged_again_with_its_xids(tmp_path: Path) -> None:
    stored = runs.failed_at_startup(evidence=(), signature=replace(runs.ATTRIBUTE_ERROR, grouping=GROUPING))
    folder = runs.write(stored, tmp_path)
    assert rejudged(stored, folder) is not None
    assert rejudged(replace(stored, xids=(xid(79),)), folder) is None, "it says nothing of the build"


@pytest.mark.parametrize(("number", "blame"), [(13, "product"), (31, "product"), (79, "node"), (119, "node")])
def test_a_log_with_an_xid_is_blamed_by_the_same_table(number: int, blame: str) -> None:
    line = f"Nov 30 21:58:01 node7 kernel: NVRM: Xid (PCI:0000:2a:00): {number}, pid=4711, name=python3, Ch 00000008"
    found = triage.read([line]).signature
    assert found is not None
    assert (found.title, triage.blame(found)) == (f"Xid {number}", blame)


# --- a whole run


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kmsg: Path) -> Callable[..., Run]:
    """A run of the stand-in on one GPU of a made-up nvidia-smi, with a made-up kernel log."""
    monkeypatch.setenv("HARNESS_LEASES", str(tmp_path / "leases"))
    monkeypatch.setattr(kernel_log, "KMSG", kmsg)
    smi.install(monkeypatch, tmp_path, smi.gpu(0), smi.gpu(1))
    build = make_build(tmp_path)

    def execute(steps: list[list[object]], *messages: str, **more: Any) -> Run:
        def on_event(event: Event) -> None:
            if event.kind == "spawned":
                say(kmsg, *messages)
                if "gpus" in more:
                    smi.install(monkeypatch, tmp_path, *more["gpus"])

        asked = scenario.load(make_scenario(tmp_path, steps, *more.get("lines", ())))
        done = run.execute(asked, build=build, out=tmp_path / "reports", on_event=on_event)
        assert record.load(tmp_path / "reports" / done.id) == done
        return done

    return execute


DIE: list[list[object]] = [["err", "KeyError: 'nobody set it'"], ["exit", 1]]


def test_a_run_that_fails_on_a_gpu_that_fell_off_the_bus(go: Callable[..., Run], tmp_path: Path) -> None:
    done = go(DIE, message(79, place="PCI:0000:1b:00"))
    assert (done.verdict, done.blame, done.node_class) == ("ERROR", "node", "h200")
    assert done.signature is not None
    assert "nobody set it" in done.signature.title, "what the log said is kept"
    assert done.reason.startswith("Xid 79 on GPU 0 after ")
    assert [(x.number, x.gpu, x.own) for x in done.xids] == [(79, 0, True)]
    summary = (tmp_path / "reports" / done.id / "summary.md").read_text()
    assert "the GPU has fallen off the bus (hardware)" in summary
    assert "580.159.04, CUDA 13.0" in summary


def test_a_run_that_fails_of_its_own_illegal_access(go: Callable[..., Run]) -> None:
    done = go(DIE, message(31, "pid=1, name=python3, MMU Fault"), message(43, "pid=1"))
    assert (done.verdict, done.blame, done.kernel_log) == ("FAIL", "product", "")
    assert [x.number for x in done.xids] == [31, 43]


def test_a_run_that_passes_on_sound_gpus(go: Callable[..., Run]) -> None:
    done = go(HEALTHY, message(63, "Row Remapper"), message(79, place="PCI:0000:1c:00"))
    assert (done.verdict, [(x.number, x.own) for x in done.xids]) == ("PASS", [(63, True), (79, False)])


def test_a_gpu_that_is_gone_after_the_stop_does_not_hide_what_was_found(go: Callable[..., Run]) -> None:
    done = go(DIE, gpus=[smi.gpu(1)])
    assert (done.verdict, done.blame) == ("ERROR", "node")
    assert done.teardown is not None
    assert done.teardown.gpus_lost == "GPU 0 is no longer listed by nvidia-smi"
    assert done.signature is not None
    assert "nobody set it" in done.signature.title


def test_a_gpu_that_goes_while_the_server_lives(go: Callable[..., Run], tmp_path: Path) -> None:
    done = go(HEALTHY, message(79), gpus=[smi.gpu(1)])
    assert (done.verdict, done.blame, done.reason) == ("ERROR", "node", "GPU 0 is no longer listed by nvidia-smi")
    assert [x.number for x in done.xids] == [79], "an exception does not take them from the record"
    assert "- Xid 79 on GPU 0 after " in (tmp_path / "reports" / done.id / "summary.md").read_text()


def test_a_cpu_run_looks_at_no_kernel_log(go: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, kmsg: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = go(HEALTHY, message(79))
    assert (done.verdict, done.node_class, done.xids, done.kernel_log) == ("PASS", "cpu", (), "")
    assert "79" in kmsg.read_text()


def test_a_build_for_cpus_is_of_the_class_cpu_on_a_node_with_gpus(
    go: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "_accelerator", lambda *_: "cpu")
    done = go(HEALTHY)
    assert (done.verdict, done.node_class) == ("PASS", "cpu"), "so that its seconds are never normal for a GPU"


def test_a_scenario_that_needs_a_gpu_is_not_run_on_a_build_for_cpus(
    go: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "_accelerator", lambda *_: "cpu")
    done = go(HEALTHY, lines=["needs: {gpus: 1}"])
    assert (done.verdict, done.argv) == ("ERROR", ())
    assert done.reason.startswith("stand-in needs 1 GPU, and venv:")
    assert done.reason.endswith(" is a build for CPUs")


def test_memory_that_does_not_come_back_is_told(go: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.serving.GPU_RETURN_SECONDS", 0.0)
    done = go(HEALTHY, gpus=[smi.gpu(0, memory_used="9000"), smi.gpu(1)])
    assert (done.verdict, done.blame) == ("ERROR", "node")
    assert done.reason == (
        "passed, but was not taken down: GPU GPU-0aaa1111 holds 8996 MiB more than before the run, held by a process "
        "that is not visible from here: another container, or a dead one whose memory the driver kept"
    )


def test_a_dirty_node_is_refused(go: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    full = [smi.gpu(index, memory_used="60000") for index in (0, 1)]
    smi.install(monkeypatch, tmp_path, *full, apps=[smi.app(2**22 + 1, "python3", "59000")])
    done = go(HEALTHY)
    assert (done.verdict, done.blame, done.argv) == ("ERROR", "node", ())
    assert done.reason.endswith(f"14377 may be: held by pid {2**22 + 1} (python3, 59000 MiB)")


def test_a_log_that_cannot_be_read_is_told(
    go: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel_log, "KMSG", tmp_path / "none")
    done = go(HEALTHY)
    assert done.verdict == "PASS"
    assert done.kernel_log == f"the kernel log cannot be read: {tmp_path}/none: No such file or directory"
    assert "- the kernel log cannot be read: " in (tmp_path / "reports" / done.id / "summary.md").read_text()


# --- the reports


def test_xids_in_junit(tmp_path: Path) -> None:
    node = {
        "hostname": "n",
        "driver": {"version": "580.159.04", "cuda": None},
        "gpus": [{"index": 0, "rows_failed": True}],
    }
    done = runs.failed_at_startup(xids=(xid(31), xid(79, own=False)), kernel_log="lost some", node=node)
    folder = runs.write(done, tmp_path)
    report.render(folder)
    root = ET.fromstring((folder / "junit.xml").read_text())
    found = {each.attrib["name"]: each.attrib["value"] for each in root.iter("property")}
    assert (found["driver"], found["xids"], found["kernel_log"]) == (
        "580.159.04",
        "31 on GPU 0, 79 on another GPU",
        "lost some",
    )
    said = "\n".join(output.text or "" for output in root.iter("system-out"))
    assert "Xid 31 on GPU 0 after 31.2 s: a kernel used an address that is not mapped (application)" in said
    assert "\nGPU 0: a row of its memory could not be replaced\n" in said


def test_a_record_of_an_older_harness_is_readable(tmp_path: Path) -> None:
    folder = runs.write(runs.passed(), tmp_path)
    file = folder / "run.json"
    text = file.read_text()
    for name in ("xids", "kernel_log", "gpus_lost"):
        assert f'"{name}"' in text
        text = "\n".join(line for line in text.splitlines() if f'"{name}"' not in line)
    file.write_text(text.replace('"left": [],', '"left": []'))
    assert record.load(folder) == runs.passed()
