"""What the fields of a config.json mean: counts and sizes that shrink, and what stays because code paths hang on it.

Names as the configuration classes of transformers and vLLM have them. A field of no table is kept and named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
VOCABULARY = "vocab_size"
HEAD_DIM = "head_dim"
LATENT_RANK = "kv_lora_rank"
"""There in every model with multi-head latent attention, and only there."""

INSIDE = ("linear_attn_config", "eagle_config", "dflash_config", "attn_config", "ffn_config")
"""Mappings whose own fields are looked at; every other mapping (rotary embeddings, quantisation) is one value."""

# --- layers: which of them there are

PER_LAYER = (
    *("layer_types", "layers_block_type", "mlp_layer_types", "block_types", "attn_type_list", "attention_types"),
    *("hybrid_override_pattern", "no_rope_layers", "sliding_window_list", "moe_layer_freq", "block_configs"),
    *("hybrid_layer_pattern", "compress_ratios", "swiglu_limits", "swiglu_limits_shared", "intermediate_size"),
    *("activation_sparsity_pattern", "partial_rotary_factors", "yarn_only_types"),
)
"""An entry, or a letter, a layer, if it is a list or a string."""
EVERY_LAYER = ("layer_types", "layers_block_type", "mlp_layer_types", "hybrid_override_pattern")
"""Of these, those that must have one for each."""

NUMBERS: Mapping[str, int] = {
    "linear_attn_config.kda_layers": 1,
    "linear_attn_config.full_attn_layers": 1,
    "attn_layer_indices": 0,
    "full_attention_layers": 0,
    "mlp_only_layers": 0,
    "moe_layers": 0,
    "full_attn_idxs": 0,
}
"""Lists of layers, and the number of the first layer in them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Formula:
    """A number from which the model's code makes the kind of each layer, counted from 0."""

    kind: Callable[[int, int, int], Hashable]
    """Of the value, the layer and the number of layers."""
    needs: str = ""
    """Counts only where this field is true."""
    offset: str = ""
    """A field that is added to the value's multiples."""


_AFTER = Formula(kind=lambda value, layer, _: (layer + 1) % value == 0)  # every value-th, the first one late
_EVERY = Formula(kind=lambda value, layer, _: layer % value == 0)

STATES = ("state_size", "conv_kernel", "ssm_state_size", "mamba_d_state", "attention_hidden_size")
"""One of these is in every model that has no heads."""

FORMULAS: Mapping[str, Formula] = {
    "first_k_dense_replace": Formula(kind=lambda value, layer, _: layer < value),
    "num_dense_layers": Formula(kind=lambda value, layer, _: layer < value),
    "moe_layer_start_index": Formula(kind=lambda value, layer, _: layer < value),
    "moe_layer_end_index": Formula(kind=lambda value, layer, _: layer <= value),
    "moe_layer_interval": _AFTER,
    "moe_layer_freq": _EVERY,
    "decoder_sparse_step": _AFTER,
    "interleave_moe_layer_step": _AFTER,
    "full_attention_interval": _AFTER,
    "layer_group_size": _AFTER,
    "sliding_window_pattern": _AFTER,
    "no_rope_layer_interval": _AFTER,
    "global_attn_every_n_layers": _EVERY,
    "attn_layer_period": Formula(kind=lambda value, layer, _: layer % value, offset="attn_layer_offset"),
    "expert_layer_period": Formula(kind=lambda value, layer, _: layer % value, offset="expert_layer_offset"),
    "max_window_layers": Formula(kind=lambda value, layer, _: layer >= value, needs="use_sliding_window"),
    "num_kv_shared_layers": Formula(kind=lambda value, layer, layers: layer >= layers - value),
}
CYCLES = ("sliding_window_pattern",)
"""A letter for each layer of a period, if it is a string: LLLG."""
BLOCKS = ("attn_res_block_size",)
"""Layers that make a block; a second block reads what the first one wrote."""

# --- heads, widths, experts: how large they are


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """A count of heads, and of what several of them share (KV heads, groups of states)."""

    count: str
    shared: str | None = None
    least: int = 1
    """Of what is shared, where the full model has more: code branches on 1."""


HEADS: tuple[Heads, ...] = (
    Heads(count="num_attention_heads", shared="num_key_value_heads"),
    Heads(count="num_attention_heads", shared="num_kv_heads"),
    Heads(count="num_attention_heads", shared="num_attention_groups"),
    Heads(count="n_head"),
    Heads(count="n_heads", shared="attn_config.kv_n_heads"),
    Heads(count="swa_num_attention_heads", shared="swa_num_key_value_heads"),
    Heads(count="num_global_key_value_heads"),
    Heads(count="linear_num_value_heads", shared="linear_num_key_heads"),
    Heads(count="linear_attn_config.num_heads"),
    Heads(count="mamba_num_heads", shared="n_groups", least=2),  # the gated norm of one group is another kernel
    Heads(count="mamba_n_heads", shared="mamba_n_groups", least=2),
    Heads(count="num_heads", shared="n_groups", least=2),
)
SPELLINGS: Mapping[str, str] = {
    "mamba_num_groups": "n_groups",
    "mamba_state_dim": "ssm_state_size",
    "num_query_groups": "num_key_value_heads",
}
"""Second spellings in one file, which follow the first."""

FOLLOWING = ("block_dim", "conv_dim", "conv_dim_out", "word_embed_proj_dim")
"""Widths that are the hidden size once more, where they are so in the full model: others would need a projection."""
EXPANDED = (
    ("mamba_expand", "mamba_n_heads", "mamba_d_head"),
    ("expand", "mamba_num_heads", "mamba_head_dim"),
    ("expand", "num_heads", HEAD_DIM),
)
"""A factor for the hidden size, and the heads and their dimension of which the product may be meant."""
PRODUCTS = (("mamba_d_ssm", "mamba_n_heads", "mamba_d_head"),)
"""A width that is heads times their dimension, where it is in the full model."""
SHARDED = (
    *("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "intermediate_size_mlp"),
    *("moe_shared_expert_intermediate_size", "shared_intermediate_size", "n_inner", "ffn_hidden_size"),
    *("expert_intermediate_size", "dense_intermediate_size", "moe_ffn_hidden_size", "block_ff_dim", "ffn_dim"),
    "ffn_config.ffn_hidden_size",
)
"""Widths of which each rank of a tensor parallel group has its part."""
WHOLE = ("q_lora_rank", "routed_expert_hidden_size", "moe_latent_size", "markov_rank", "hidden_size_per_layer_input")
"""Widths that every rank has whole."""
EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "ffn_config.moe_num_experts")
TOP_K = (
    *("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "top_k_experts", "moe_top_k"),
    *("moe_k", "ffn_config.moe_top_k"),
)
EXPERT_GROUPS = (("n_group", "topk_group"), ("num_expert_group", "topk_group"))

# --- what configuration classes fill in where a published file leaves it out

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {"vocab_size": 262_208, "sliding_window_pattern": 6, "bos_token_id": 2, "pad_token_id": 0},
}
"""By model type, of the fields that are looked at here (transformers 5.17)."""

# --- tokens

TOKEN = re.compile(r"(?:^|_)token_(?:id|ids|index)$|_noise_token_id$")
VOCABULARIES = (VOCABULARY, "draft_vocab_size", "vocab_size_per_layer_input")

# --- drafters

TARGET_HIDDEN = "target_hidden_size"
TARGET_LAYERS = ("target_layer_ids", "eagle_config.eagle_aux_hidden_state_layer_ids", "dflash_config.target_layer_ids")
TARGET_COUNTS = ("target_num_hidden_layers", "num_target_layers")
"""How many layers the target has; the second one is in some drafters the number of those that they read."""

# --- what stays, and why

KEPT: Mapping[str, tuple[str, ...]] = {
    "kernels are chosen by it": (
        *("head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank", "qk_head_dim"),
        *("swa_head_dim", "swa_v_head_dim", "global_head_dim", "linear_key_head_dim", "linear_value_head_dim"),
        *("linear_attn_config.head_dim", "mamba_head_dim", "mamba_d_head", "ssm_state_size", "mamba_d_state"),
        *("linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim", "conv_kernel", "mamba_d_conv"),
        *("chunk_size", "mamba_chunk_size", "index_head_dim", "index_n_heads", "index_topk", "index_topk_freq"),
        *("sliding_window", "attention_chunk_size", "rope_parameters", "rope_scaling", "partial_rotary_factor"),
        *("dtype", "torch_dtype", "hidden_act", "hidden_activation", "mlp_hidden_act", "mamba_hidden_act"),
        *("activation_function", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"),
        *("state_size", "conv_kernel_size", "swa_window", "sliding_window_size", "head_dim_factor"),
    ),
    "how many experts a token has decides the router's kernel": (
        *TOP_K,
        *("n_group", "topk_group", "num_expert_group", "topk_method", "scoring_func", "moe_router_activation_func"),
        *("norm_topk_prob", "moe_renormalize", "n_shared_experts", "num_shared_experts", "routed_scaling_factor"),
        *("use_grouped_topk", "router_scaling_factor", "moe_router_topk_scaling_factor"),
    ),
    "the model's code branches on it": (
        *("architectures", "model_type", "tie_word_embeddings", "attention_bias", "attention_out_bias", "mlp_bias"),
        *(
            "use_bias",
            "qkv_bias",
            "use_qk_norm",
            "attn_output_gate",
            "mla_use_nope",
            "mla_use_output_gate",
            "use_conv_bias",
        ),
        *("mla_use_qk_norm", "latent_moe_use_norm", "linear_attn_config.use_full_rank_gate", "mamba_conv_bias"),
        *("linear_attn_config.gate_lower_bound", "mamba_proj_bias", "mamba_rms_norm"),
        *(
            "use_sliding_window",
            "position_embedding_type",
            "rope_interleave",
            "normalization_function",
        ),
        *("use_rope", "attn_temperature_tuning", "floor_scale", "attn_scale", "for_llm_compressor", "ep_size"),
        *("is_encoder_decoder", "is_decoder", "add_cross_attention", "use_cache", "use_bidirectional_attention"),
        *(
            "use_mamba_kernels",
            "num_nextn_predict_layers",
            "mtp_num_hidden_layers",
            "num_mtp_layers",
            "dspark_bonus_anchor",
        ),
        *("mtp_use_dedicated_embeddings", "rescale_prenorm_residual", "residual_in_fp32", "time_step_limit"),
        *("mlp_hidden_size", "use_double_wide_mlp", "tie_encoder_decoder", "cross_attention_hidden_size"),
    ),
    "the layers' kinds are made from it": (
        *FORMULAS,
        *("attn_layer_offset", "expert_layer_offset"),
    ),
    "how the drafter works": (
        *("num_target_layers", "block_size", "dspark_block_size", "parallel_drafting", "norm_before_residual"),
        *(
            "norm_before_fc",
            "speculators_model_type",
            "eagle_config.use_aux_hidden_state",
            "eagle_config.use_input_layernorm_in_first_layer",
        ),
        *("markov_head_type", "enable_confidence_head", "confidence_head_with_markov"),
    ),
    "states and inner widths follow from the hidden size": ("mamba_expand", "expand"),
    "positions cost next to nothing, and rotary embeddings are made for them": (
        *("max_position_embeddings", "max_seq_len", "original_max_position_embeddings", "initial_context_length"),
        *("n_positions", "model_max_length", "seq_length", "max_sequence_length"),
    ),
    "a number that decides no path": (
        *("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps", "initializer_range", "rope_theta"),
        *(
            "rope_local_base_freq",
            "activation_situ_beta",
            "activation_situ_linear_beta",
            "swiglu_limit",
            "swa_rope_theta",
        ),
        *("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling", "logit_scale"),
        *(
            "router_aux_loss_coef",
            "router_jitter_noise",
            "aux_loss_alpha",
            "output_router_logits",
        ),
        *(
            "attention_dropout",
            "hidden_dropout",
            "hidden_dropout_prob",
            "resid_pdrop",
            "embd_pdrop",
            "attn_pdrop",
            "mlp_dropout",
        ),
        *("pretraining_tp", "time_step_min", "time_step_max", "time_step_floor", "time_step_rank_scale"),
        *("initializer_cutoff_factor", "seq_aux", "mamba_ssm_dtype", "time_step_scale"),
    ),
    "how texts are sampled where nobody says otherwise, or labels and words of a training": (
        *("diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size", "length_penalty"),
        *("max_length", "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences"),
        *("output_scores", "remove_invalid_values", "repetition_penalty", "return_dict_in_generate", "temperature"),
        *("top_k", "top_p", "typical_p", "pruned_heads", "tf_legacy_loss", "use_bfloat16"),
        *(
            "transformers_version",
            "_name_or_path",
            "name_or_path",
            "license",
            "_attn_implementation",
            "chunk_size_feed_forward",
        ),
        *(
            "num_logits_to_keep",
            "output_attentions",
            "output_hidden_states",
            "return_dict",
            "use_return_dict",
            "id2label",
        ),
        *("label2id", "torchscript", "tokenizer_class", "cache_implementation"),
    ),
}
WHY: Mapping[str, str] = {name: why for why, names in KEPT.items() for name in names}
