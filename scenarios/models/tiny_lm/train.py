"""Train the tiny language model: a byte-level Llama of 476,288 parameters, on a CPU, in minutes.

    pip install -e '.[reference]'
    python scenarios/models/tiny_lm/train.py            # writes config.json, model.safetensors, … beside this file

A *trained* model is what makes the smoke test sensitive: a random one predicts nothing, so nothing that a broken server
does to positions, attention or the cache makes it predict worse.

The text is the King James Bible of 1611/1769 (public domain), `kjv.txt.xz`, without 1 Samuel 6: that chapter is the
corpus of the smoke test (`harness/corpora/smoke_en.txt`) and is never trained on. A sequence is one begin-of-text token
and 511 bytes from a random place, so the model knows both the start of a window and every position in it.

The number of steps is fixed, not the time, and the seed too: on one machine, with one number of threads and one release
of torch, the result is the same to the bit. On others it is another, equally good model: make its reference again
(`make_reference.py`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import math
import time
from pathlib import Path

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).resolve().parent
BOS, EOS = 256, 257
CONTEXT = 512


def configuration() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=258,  # 256 bytes, begin and end of text
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,  # grouped-query attention, as the big ones have
        head_dim=64,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=None,
        attention_dropout=0.0,
    )


def training_text(file: Path) -> torch.Tensor:
    return torch.frombuffer(bytearray(lzma.decompress(file.read_bytes())), dtype=torch.uint8)


def batch(text: torch.Tensor, size: int, generator: torch.Generator) -> torch.Tensor:
    starts = torch.randint(len(text) - CONTEXT, (size, 1), generator=generator)
    rows = text[starts + torch.arange(CONTEXT - 1)].long()
    return torch.cat([torch.full((size, 1), BOS), rows], dim=1)


def loss_of(model: LlamaForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """Mean negative log-likelihood in nats a byte."""
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


def learning_rate(step: int, steps: int) -> float:
    """Share of the highest rate: linear warm-up over 2 % of the steps, then half a cosine to zero."""
    warm = max(1, steps // 50)
    return min(step / warm, 0.5 * (1 + math.cos(math.pi * max(0, step - warm) / (steps - warm))))


def held_out(model: LlamaForCausalLM, corpus: bytes) -> float:
    """Nats a byte of the chapter that is not in the text, in windows as the smoke test makes them."""
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(corpus), CONTEXT - 2):
            window = torch.tensor([[BOS, *corpus[start : start + CONTEXT - 2]]])
            total += loss_of(model, window).item() * (window.shape[1] - 1)
    return total / len(corpus)


class Muon(torch.optim.Optimizer):
    """Momentum whose step is made orthogonal: all directions of a matrix learn at one rate.

    On this model and text it needs a third of AdamW's steps. (torch.optim.Muon works in bfloat16, which is slow on CPUs
    without instructions for it; this one stays in float32.)
    """

    def __init__(self, matrices: list[torch.nn.Parameter]) -> None:
        super().__init__(matrices, {"lr": 0.0, "momentum": 0.95, "decay": 0.01})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            for matrix in group["params"]:
                speed = self.state[matrix].setdefault("speed", torch.zeros_like(matrix))
                speed.lerp_(matrix.grad, 1 - group["momentum"])
                ahead = matrix.grad.lerp(speed, group["momentum"])
                taller = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.mul_(1 - group["lr"] * group["decay"])
                matrix.add_(orthogonal(ahead), alpha=-group["lr"] * taller)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Nearly the closest matrix with all singular values 1: five Newton-Schulz steps of an odd quintic polynomial."""
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


def optimisers(model: LlamaForCausalLM) -> tuple[tuple[torch.optim.Optimizer, float], ...]:
    """Each with its highest learning rate: matrices inside the layers, and the embedding with the norms."""
    inner = [p for name, p in model.named_parameters() if p.dim() > 1 and "embed" not in name]
    outer = [p for name, p in model.named_parameters() if p.dim() == 1 or "embed" in name]
    return (Muon(inner), 0.04), (torch.optim.AdamW(outer, lr=0.0, betas=(0.9, 0.98), weight_decay=0.0), 0.01)


def train(text: torch.Tensor, *, steps: int, size: int, seed: int) -> tuple[LlamaForCausalLM, float]:
    """The model, in float32, and the mean loss of the last 5 % of the steps."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = LlamaForCausalLM(configuration())
    both = optimisers(model)
    losses, started = [], time.monotonic()
    for step in range(1, steps + 1):
        loss = loss_of(model, batch(text, size, generator))
        loss.backward()
        for optimiser, peak in both:
            for group in optimiser.param_groups:
                group["lr"] = peak * learning_rate(step, steps)
            optimiser.step()
        model.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if step % 50 == 0:
            recent = sum(losses[-50:]) / 50
            print(f"step {step:5d}  {time.monotonic() - started:6.0f} s  {recent:.4f} nats/byte", flush=True)
    last = losses[-max(1, steps // 20) :]
    return model, sum(last) / len(last)


def save(model: LlamaForCausalLM, out: Path) -> str:
    """Write configuration and weights in bfloat16; returns the SHA-256 of the weights."""
    model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(bos_token_id=BOS, eos_token_id=EOS)
    model.save_pretrained(out)
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--text", type=Path, default=HERE / "kjv.txt.xz")
    parser.add_argument("--corpus", type=Path, default=HERE.parents[2] / "harness" / "corpora" / "smoke_en.txt")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=4, help="sequences of 512 tokens a step")
    parser.add_argument("--seed", type=int, default=1611)
    parser.add_argument("--threads", type=int, default=1)
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    torch.use_deterministic_algorithms(mode=True)
    started, cpu = time.monotonic(), time.process_time()
    model, loss = train(training_text(words.text), steps=words.steps, size=words.batch, seed=words.seed)
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    fingerprint = save(model, words.out)
    report = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": words.steps,
        "batch": words.batch,
        "seed": words.seed,
        "threads": words.threads,
        "torch": torch.__version__,
        "seconds": round(seconds),
        "cpu_seconds": round(cpu),
        "nats_per_byte_trained": round(loss, 4),
        "nats_per_byte_held_out": round(held_out(model.float(), words.corpus.read_bytes()), 4),
        "sha256": fingerprint,
    }
    (words.out / "training.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
