"""Contracts of real releases: read from their files, nothing started."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.build import parse
from harness.contracts import accepted, checking, contracts_file, fetching, reading, rendering
from harness.contracts.model import Report
from harness.environment import Environment
from harness.environment.copies import PYTHONPATH

pytestmark = pytest.mark.real
GDN = "dropped-argument:GDNAttentionMetadataBuilder"


def told(report: Report) -> dict[str, str]:
    """Titles of what nobody accepted, and whether somebody runs into it."""
    return {each.title: each.state for each in rendering.new(report, accepted.load())}


def test_the_environment_of_a_release_is_read_in_seconds(vllm_environment: Environment) -> None:
    assert PYTHONPATH not in vllm_environment.env
    begun = time.monotonic()
    sources = reading.at(vllm_environment.python.parent.parent, "vllm")
    report = checking.check(sources, contracts_file.load(), build=str(vllm_environment.build))
    print(f"\n{report.version}: {report.files} files, {time.monotonic() - begun:.1f} s, {report.classes}")
    assert report.version == vllm_environment.version
    assert report.files > 2000
    assert report.classes["attention metadata builders"] > 50
    found = {each.title: each for each in report.findings}
    names = found["dropped-argument:MLACommonMetadataBuilder.layer_names"]
    assert names.state == "latent"
    assert Path(names.place.file).name == "mla_attention.py"
    assert all(each.rule != "never-set" for each in report.findings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("0.27.1", {f"{GDN}.layer_names": "latent", f"{GDN}.device": "latent"}),
        ("0.28.0", {f"{GDN}.layer_names": "latent", f"{GDN}.device": "latent"}),
        (
            "0.29.0",
            {
                f"{GDN}.layer_names": "live",
                f"{GDN}.device": "latent",
                **{
                    f"declared-count:{name}.mamba-copy-functions": "live"
                    for name in (
                        "KimiK3ForConditionalGeneration", "KimiLinearForCausalLM",
                        "NemotronHForCausalLM", "NemotronH_Nano_VL_V2",
                    )
                },
            },
        ),
        ("0.30.0", {}),
        ("0.31.0", {}),
        ("0.32.0", {}),
    ],
)  # fmt: skip
def test_releases(release: str, expected: dict[str, str]) -> None:
    sources = fetching.of_build(parse(f"{release}+cpu"), "vllm")
    report = checking.check(sources, contracts_file.load(), build=release)
    assert told(report) == expected
    live = [each for each in report.findings if each.title == f"{GDN}.layer_names" and each.state == "live"]
    assert [use.function for each in live for use in each.uses] == (
        ["KimiK3KDAMetadataBuilder._get_recoverssm_context"] if release == "0.29.0" else []
    )


@pytest.mark.slow
def test_the_narrow_type_of_vllm_50148() -> None:
    """In 0.26.0 three builders declare AttentionSpec, as their base does, and assert MambaSpec; not since 0.27.0."""
    for release, count in (("0.26.0", 3), ("0.27.0", 0)):
        sources = fetching.of_build(parse(f"{release}+cpu"), "vllm")
        found = checking.check(sources, contracts_file.load(), build=release).findings
        assert sum(each.member == "__init__.kv_cache_spec" for each in found) == count
