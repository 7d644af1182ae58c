"""Compute the reference of the smoke test: log-probabilities of its corpus in float32, by transformers.

    pip install -e '.[reference]'
    python scenarios/models/tiny_lm/make_reference.py     # writes reference.json beside this file

It shares no code with the servers that are tested, nor with the harness. For another model and text:

    python make_reference.py --model FOLDER --corpus FILE --out FOLDER/reference.json [--window N]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parents[2] / "harness" / "corpora" / "smoke_en.txt"
WINDOW = 511
"""Tokens of a window, prefix included: the context of 512, less the one token that a server generates."""
DIGITS = 6


def windows(tokens: list[int], prefix: list[int], size: int) -> Iterator[list[int]]:
    step = size - len(prefix)
    for start in range(0, len(tokens), step):
        yield [*prefix, *tokens[start : start + step]]


def logprobs(model: torch.nn.Module, tokens: list[int]) -> list[float]:
    """Natural-log probability of each token after the first."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, :-1].double()
    chosen = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(tokens[1:])[:, None])
    return [float(value) for value in chosen[:, 0]]


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def reference(folder: Path, corpus: Path, size: int) -> dict[str, Any]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prefix = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    tokens = tokenizer.encode(corpus.read_text(encoding="utf-8"), add_special_tokens=False)
    scored = [(window, logprobs(model, window)) for window in windows(tokens, prefix, size)]
    return {
        "schema": 1,
        "weights": {file.name: sha256(file) for file in sorted(folder.glob("*.safetensors"))},
        "corpus": {"name": corpus.stem, "sha256": sha256(corpus), "bytes": corpus.stat().st_size},
        "dtype": "float32",
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "prefix": prefix,
        "windows": [
            {"tokens": window, "logprobs": [None, *(round(value, DIGITS) for value in values)]}
            for window, values in scored
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=HERE)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--out", type=Path, default=HERE / "reference.json")
    parser.add_argument("--window", type=int, default=WINDOW)
    words = parser.parse_args()
    torch.set_num_threads(1)
    made = reference(words.model, words.corpus, words.window)
    words.out.write_text(json.dumps(made, separators=(",", ":")) + "\n", encoding="utf-8")
    values = [value for window in made["windows"] for value in window["logprobs"][1:]]
    nats = -math.fsum(values) / len(values)
    print(f"{len(values)} tokens, {nats:.4f} nats a token, perplexity {math.exp(nats):.4f} -> {words.out}")


if __name__ == "__main__":
    main()
