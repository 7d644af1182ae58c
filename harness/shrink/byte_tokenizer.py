"""A byte-level tokenizer, as tokenizer.json and tokenizer_config.json.

The id of a byte is its value (0 to 255); then `<|bos|>` is 256 and `<|eos|>` 257. Nothing is added around a text,
so that the number of tokens is the number of bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BOS, EOS = "<|bos|>", "<|eos|>"
BEGIN_ID, END_ID = 256, 257
NAMES = ("tokenizer.json", "tokenizer_config.json")


def byte_names() -> list[str]:
    """The character that byte-level tokenizers write for each byte: itself where it prints, else U+0100 and up."""
    prints = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in prints]
    return [chr(byte) if byte in prints else chr(0x100 + hidden.index(byte)) for byte in range(256)]


def special(name: str, number: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": name, **flags, "special": True}


def tokenizer() -> dict[str, Any]:
    """A BPE model without merges: every byte stays a token of its own."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special(BOS, BEGIN_ID), special(EOS, END_ID)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {name: byte for byte, name in enumerate(byte_names())},
            "merges": [],
        },
    }


def config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": EOS,
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
    }


def write(folder: Path) -> None:
    for name, content in zip(NAMES, (tokenizer(), config()), strict=True):
        text = json.dumps(content, ensure_ascii=False, indent=2)
        (folder / name).write_text(text + "\n", encoding="utf-8")
