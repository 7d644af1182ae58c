"""Of a multimodal model the side that reads and writes text; the towers need processors, which a mini model has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import UsageError
from harness.shrink.draft import Change, Config, lookup

SIDES = ("text_config", "llm_config", "language_config")
TOWERS: Mapping[str, str] = {
    "vision_config": "the vision tower and its projector",
    "audio_config": "the audio tower",
    "speech_config": "the speech tower",
    "perceiver_config": "the perceiver",
    "talker_config": "the talker",
}
ARCHITECTURES: Mapping[str, tuple[str, str]] = {
    "kimi_linear": ("kimi_linear", "KimiLinearForCausalLM"),
    "deepseek_v3": ("deepseek_v3", "DeepseekV3ForCausalLM"),
    "gemma3_text": ("gemma3_text", "Gemma3ForCausalLM"),
    "gemma4_text": ("gemma4_text", "Gemma4ForCausalLM"),
    "llama": ("llama", "LlamaForCausalLM"),
    "llama4_text": ("llama4_text", "Llama4ForCausalLM"),
    "mistral": ("mistral", "MistralForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen2_vl_text": ("qwen2", "Qwen2ForCausalLM"),
    "qwen2_5_vl_text": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "qwen3_vl_text": ("qwen3", "Qwen3ForCausalLM"),
    "qwen3_vl_moe_text": ("qwen3_moe", "Qwen3MoeForCausalLM"),
    "qwen3_5_text": ("qwen3_5_text", "Qwen3_5ForCausalLM"),
    "qwen3_5_moe_text": ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
}
"""By model type of the text side: model type and class that serve it alone, as transformers and vLLM name them."""
SHARED = (
    "quantization_config",
    "tie_word_embeddings",
    "dtype",
    "torch_dtype",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
)
"""Fields of the whole model that hold for its text side where that does not say otherwise."""
SERVED_AS: Mapping[tuple[str, str], str] = {("kimi_k3", "mxfp4-pack-quantized"): "mxfp4"}
"""By model type of the whole and format of its quantisation: the method that vLLM (0.28.0 on) serves the whole with."""
MULTIMODAL_ROTARY = ("mrope_section", "mrope_interleaved")


def of(config: Config) -> tuple[dict[str, Any], tuple[Change, ...], tuple[str, ...]]:
    """The text side of a configuration as one of its own, what was changed for it, and which paths are lost.

    Raises:
        UsageError: nothing is known that serves this text side alone.
    """
    side = next((name for name in SIDES if isinstance(config.get(name), dict)), None)
    if side is None:
        return dict(config), (), ()
    text = {**{name: config[name] for name in SHARED if name in config}, **config[side]}
    known = str(text.get("model_type"))
    if known not in ARCHITECTURES:
        raise UsageError(
            f"{side} is of model type {known!r}, and nothing is known that serves it without the rest",
            fix=f"known are {', '.join(ARCHITECTURES)}; write a config.json of the text side and shrink that",
        )
    model_type, architecture = ARCHITECTURES[known]
    changes = [Change(path=side, before="inside", after="the whole", why="only the side of the text is served")]
    for name, value in (("model_type", model_type), ("architectures", [architecture])):
        if text.get(name) != value:
            changes.append(
                Change(path=name, before=text.get(name) or config.get(name), after=value, why="serves text alone")
            )
            text[name] = value
    _served_as(text, str(config.get("model_type")), changes)
    changes += _of_the_whole(config, side)
    lost = [words for name, words in TOWERS.items() if name in config]
    lost += _without_multimodal_rotary(text, changes)
    return text, tuple(changes), tuple(lost)


def _of_the_whole(config: Config, side: str) -> list[Change]:
    """Fields that the text side does not have: they are of the towers, of their tokens, or of nobody knows what."""
    why = "only the side of the text is served"
    others = (name for name in config if name not in (side, *SHARED, "model_type", "architectures"))
    return [Change(path=f"{name} (of the whole)", before=config[name], after=None, why=why) for name in others]


def _served_as(text: dict[str, Any], whole: str, changes: list[Change]) -> None:
    before = text.get("quantization_config")
    method = SERVED_AS.get((whole, str(lookup(before, "format")))) if isinstance(before, Mapping) else None
    if method and before:
        text["quantization_config"] = {**before, "quant_method": method}
        why = "what the server makes of it for the whole model"
        path = "quantization_config.quant_method"
        changes.append(Change(path=path, before=before.get("quant_method"), after=method, why=why))


def _without_multimodal_rotary(text: dict[str, Any], changes: list[Change]) -> list[str]:
    lost = []
    for name in ("rope_parameters", "rope_scaling"):
        rotary = text.get(name)
        if isinstance(rotary, dict) and any(key in rotary for key in MULTIMODAL_ROTARY):
            left = {key: value for key, value in rotary.items() if key not in MULTIMODAL_ROTARY}
            left = {key: "default" if value == "mrope" else value for key, value in left.items()}
            changes.append(
                Change(
                    path=name,
                    before=rotary,
                    after=left,
                    why="the class that serves text alone has one position a token",
                )
            )
            text[name] = left
            lost.append("rotary embeddings with three positions a token (M-RoPE)")
    return lost
