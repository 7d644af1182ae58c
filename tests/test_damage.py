"""Which damage the smoke test sees: the tiny model, damaged in eight ways, computed by transformers in float32.

Needs the extra `reference` (torch, transformers), so it belongs to `make test-real`. The table that it prints is
docs/evidence/tiny_lm_damage.md: perplexity alone misses the last ones, the comparison token by token sees all.
"""

import json
import math
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[1] / "scenarios" / "models" / "tiny_lm"
BLOCK = slice(128, 144)
"""A block of 16 tokens in the KV cache."""
NOTICED = 1.05
"""A perplexity 5 % higher might be noticed by somebody who looks; less passes for another text or another precision."""

pytestmark = pytest.mark.slow


def load(**config):
    import torch  # noqa: PLC0415 - not in the environment of the fast tests
    import transformers  # noqa: PLC0415

    settings = transformers.AutoConfig.from_pretrained(MODEL)
    for name, value in config.items():
        setattr(settings, name, value)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, config=settings, dtype=torch.float32)
    return model.eval(), torch


def edit(change):
    model, torch = load()
    with torch.no_grad():
        change(model.model.layers[2])
    return model, torch


def zero_layer(layer):
    layer.self_attn.o_proj.weight.zero_()
    layer.mlp.down_proj.weight.zero_()


def drop_head(layer):
    layer.self_attn.o_proj.weight[:, 64:].zero_()


def causal(torch, size):
    return torch.full((size, size), float("-inf")).triu(1)[None, None]


def window_of_one(torch, size):
    mask = torch.full((size, size), float("-inf"))
    mask.fill_diagonal_(0.0)
    return {"attention_mask": mask[None, None]}


def lost_block(torch, size):
    mask = causal(torch, size)
    mask[..., BLOCK.stop :, BLOCK] = float("-inf")
    return {"attention_mask": mask}


def no_rope(torch, size):
    # The mask is given because transformers reads a position that does not grow as the start of another text.
    return {"position_ids": torch.zeros(1, size, dtype=torch.long), "attention_mask": causal(torch, size)}


def jump(torch, size):
    positions = torch.arange(size)[None]
    return {"position_ids": positions + (positions >= size // 2), "attention_mask": causal(torch, size)}


def nothing(_torch, _size):
    return {}


ROPE = {"rope_theta": 1000.0, "rope_type": "default"}
DAMAGE = {
    "attention window of one token": (load, window_of_one),
    "RoPE off": (load, no_rope),
    "RoPE theta 1e3": (lambda: load(rope_parameters=ROPE), nothing),
    "norm epsilon 1e-2": (lambda: load(rms_norm_eps=0.01), nothing),
    "last layer zeroed": (lambda: edit(zero_layer), nothing),
    "one head dropped": (lambda: edit(drop_head), nothing),
    "KV block of 16 tokens lost": (load, lost_block),
    "positions jump by one": (load, jump),
}


def score(model, torch, inputs):
    """Every scored token's difference from the stored reference, in nats."""
    deltas = []
    for window in json.loads((MODEL / "reference.json").read_text())["windows"]:
        tokens = torch.tensor([window["tokens"]])
        with torch.no_grad():
            given = inputs(torch, tokens.shape[1])
            logits = model(input_ids=tokens, use_cache=False, **given).logits[0, :-1].double()
        chosen = torch.log_softmax(logits, dim=-1).gather(1, tokens[0, 1:, None])[:, 0]
        deltas += [float(p) - q for p, q in zip(chosen, window["logprobs"][1:], strict=True)]
    return deltas


def judged(deltas):
    size = len(deltas)
    ratio = -math.fsum(deltas) / size
    largest, mean = max(map(abs, deltas)), math.fsum(map(abs, deltas)) / size
    return {
        "factor": math.exp(ratio),
        "largest": largest,
        "mean": mean,
        "perplexity alone": math.exp(ratio) > NOTICED,
        "token by token": largest > 0.5 or mean > 0.02 or abs(ratio) > 0.005,
    }


def test_what_is_undamaged_agrees():
    model, torch = load()
    assert judged(score(model, torch, nothing))["largest"] < 1e-4


def test_the_table():
    rows = {name: judged(score(*make(), inputs)) for name, (make, inputs) in DAMAGE.items()}
    print("\n| damage | perplexity factor | largest | mean | seen by perplexity alone | seen token by token |")
    for name, row in rows.items():
        seen = " | ".join("yes" if row[way] else "no" for way in ("perplexity alone", "token by token"))
        print(f"| {name} | {row['factor']:.3f} | {row['largest']:.2f} | {row['mean']:.4f} | {seen} |")
    assert all(row["token by token"] for row in rows.values())
    unseen = [name for name, row in rows.items() if not row["perplexity alone"]]
    assert {"KV block of 16 tokens lost", "positions jump by one"} <= set(unseen)
    assert not rows["RoPE off"]["factor"] < 2
