"""`harness shrink`: what of a big model's configuration stays, what shrinks to what, and what is told of it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import cli
from harness.errors import UsageError
from harness.shrink import shrink
from harness.shrink.draft import lookup, paths
from harness.shrink.fields import HEADS, SHARDED, TOKEN, WHY
from harness.shrink.layers import choose, kinds
from harness.shrink.ranks import aligned, full_ranks
from harness.shrink.text_side import of as text_side

PROJECT = Path(__file__).parent.parent
CONFIGS = Path(__file__).parent / "configs"
DRAFTERS = {"kimi_k3_dspark": "kimi_k3", "kimi_k3_dspark_gqa": "kimi_k3", "eagle3_llama_3_1_8b": "llama_3_1_8b"}
NAMES = sorted(path.parent.name for path in CONFIGS.glob("*/config.json"))
MODELS = [name for name in NAMES if name not in DRAFTERS]


def config(name):
    return json.loads((CONFIGS / name / "config.json").read_text(encoding="utf-8"))


def llama(**fields):
    base = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096}
    sizes = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}
    return {**base, **sizes, "bos_token_id": 1, "eos_token_id": 2, **fields}


def mini(full, **words):
    return shrink(full, **words)[0]


# --- exact results


def test_a_dense_model_with_grouped_queries():
    full = config("llama_3_1_70b")
    small = mini(full).config
    assert {name: small[name] for name in small if small[name] != full[name]} == {
        "num_hidden_layers": 2,
        "num_attention_heads": 8,  # 64 on 8 ranks
        "num_key_value_heads": 1,
        "hidden_size": 1024,  # 8 heads x 128
        "intermediate_size": 512,  # 28,672 on 8 ranks are 3,584 = 7 x 512
        "vocab_size": 1024,
        "bos_token_id": 256,
        "eos_token_id": [257, 258, 259],
    }


def test_kimi_k3_and_its_drafter():
    small, draft = shrink(config("kimi_k3"), draft=config("kimi_k3_dspark"))
    assert small.layers == (0, 1, 2, 3, 4)  # one dense, KDA and full attention, and five to listen to
    assert small.config["linear_attn_config"] == {
        "kda_layers": [1, 2, 3, 5],
        "full_attn_layers": [4],
        "num_heads": 12,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
        "use_full_rank_gate": True,
        "gate_lower_bound": -5.0,
    }
    kept = {"hidden_act": "situ", "kv_lora_rank": 512, "qk_nope_head_dim": 128, "num_experts_per_token": 16}
    assert {name: small.config[name] for name in kept} == kept
    quantised = config("kimi_k3")["text_config"]["quantization_config"]  # by vLLM served as mxfp4, if it is the whole
    assert small.config["quantization_config"] == {**quantised, "quant_method": "mxfp4"}
    assert draft is not None
    follows = {"target_hidden_size": 1024, "hidden_size": 1024, "target_num_hidden_layers": 5, "vocab_size": 1024}
    assert {name: draft.config[name] for name in follows} == follows
    assert draft.config["target_layer_ids"] == [0, 1, 2, 3, 4]
    assert draft.config["mask_token_id"] == 259  # behind the target's own: begin, end, padding
    assert "the vision tower and its projector" in small.not_run


def test_a_drafter_that_counts_its_targets_layers():
    _, draft = shrink(config("kimi_k3"), draft=config("kimi_k3_dspark_gqa"))
    assert draft is not None
    assert draft.config["num_target_layers"] == 5  # the depth of the target: 93
    assert draft.config["dflash_config"] == {"mask_token_id": 259, "target_layer_ids": [0, 1, 2, 3, 4]}
    assert (draft.config["num_attention_heads"], draft.config["num_key_value_heads"]) == (8, 2)


def test_an_eagle_drafter_that_names_no_layers_needs_seven():
    small, _ = shrink(config("llama_3_1_8b"), draft=config("eagle3_llama_3_1_8b"))
    assert small.config["num_hidden_layers"] == 7


def test_two_ranks_have_twice_as_much_and_each_of_them_the_same():
    one, two = (mini(config("kimi_k3"), tensor_parallel_size=size).config for size in (1, 2))
    for path in ("num_attention_heads", "linear_attn_config.num_heads", "moe_intermediate_size", "intermediate_size"):
        assert lookup(two, path) == 2 * lookup(one, path), path
    for path in ("hidden_size", "q_lora_rank", "routed_expert_hidden_size", "num_experts", "vocab_size"):
        assert lookup(two, path) == lookup(one, path), path


def test_the_quantisation_can_be_left_out_and_is_then_named():
    small = mini(config("kimi_k3"), quantised=False)
    assert "quantization_config" not in small.config
    assert "the kernels of its quantised weights (mxfp4)" in small.not_run


def test_a_hybrid_keeps_every_kind_of_layer_and_its_relation_of_widths():
    small = mini(config("granite_4_h_small"))
    assert small.config["layer_types"] == ["mamba"] * 5 + ["attention"]
    inner = small.config["mamba_n_heads"] * small.config["mamba_d_head"]
    assert inner == small.config["mamba_expand"] * small.config["hidden_size"]
    assert mini(config("jamba_1_5_mini")).config["mamba_dt_rank"] == 32  # a sixteenth of 512


def test_a_pattern_of_letters_is_cut():
    small = mini(config("nemotron_nano_v2_9b")).config
    assert small["hybrid_override_pattern"] == "M-M-M-MM-M-M-M*"
    assert small["num_hidden_layers"] == len(small["hybrid_override_pattern"])
    # One group of states would take another kernel than eight: two, of sixteen heads each as in the full model.
    assert (small["mamba_num_heads"], small["n_groups"], small["mamba_num_groups"]) == (32, 2, 2)


def test_what_a_class_fills_in_is_written_out():
    small = mini(config("gemma_3_27b"))
    assert small.config["sliding_window_pattern"] == 6
    assert small.layers == (0, 1, 2, 3, 4, 5)  # five with a window, one without
    assert small.config["vocab_size"] == 1024


# --- true of every fixture

both = pytest.mark.parametrize("size", [1, 2])
each = pytest.mark.parametrize("name", MODELS)


@each
def test_every_kind_of_layer_is_there(name):
    small = mini(config(name))
    full = text_side(config(name))[0]
    wide = {**full, **{path: small.config[path] for path in small.config if path not in full}}  # what a class fills in
    assert kinds(small.config) == [kinds(wide)[layer] for layer in small.layers]
    assert set(kinds(wide)) == set(kinds(small.config))


@both
@each
def test_a_rank_is_like_a_rank_of_the_full_model(name, size):
    full = text_side(config(name))[0]
    ranks = full_ranks(full)
    small = mini(config(name), tensor_parallel_size=size).config
    for heads in HEADS:
        if isinstance(lookup(full, heads.count), int):
            doubled = name == "nemotron_nano_v2_9b" and heads.shared == "n_groups" and size == 1  # two groups at least
            assert lookup(small, heads.count) * ranks == lookup(full, heads.count) * size * (1 + doubled), heads.count
    for width in SHARDED:
        if isinstance(full.get(width), int) and full[width]:
            assert math.gcd(small[width] // size, 512) == math.gcd(full[width] // ranks, 512), width


@each
def test_what_decides_a_path_stays(name):
    full = text_side(config(name))[0]
    small = mini(config(name))
    changed = {change.path for change in small.changes}
    moved = {"moe_layer_freq", "rope_scaling", "rope_parameters", "architectures", "model_type"}  # told where they do
    for path in paths(full):
        if path in WHY and path not in moved:
            assert lookup(small.config, path) == lookup(full, path), path
            assert path not in changed


@each
def test_every_field_is_accounted_for(name):
    small = mini(config(name))
    told = [item.path for group in (small.changes, small.kept, small.unknown) for item in group]
    assert set(paths(small.config)) <= set(told)
    assert all(change.why for change in small.changes)
    assert all(change.before != change.after for change in small.changes)


@each
def test_tokens_are_in_the_vocabulary_and_stay_apart(name):
    full, small = text_side(config(name))[0], mini(config(name)).config
    before = [token for path in paths(full) if TOKEN.search(path) for token in _tokens(full[path])]
    after = [token for path in paths(full) if TOKEN.search(path) for token in _tokens(small[path])]
    assert len(set(before)) == len(set(after))
    assert all(256 <= token < small["vocab_size"] for token in after)


def _tokens(value):
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int) and item >= 0]


@each
def test_experts_are_enough_for_the_router(name):
    full, small = text_side(config(name))[0], mini(config(name)).config
    for count in ("num_experts", "n_routed_experts", "num_local_experts"):
        if full.get(count):
            chosen = next(small[top] for top in ("num_experts_per_tok", "num_experts_per_token") if top in small)
            assert min(full[count], 2 * chosen) <= small[count] <= full[count]
            assert (small[count] & (small[count] - 1) == 0) == (full[count] & (full[count] - 1) == 0)
            assert small[count] % (small.get("n_group") or 1) == 0


@pytest.mark.parametrize(("draft", "target"), DRAFTERS.items())
def test_a_drafter_goes_with_its_target(draft, target):
    small, drafter = shrink(config(target), draft=config(draft))
    assert drafter is not None
    assert drafter.config["vocab_size"] == small.config["vocab_size"]
    assert drafter.config["hidden_size"] == small.config["hidden_size"]
    for path in ("target_layer_ids", "dflash_config.target_layer_ids", "eagle_config.eagle_aux_hidden_state_layer_ids"):
        if (listens := lookup(drafter.config, path)) is not None:
            assert len(listens) == len(lookup(config(draft), path))
            assert listens == sorted(set(listens))
            assert max(listens) < small.config["num_hidden_layers"]


# --- layers


def test_layers_that_come_late_are_brought_forward():
    types = ["full_attention"] * 30 + ["sliding_attention"] * 2
    small = mini(llama(layer_types=types))
    assert small.layers == (0, 30)
    assert small.config["layer_types"] == ["full_attention", "sliding_attention"]


def test_a_formula_that_skipping_would_break_keeps_the_prefix():
    # Every third is full attention, and a list says that layer 25 alone has no MLP.
    full = llama(full_attention_interval=3, mlp_only_layers=[25])
    assert choose(full) == tuple(range(26))


def test_numbers_counted_from_the_end_follow():
    full = llama(num_kv_shared_layers=12)  # 20 to 31
    small = mini(full)
    assert small.layers == (0, 20)
    assert small.config["num_kv_shared_layers"] == 1


def test_a_window_from_a_layer_on_counts_only_where_windows_are_used():
    assert mini(llama(use_sliding_window=False, max_window_layers=28)).layers == (0, 1)
    small = mini(llama(use_sliding_window=True, max_window_layers=28))
    assert small.layers == (0, 28)
    assert small.config["max_window_layers"] == 1


def test_exceptions_of_the_quantisation_have_the_new_numbers():
    quantised = {"quant_method": "compressed-tensors", "ignore": ["lm_head", "model.layers.20.mlp.up_proj"]}
    small = mini(llama(quantization_config=quantised))
    assert small.layers == (0, 20)
    assert small.config["quantization_config"]["ignore"] == ["lm_head", "model.layers.1.mlp.up_proj"]


def test_exceptions_for_layers_that_are_gone_are_gone():
    ignored = [f"model.layers.{layer}.mlp.gate" for layer in range(48)]
    full = config("qwen3_30b_a3b_w4a16")
    full["quantization_config"]["ignore"] = ["lm_head", *ignored]
    small = mini(full).config["quantization_config"]["ignore"]
    assert small == ["lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"]


# --- widths


@given(st.integers(1, 200_000), st.integers(1, 2048), st.integers(1, 96))
def test_an_aligned_width_has_the_same_power_of_two(size, least, step):
    small = aligned(size, least=least, step=step)
    assert small <= size
    assert math.gcd(small, 512) == math.gcd(size, 512)
    assert small == size or (small >= least and small % step == 0)


@pytest.mark.parametrize(
    ("size", "least", "small"),
    [(5376, 1024, 1280), (2880, 1024, 1088), (7168, 1024, 1024), (96, 256, 96), (1584, 256, 272), (3584, 256, 512)],
)
def test_aligned_widths(size, least, small):
    assert aligned(size, least=least) == small


def test_blocks_of_a_quantisation_are_not_cut():
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert full_ranks(llama(intermediate_size=1536, quantization_config=blocks)) == 4  # 1,536 / 8 = 192
    assert full_ranks(llama(intermediate_size=1536)) == 8


# --- what is told, and mistakes


def test_an_unknown_field_is_kept_and_named():
    small = mini(llama(shiny_width=4096, shiny_switch=True))
    assert small.config["shiny_width"] == 4096
    assert {unknown.path: unknown.hint for unknown in small.unknown} == {
        "shiny_width": "it is what hidden_size was, which is 512 now: it may have to follow",
        "shiny_switch": "",
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [("shiny_layers", [1, 2]), ("shiny_freq", 3), ("shiny", list(range(llama()["num_hidden_layers"])))],
)
def test_an_unknown_field_that_may_tell_layers_apart_says_so(field, value):
    small = mini(llama(**{field: value}))
    assert small.config[field] == value
    (unknown,) = small.unknown
    assert unknown.hint == "it may tell layers apart: which ones stay was decided without it"


def test_what_only_the_whole_of_a_multimodal_model_has_is_named():
    whole = {"text_config": {**llama(), "model_type": "llama"}, "vision_config": {}, "shiny_top": 7}
    small = mini(whole)
    assert "shiny_top" not in small.config
    left = {change.path: (change.before, change.after) for change in small.changes if "of the whole" in change.path}
    assert left == {"vision_config (of the whole)": ({}, None), "shiny_top (of the whole)": (7, None)}


@pytest.mark.parametrize(
    ("fields", "layers"),
    [
        ({"full_attn_idxs": [2, 5, 8]}, 3),
        ({"moe_layer_start_index": 3, "moe_layer_end_index": 31, "moe_layer_interval": 1}, 4),
        ({"moe_layer_start_index": 1, "moe_layer_interval": 2}, 3),
        ({"sliding_window_pattern": "LLLG"}, 4),
    ],
)
def test_layers_are_told_apart_by(fields, layers):
    assert len(mini(llama(**fields)).layers) == layers


def test_kv_heads_that_do_not_go_over_eight_ranks_are_not_said_to():
    assert full_ranks(llama(num_attention_heads=40, num_key_value_heads=10, hidden_size=5120)) == 2
    assert full_ranks(llama(num_attention_heads=64, num_key_value_heads=4)) == 8  # copied to two ranks each


def test_what_is_the_hidden_size_once_more_follows_it():
    small = mini(llama(conv_dim=4096, block_dim=2048)).config
    assert (small["conv_dim"], small["block_dim"]) == (small["hidden_size"], 2048)


def test_state_space_widths_follow_their_heads():
    falcon = llama(mamba_expand=2, mamba_d_ssm=1536, mamba_n_heads=24, mamba_d_head=64, mamba_n_groups=1)
    small = mini(falcon).config
    assert small["mamba_d_ssm"] == small["mamba_n_heads"] * small["mamba_d_head"]
    mamba = {"model_type": "mamba2", "num_hidden_layers": 64, "hidden_size": 4096, "vocab_size": 32768, "expand": 2}
    small = mini({**mamba, "num_heads": 128, "head_dim": 64, "n_groups": 8, "state_size": 128}).config
    assert small["expand"] * small["hidden_size"] == small["num_heads"] * small["head_dim"]
    assert small["num_heads"] % small["n_groups"] == 0


@pytest.mark.parametrize(
    ("full", "words", "said"),
    [
        ({"model_type": "bert"}, {}, "vocab_size is not in it"),
        ({"vocab_size": 9, "hidden_size": 64}, {}, "no field of it is a number of layers"),
        ({"vocab_size": 9, "num_hidden_layers": 4}, {}, "no field of it is the hidden size"),
        (llama(), {"tensor_parallel_size": 3}, "num_attention_heads 32 does not go over 3 ranks"),
        (llama(), {"full_tensor_parallel_size": 5}, "num_attention_heads 32 does not go over 5 ranks"),
        (llama(num_hidden_layers=True), {}, "num_hidden_layers is True, and not a whole number"),
        (llama(num_hidden_layers=0), {}, "no field of it is a number of layers"),
        (llama(hidden_size="4096"), {}, "hidden_size is '4096', and not a whole number"),
        (llama(vocab_size=-1), {}, "vocab_size is -1, and not a whole number"),
        (llama(num_key_value_heads=1.5), {}, "num_key_value_heads is 1.5, and not a whole number"),
        (
            llama(num_key_value_heads=10, num_attention_heads=40),
            {"full_tensor_parallel_size": 8},
            "num_key_value_heads 10",
        ),
        (llama(full_attn_idxs=[1, "2"]), {}, "full_attn_idxs is not a list of numbers of layers"),
        (llama(mlp_only_layers=[{}]), {}, "mlp_only_layers is not a list of numbers of layers"),
        (llama(num_attention_heads=3, num_key_value_heads=3), {}, "hidden_size 4096 is not a multiple of"),
        (llama(num_attention_heads=32, num_key_value_heads=10), {}, "num_attention_heads 32 is not a multiple of"),
        (llama(head_dim=0), {}, "head_dim is 0"),
        (llama(quantization_config="fp8"), {}, "quantization_config is no object"),
        (llama(layer_types=["full_attention"]), {}, "layer_types has 1 entries for 32 layers"),
        ({"vocab_size": 9, "num_hidden_layers": 4, "hidden_size": 64}, {}, "no field of it is a number of heads"),
        (llama(), {"tensor_parallel_size": 8, "full_tensor_parallel_size": 4}, "a rank of 8 cannot be like one of"),
        (llama(eos_token_id=list(range(2000))), {}, "it names 2000 special tokens"),
        (
            llama(),
            {"draft": {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}, **llama(hidden_size=2048)}},
            "its hidden_size is 2048, not 4096",
        ),
        ({"text_config": {"model_type": "quux"}}, {}, "text_config is of model type 'quux'"),
        (llama(), {"draft": {"target_hidden_size": 8, **llama()}}, "the drafter is made for a target of hidden size 8"),
    ],
)
def test_what_cannot_be_shrunk_is_refused(full, words, said):
    with pytest.raises(UsageError) as caught:
        shrink(full, **words)
    assert said in caught.value.what
    assert caught.value.fix


def test_a_drafter_alone_is_refused():
    with pytest.raises(UsageError, match="configuration of a drafter"):
        shrink(config("kimi_k3_dspark"))


ODD = st.sampled_from([None, True, False, 0, -1, 1, 3, 2.5, "x", [], ["x"], [1, 2], {}, {"a": [1]}, 10**30])
FIELDS = sorted({path.partition(".")[0] for name in MODELS for path in text_side(config(name))[0]} | {"text_config"})


@given(st.dictionaries(st.sampled_from(FIELDS), ODD, max_size=3), st.sampled_from(MODELS))
def test_odd_values_give_a_mini_model_or_a_sentence(odd, name):
    full = {**text_side(config(name))[0], **odd}
    try:
        small = mini(full)
    except UsageError as error:
        assert error.what  # noqa: PT017 - either is fine; anything else is a bug
        return
    assert json.loads(json.dumps(small.config)) == small.config


# --- the command


def test_the_command_writes_a_model_that_a_server_finds(tmp_path, capsys):
    out = tmp_path / "mini"
    assert cli.main(["shrink", str(CONFIGS / "llama_3_1_70b"), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "config.json",
        "shrink.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    said = capsys.readouterr().out
    assert f"{out}: 2 layers; a rank of 1 is like one of the full model's 8" in said
    assert "intermediate_size    28672 → 512" in said
    assert "reading a checkpoint" in said
    report = json.loads((out / "shrink.json").read_text(encoding="utf-8"))
    assert report["layers"] == [0, 1]
    assert {"path": "num_hidden_layers", "before": 80, "after": 2}.items() <= report["changes"][0].items()


SHIPPED = {
    "kimi_k3_mini": ("kimi_k3_mini_dspark", "kimi_k3_dspark_gqa", 1),
    "kimi_k3_mini_tp2": ("kimi_k3_mini_dspark_tp2", "kimi_k3_dspark_gqa", 2),
    "kimi_k3_mini_tp8": ("kimi_k3_mini_dspark_tp8", "kimi_k3_dspark_gqa", 8),
}
"""Each with its drafter, the fixture of that, and the ranks."""


@pytest.mark.parametrize(
    ("target", "drafter", "draft", "ranks"),
    [
        *((target, *made) for target, made in SHIPPED.items()),
        ("kimi_k3_mini", "kimi_k3_mini_dspark_mla", "kimi_k3_dspark", 1),
    ],
)
def test_the_shipped_mini_models_are_what_shrink_makes_of_the_fixtures(target, drafter, draft, ranks, tmp_path):
    words = ["shrink", str(CONFIGS / "kimi_k3"), "--out", str(tmp_path / target), "--unquantised"]
    words += ["--drafter", str(CONFIGS / draft), "--drafter-out", str(tmp_path / drafter)]
    assert cli.main([*words, "--tensor-parallel-size", str(ranks)]) == 0
    for folder in (target, drafter):
        shipped = PROJECT / "scenarios" / "models" / folder
        assert sorted(path.name for path in shipped.iterdir()) == sorted(p.name for p in (tmp_path / folder).iterdir())
        for path in shipped.iterdir():
            assert path.read_bytes() == (tmp_path / folder / path.name).read_bytes(), path


def test_a_rank_of_each_mini_has_what_a_rank_of_the_full_model_has():
    full = json.loads((CONFIGS / "kimi_k3" / "config.json").read_text(encoding="utf-8"))["text_config"]
    for folder, (_, _, ranks) in SHIPPED.items():
        mini = json.loads((PROJECT / "scenarios" / "models" / folder / "config.json").read_text(encoding="utf-8"))
        for field in ("num_attention_heads", "moe_intermediate_size"):
            assert mini[field] / ranks == full[field] / 8
        assert mini["linear_attn_config"]["num_heads"] / ranks == full["linear_attn_config"]["num_heads"] / 8
        assert mini["num_experts"] == full["num_experts"]


def test_a_second_time_is_fine_and_somebody_elses_model_is_not(tmp_path, capsys):
    words = ["shrink", str(CONFIGS / "llama_3_1_8b"), "--out", str(tmp_path)]
    assert cli.main(words) == cli.main(words) == 0
    (tmp_path / "shrink.json").unlink()
    before = (tmp_path / "config.json").read_bytes()
    assert cli.main(words) == 2
    assert "has a config.json that `harness shrink` did not write" in capsys.readouterr().err
    assert (tmp_path / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("{", "is no JSON"),
        ("[" * 200_000, "is no JSON"),
        ("[]", "is no JSON object"),
        ("\xff", "is no JSON"),
    ],
)
def test_files_that_are_no_configuration(tmp_path, capsys, text, said):
    file = tmp_path / "config.json"
    if text is not None:
        file.write_bytes(text.encode("latin-1"))
    assert cli.main(["shrink", str(file), "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "shrink.json"])
def test_files_of_somebody_else_stay(tmp_path, capsys, name):
    (tmp_path / name).write_text("{}")
    assert cli.main(["shrink", str(CONFIGS / "llama_3_1_8b"), "--out", str(tmp_path)]) == 2
    assert f"has a {name} that `harness shrink` did not write" in capsys.readouterr().err
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, "{}")]


def test_a_model_is_not_written_over_what_it_is_made_from(tmp_path, capsys):
    words = ["shrink", str(CONFIGS / "llama_3_1_8b"), "--out", str(tmp_path / "a")]
    assert cli.main(words) == 0
    before = (tmp_path / "a" / "config.json").read_bytes()
    for source in ("a", "a/config.json"):
        assert cli.main(["shrink", str(tmp_path / source), "--out", str(tmp_path / "b" / ".." / "a")]) == 2
        assert "is the folder of the model that is read" in capsys.readouterr().err
    assert (tmp_path / "a" / "config.json").read_bytes() == before


def test_two_mini_models_need_two_folders(tmp_path, capsys):
    words = ["shrink", str(CONFIGS / "kimi_k3"), "--drafter", str(CONFIGS / "kimi_k3_dspark")]
    assert cli.main([*words, "--out", str(tmp_path / "a"), "--drafter-out", str(tmp_path / "a" / ".")]) == 2
    assert "is the folder of both mini models" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_infinity_is_kept_as_published_files_have_it(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(llama(time_step_limit=[0.0, float("inf")])))
    assert cli.main(["shrink", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert '"time_step_limit": [\n    0.0,\n    Infinity\n  ]' in (tmp_path / "out" / "config.json").read_text()


def test_odd_texts_are_shown_and_kept(tmp_path, capsys):
    odd = "\x1b[31m\ud800\u202e"
    (tmp_path / "config.json").write_text(json.dumps(llama(shiny=odd)))
    assert cli.main(["shrink", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert "␛[31m\\ud800\\u202e" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "config.json").read_text())["shiny"] == odd


def test_a_drafter_needs_its_own_folder(capsys):
    words = ["shrink", str(CONFIGS / "kimi_k3"), "--out", "x", "--drafter", str(CONFIGS / "kimi_k3_dspark")]
    assert cli.main(words) == 2
    assert "--drafter and --drafter-out belong together" in capsys.readouterr().err
