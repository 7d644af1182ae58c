"""What nvidia-smi tells of GPUs, drivers of different ages, MIG, and the classes of nodes."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import smi

from harness import leases, nvidia
from harness import node as node_room
from harness.cli import main
from harness.errors import NodeError, UnmetError
from harness.node import Driver
from harness.node_class import class_of, of_class


@pytest.fixture(autouse=True)
def own_leases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARNESS_LEASES", str(tmp_path / "leases"))


# --- the driver in the record


def test_the_record_of_a_healthy_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = {"gpu_uuid": "GPU-0aaa1111", "remapped_rows.pending": "No", "remapped_rows.failure": "No"}
    smi.install(monkeypatch, tmp_path, smi.gpu(), remapped=[rows])
    node = node_room.describe()
    assert node.driver == Driver(version="580.159.04", cuda="13.0")
    (gpu,) = node.gpus
    assert (gpu.address, gpu.compute_capability, gpu.mig, gpu.unusable) == ("0000:1b:00", "9.0", False, "")
    assert (gpu.persistence, gpu.ecc, gpu.uncorrected) == (True, True, 0)
    assert (gpu.rows_pending, gpu.rows_failed) == (False, False)
    assert node.kernel == platform.release()
    recorded = json.loads(json.dumps(node.record()))
    assert recorded["driver"] == {"version": "580.159.04", "cuda": "13.0", "untold": []}
    assert recorded["gpus"][0]["compute_capability"] == "9.0"


def test_damaged_memory_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = {"gpu_uuid": "GPU-0aaa1111", "remapped_rows.pending": "Yes", "remapped_rows.failure": "1"}
    bad = smi.gpu(ecc_errors_uncorrected_volatile_total="3", persistence_mode="Disabled")
    smi.install(monkeypatch, tmp_path, bad, remapped=[rows])
    (gpu,) = node_room.describe().gpus
    assert (gpu.rows_pending, gpu.rows_failed, gpu.uncorrected, gpu.persistence) == (True, True, 3, False)


def test_an_old_driver_does_not_know_every_field(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = ("compute_cap", "mig.mode.current", "remapped_rows.pending", "remapped_rows.failure")
    asked = smi.install(monkeypatch, tmp_path, smi.gpu(name="Tesla V100-SXM2-32GB"), without=old)
    node = node_room.describe()
    (gpu,) = node.gpus
    assert (gpu.address, gpu.compute_capability, gpu.mig) == ("0000:1b:00", None, False)
    assert node.driver == Driver(
        version="580.159.04", cuda="13.0", untold=tuple(f"this driver does not know {name}" for name in old)
    )
    assert len(asked.read_text().splitlines()) == 1 + 3 + 2 + 1


def test_an_optional_query_that_fails_is_told_and_not_fatal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = smi.install(monkeypatch, tmp_path, smi.gpu())
    program = tmp_path / "bin" / "nvidia-smi"
    program.rename(tmp_path / "bin" / "true-smi")
    case = f'case "$1" in *=index*) exec {tmp_path}/bin/true-smi "$@";; esac'
    program.write_text(f"#!/bin/sh\n{case}\necho odd; exit 255\n")
    program.chmod(0o755)
    node = node_room.describe()
    assert node.driver == Driver(
        untold=(
            "nvidia-smi --query-gpu failed with exit 255: odd",
            "nvidia-smi --query-remapped-rows failed with exit 255: odd",
        )
    )
    assert (node.node_class, node.gpus[0].address) == ("h200", "")
    assert len(asked.read_text().splitlines()) == 1


def test_values_that_are_not_told_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dark = {
        "mig_mode_current": "[N/A]", "persistence_mode": "[Insufficient Permissions]", "ecc_mode_current": "[N/A]",
        "ecc_errors_uncorrected_volatile_total": "[Not Supported]", "compute_cap": "N/A",
    }  # fmt: skip
    smi.install(monkeypatch, tmp_path, smi.gpu(name="NVIDIA GeForce RTX 5090", **dark))
    (gpu,) = node_room.read().gpus
    assert (gpu.persistence, gpu.ecc, gpu.uncorrected, gpu.compute_capability) == (None, None, None, None)
    assert (gpu.mig, gpu.unusable) == (False, "")


@pytest.mark.parametrize(
    ("header", "cuda"),
    [
        (smi.HEADER, "13.0"),
        ("CUDA UMD Version                          : 13.2\n", "13.2"),
        ("CUDA Version                              : Not Found\n", None),
        ("Driver Version                            : 390.1\n", None),
    ],
)
def test_cuda_of_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, header: str, cuda: str | None) -> None:
    smi.install(monkeypatch, tmp_path, smi.gpu(), header=header)
    assert nvidia.cuda_version() == cuda


def test_a_driver_that_fails_says_why_in_the_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = "Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error"
    smi.install(monkeypatch, tmp_path, smi.gpu(), fails=words)
    node = node_room.describe()
    assert (node.gpus, node.node_class, node.driver) == ((), "unknown", None)
    assert node.trouble == f"nvidia-smi failed with exit 9: {words}"


# --- GPUs that no run gets


GB10 = "of GPU 0 (NVIDIA GB10) nvidia-smi does not tell the memory: [N/A]"
MIG = "GPU 0 is in MIG mode, and harness uses whole GPUs and leaves MIG as it is"


def mig(index: int = 0) -> dict[str, str]:
    return smi.gpu(index, "NVIDIA H100 80GB HBM3", mig_mode_current="Enabled", memory_total="81559")


def test_a_gpu_without_a_memory_of_its_own_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi.install(monkeypatch, tmp_path, smi.gpu(name="NVIDIA GB10", memory_total="[N/A]", memory_used="[N/A]"))
    node = node_room.read()
    assert (node.gpus[0].memory_mib, node.gpus[0].unusable, node.node_class) == (0, GB10, "gb10")
    with pytest.raises(UnmetError) as caught:
        node_room.check_needs(node, gpus=1, gpu_memory_gib=None)
    assert caught.value.what == f"needs 1 GPU, this node has none that can be used: {GB10}"


def test_gpus_in_mig_mode_are_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi.install(monkeypatch, tmp_path, mig(), smi.gpu(1, "NVIDIA H100 80GB HBM3", memory_total="81559"))
    node = node_room.read()
    with leases.lease(node, gpus=1, wait=0) as lease:
        assert [gpu.index for gpu in lease.gpus] == [1], "though GPU 0 is as empty and comes first"
    with pytest.raises(UnmetError) as caught, leases.lease(node, gpus=2, wait=0):
        pass
    assert caught.value.what == f"needs 2 GPUs, this node has 1 GPU of 79 GiB that can be used: {MIG}"
    assert caught.value.fix == "choose other GPUs with CUDA_VISIBLE_DEVICES"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UnmetError, match="none that can be used: GPU 0 is in MIG mode"):
        node_room.check_needs(node_room.read(), gpus=1, gpu_memory_gib=None, fix="try x")


@pytest.mark.parametrize(
    "device", ["MIG-0f4c5b5e-9d4c-5e0f-8c0e-4a3a4d4a7f00", "mig-GPU-0aaa1111/1/0", "1,MIG-0f4c5b5e"]
)
def test_a_part_of_a_gpu_cannot_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str) -> None:
    smi.install(monkeypatch, tmp_path, mig(), smi.gpu(1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device)
    with pytest.raises(NodeError, match="a part of a GPU in MIG mode, and harness uses whole GPUs") as caught:
        node_room.read()
    assert "MIG itself is left as it is" in caught.value.fix


def test_list_says_what_is_wrong_with_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smi.install(monkeypatch, tmp_path, mig())
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("node: h100, 1 GPU, ")
    assert f"\n  {MIG}\n" in out
    assert f"needs 8 GPUs of 130 GiB, this node has none that can be used: {MIG}" in out
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-0f4c5b5e")
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("node: unknown, 0 GPUs, ")
    assert "\n  CUDA_VISIBLE_DEVICES names 'MIG-0f4c5b5e', a part of a GPU in MIG mode" in out


def test_nothing_is_asked_that_changes_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = smi.install(monkeypatch, tmp_path, mig())
    node_room.describe()
    nvidia.apps()
    words = {line.split("=")[0].split()[0] for line in asked.read_text().splitlines()}
    assert words == {"--query-gpu", "--query-remapped-rows", "--query-compute-apps", "-q"}


# --- classes


@pytest.mark.parametrize(
    ("name", "node_class"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H100 PCIe", "h100-pcie"), ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H100 80GB HBM2e", "h100-hbm2e"), ("NVIDIA H100 64GB HBM2", "h100-64gb-hbm2"),
        ("NVIDIA H100 SXM5 96GB", "h100-sxm5-96gb"),
        ("NVIDIA H200", "h200"), ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA H20", "h20"), ("NVIDIA H20-3e", "h20-3e"), ("NVIDIA H20 NVL16", "h20-nvl16"),
        ("NVIDIA H800", "h800"), ("NVIDIA H800 PCIe", "h800-pcie"), ("NVIDIA H800 NVL", "h800-nvl"),
        ("NVIDIA GH200 480GB", "gh200"), ("NVIDIA GH200 120GB", "gh200"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144g-hbm3e"),
        ("NVIDIA B100", "b100"), ("NVIDIA B200", "b200"), ("NVIDIA B300 SXM6 AC", "b300"), ("NVIDIA B300", "b300"),
        ("NVIDIA GB200", "gb200"), ("NVIDIA GB300", "gb300"), ("NVIDIA GB10", "gb10"), ("NVIDIA Thor", "thor"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-max-q-workstation"),
        ("NVIDIA RTX PRO 5000 Blackwell", "rtx-pro-5000"),
        ("NVIDIA RTX PRO 4000 Blackwell SFF Edition", "rtx-pro-4000-sff"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"), ("NVIDIA GeForce RTX 5090 D", "rtx-5090-d"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "rtx-5090-laptop-gpu"), ("NVIDIA GeForce RTX 5070 Ti", "rtx-5070-ti"),
        ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"), ("NVIDIA L40S", "l40s"), ("NVIDIA L4", "l4"),
        ("Tesla T4", "t4"), ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA Graphics Device", "graphics-device"), ("NVIDIA", "gpu"),
    ],
)  # fmt: skip
def test_class_of_a_product(name: str, node_class: str) -> None:
    assert class_of([name, name]) == node_class


def test_class_of_none_and_of_different_gpus() -> None:
    assert class_of([]) == "cpu"
    assert class_of(["NVIDIA H100 PCIe", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 PCIe"]) == "a100-pcie-40gb+h100-pcie"


@pytest.mark.parametrize(
    ("node_class", "limit"),
    [
        ("h200", 20.0), ("h200-nvl", 20.0), ("h100-nvl", 40.0), ("h100", 30.0), ("h100-pcie", 30.0), ("h20", 60.0),
        ("h20-3e", 60.0), ("cpu", 60.0), ("h100+h200", 60.0), ("h200+h200-nvl", 60.0), ("gh200-144g-hbm3e", 60.0),
    ],
)  # fmt: skip
def test_the_limit_of_a_class_is_that_of_its_variants_too(node_class: str, limit: float) -> None:
    limits = {"default": 60.0, "h200": 20.0, "h100": 30.0, "h100-nvl": 40.0}
    assert of_class(limits, node_class) == limit


def test_without_a_default_other_classes_have_no_limit() -> None:
    assert of_class({"h200": 20.0}, "b200") is None
    assert of_class({}, "cpu") is None


# --- processes


def test_processes_that_compute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apps = [
        smi.app(11, "/opt/a, b/python3", "59412"),
        smi.app(12, "[Not Found]", "[N/A]"),
        smi.app(13, "VLLM::Worker_TP0", "[Insufficient Permissions]", "GPU-other"),
    ]
    smi.install(monkeypatch, tmp_path, smi.gpu(), apps=apps)
    assert [(app.uuid, app.pid, app.name, app.used) for app in nvidia.apps()] == [
        ("GPU-0aaa1111", 11, "/opt/a, b/python3", 59412),
        ("GPU-0aaa1111", 12, "[Not Found]", None),
        ("GPU-other", 13, "VLLM::Worker_TP0", None),
    ]


def test_no_process_and_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi.install(monkeypatch, tmp_path, smi.gpu())
    assert nvidia.apps() == ()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (nvidia.apps(), nvidia.further(), nvidia.cuda_version()) == ((), nvidia.Told(), None)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("00000000:2A:00.0", "0000:2a:00"), ("PCI:0000:2a:00", "0000:2a:00"), ("0000:2a:00", "0000:2a:00"),
        ("00000001:00:00.0", "0001:00:00"), ("0009:01:00", "0009:01:00"), ("", ""),
    ],
)  # fmt: skip
def test_one_form_of_an_address(text: str, place: str) -> None:
    assert nvidia.address(text) == place


def test_the_table_of_classes_loads_nothing() -> None:
    code = "import sys, harness.xid, harness.node_class; print([m for m in ('pydantic', 'yaml') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
