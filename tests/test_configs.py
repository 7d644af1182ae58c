"""Relations that vLLM relies on hold in the configurations of tests/configs, and what is peculiar to each is there."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CONFIGS = Path(__file__).parent / "configs"
NAMES = sorted(path.parent.name for path in CONFIGS.glob("*/config.json"))
DRAFTERS = {"kimi_k3_dspark": "kimi_k3", "kimi_k3_dspark_gqa": "kimi_k3", "eagle3_llama_3_1_8b": "llama_3_1_8b"}
FORMER_VOCABULARY = {"gemma_3_27b": 262_208}  # a default of the class, not in the file

Config = dict[str, Any]


def read(name: str) -> Config:
    config: Config = json.loads((CONFIGS / name / "config.json").read_text())
    return config


def text_side(name: str) -> Config:
    config = read(name)
    inner: Config = config.get("text_config", config)
    return inner


def tokens(config: Config) -> Iterator[int]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from tokens(value)
        elif re.search(r"token_(id|index)$", key) and value is not None:
            yield from value if isinstance(value, list) else [value]


def test_each_folder_has_its_line_in_the_readme() -> None:
    told = re.findall(r"^\| `(\w+)` \|", (CONFIGS / "README.md").read_text(), re.MULTILINE)
    assert sorted(told) == NAMES
    assert len(NAMES) == 19


@pytest.mark.parametrize("name", NAMES)
def test_architecture_and_model_type_are_named(name: str) -> None:
    config = read(name)
    assert len(config["architectures"]) == 1
    assert config["model_type"]


@pytest.mark.parametrize("name", NAMES)
def test_special_tokens_are_in_the_vocabulary(name: str) -> None:
    vocabulary = text_side(name).get("vocab_size") or FORMER_VOCABULARY[name]
    assert all(0 <= token < vocabulary for token in tokens(read(name)))


@pytest.mark.parametrize("name", NAMES)
def test_heads_are_whole_groups(name: str) -> None:
    config = text_side(name)
    assert config["num_attention_heads"] % config["num_key_value_heads"] == 0


@pytest.mark.parametrize("name", [name for name in NAMES if "layer_types" in text_side(name)])
def test_a_list_of_layers_has_one_entry_a_layer(name: str) -> None:
    config = text_side(name)
    assert len(config["layer_types"]) == config["num_hidden_layers"]


def test_kimi_counts_layers_from_one_and_ends_with_two_of_full_attention() -> None:
    config = text_side("kimi_k3")
    schedule = config["linear_attn_config"]
    full, kda = schedule["full_attn_layers"], schedule["kda_layers"]
    assert sorted(full + kda) == list(range(1, config["num_hidden_layers"] + 1))
    assert full == [layer for layer in range(1, 94) if layer % 4 == 0 or layer == 93]
    assert (len(kda), len(full), full[-2:]) == (69, 24, [92, 93])


def test_kimi_is_quantised_in_its_text_side_only() -> None:
    quantisation = text_side("kimi_k3")["quantization_config"]
    assert "quantization_config" not in read("kimi_k3")
    assert (quantisation["quant_method"], quantisation["format"]) == ("compressed-tensors", "mxfp4-pack-quantized")
    assert not any(
        re.match(rule.removeprefix("re:"), "model.layers.1.block_sparse_moe.experts.0.w1")
        for rule in quantisation["ignore"]
    )


@pytest.mark.parametrize(("drafter", "target"), DRAFTERS.items())
def test_a_drafter_has_the_width_and_vocabulary_of_its_target(drafter: str, target: str) -> None:
    draft, whole = read(drafter), text_side(target)
    assert (draft["hidden_size"], draft["vocab_size"]) == (whole["hidden_size"], whole["vocab_size"])


def test_both_kimi_drafters_tap_five_layers_of_93_and_call_different_things_by_one_name() -> None:
    latent, grouped = read("kimi_k3_dspark"), read("kimi_k3_dspark_gqa")
    assert latent["target_layer_ids"] == [2, 23, 47, 71, 89]
    assert grouped["dflash_config"]["target_layer_ids"] == [7, 23, 51, 67, 83]
    assert (latent["num_target_layers"], grouped["num_target_layers"]) == (5, 93)


def test_a_pattern_has_one_letter_a_layer() -> None:
    config = read("nemotron_nano_v2_9b")
    pattern = config["hybrid_override_pattern"]
    assert len(pattern) == config["num_hidden_layers"]
    assert [pattern.count(letter) for letter in "M*-"] == [27, 4, 25]


def test_the_inner_width_of_mamba_is_the_expanded_one_in_granite_but_not_in_nemotron() -> None:
    granite, nemotron = read("granite_4_h_small"), read("nemotron_nano_v2_9b")
    assert granite["mamba_expand"] * granite["hidden_size"] == granite["mamba_n_heads"] * granite["mamba_d_head"]
    assert nemotron["expand"] * nemotron["hidden_size"] != nemotron["mamba_num_heads"] * nemotron["mamba_head_dim"]


def test_sections_of_mrope_fill_half_a_head() -> None:
    config = text_side("qwen3_vl_32b")
    assert sum(config["rope_scaling"]["mrope_section"]) == config["head_dim"] // 2


def test_vision_ends_at_the_width_of_the_text_side() -> None:
    assert read("qwen3_vl_32b")["vision_config"]["out_hidden_size"] == text_side("qwen3_vl_32b")["hidden_size"]
    assert read("kimi_k3")["vision_config"]["text_hidden_size"] == text_side("kimi_k3")["hidden_size"]


def test_every_layer_is_named_in_lists_that_name_layers() -> None:
    fp8 = read("qwen3_30b_a3b_fp8")["quantization_config"]["modules_to_not_convert"]
    int4 = read("qwen3_30b_a3b_w4a16")["quantization_config"]["ignore"]
    gates = {f"model.layers.{layer}.mlp.gate" for layer in range(48)}
    assert gates | {"lm_head"} == set(int4)
    assert gates | {"lm_head"} < set(fp8)
    assert len(fp8) == 1 + 3 * 48
