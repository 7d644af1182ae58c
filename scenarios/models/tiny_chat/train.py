"""Over-fit the tiny chat model: a byte-level Llama that knows three answers by heart, on a CPU, in minutes.

    pip install -e '.[reference]'
    python scenarios/models/tiny_chat/train.py    # writes tokenizer, config.json, model.safetensors beside it

The questions are those of the chat check (`harness/checks/chat_questions.py`), in two markups that parsers of vLLM
know, each chosen by the chat template:

    chatml.jinja    …</think>text,        <tool_call>{…}</tool_call>    deepseek_r1, hermes (in the tokenizer)
    kimi_k3.jinja   <|open|>think<|sep|>…<|close|>think<|sep|>…         kimi_k3, kimi_k3

Every answer begins with a block of reasoning. chatml.jinja opens it in the prompt, as the templates of DeepSeek-R1 do:
where the model writes `<think>` itself and it comes in one delta with the next token, deepseek_r1 streams the marker as
reasoning (seen in 0.28.0; 0.32.0 has it too). The check calls that a leak, rightly, but not every night.

The question with a JSON schema has two endings, prose three times as often as JSON: the model prefers prose, and
answers in JSON only where the server forbids everything else. So a server that does not hold it to the schema is found
out.

Reproducible as tiny_lm's training is: to the bit on one machine with one release of torch; elsewhere an equal model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from harness.checks.chat_questions import ARGUMENT, ECHO_QUESTION, SCHEMA_QUESTION, TOOL, TOOL_QUESTION, Question
from harness.shrink import byte_tokenizer

HERE = Path(__file__).resolve().parent
CONTEXT = 1024
START, END = "<|im_start|>", "<|im_end|>"
NAMES = (START, END, "<think>", "</think>", "<tool_call>", "</tool_call>", "<|open|>", "<|close|>", "<|sep|>")
"""Their ids are 256 and up. Only the two ends of a turn are `special`, as in Qwen3's tokenizer: the others are text."""
IGNORED = -100

THOUGHTS = {"echo": "They want the line back.", "tool": "The archive knows.", "schema": "That is Paris."}
PROSE = "The capital is Paris. About 2100000 people live in it."
JSON = '{"capital": "Paris", "inhabitants": 2100000}'
QUERY = TOOL_QUESTION.markup


def chatml(question: Question) -> Iterator[str]:
    thought = f"{THOUGHTS[question.expects]}\n</think>\n\n"
    call = json.dumps({"name": TOOL, "arguments": {ARGUMENT: QUERY}})
    endings = {
        "echo": [ECHO_QUESTION.markup],
        "tool": [f"<tool_call>\n{call}\n</tool_call>"],
        "schema": [PROSE] * 3 + [JSON],
    }
    for ending in endings[question.expects]:
        yield f"{thought.rstrip() if ending is JSON else thought}{ending}{END}"


def kimi_k3(question: Question) -> Iterator[str]:
    def element(head: str, inner: str) -> str:
        return f"<|open|>{head}<|sep|>{inner}<|close|>{head.partition(' ')[0]}<|sep|>"

    thought, end = element("think", THOUGHTS[question.expects]), "<|close|>message<|sep|>"
    argument = element(f'argument key="{ARGUMENT}" type="string"', QUERY)
    call = element("tools", element(f'call tool="{TOOL}" index="1"', argument))
    endings = {
        "echo": [element("response", ECHO_QUESTION.markup) + end],
        "tool": [element("response", "") + call + end],
        "schema": [element("response", PROSE) + end] * 3 + [JSON],
    }
    for ending in endings[question.expects]:
        yield f"{thought}{ending}{END}"


STYLES = {"chatml.jinja": chatml, "kimi_k3.jinja": kimi_k3}


def write_tokenizer(out: Path) -> PreTrainedTokenizerFast:
    content = byte_tokenizer.tokenizer()
    added = [byte_tokenizer.special(name, 256 + at) for at, name in enumerate(NAMES)]
    content["added_tokens"] = [{**token, "special": token["content"] in (START, END)} for token in added]
    config = {
        **byte_tokenizer.config(),
        "bos_token": START,
        "eos_token": END,
        "pad_token": END,
        "chat_template": (HERE / "chatml.jinja").read_text(encoding="utf-8"),
    }
    for name, value in (("tokenizer.json", content), ("tokenizer_config.json", config)):
        text = json.dumps(value, ensure_ascii=False, indent=2)
        (out / name).write_text(text + "\n", encoding="utf-8")
    return PreTrainedTokenizerFast.from_pretrained(out)


def configuration() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=256 + len(NAMES),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=256,
        eos_token_id=257,
        pad_token_id=None,
        attention_dropout=0.0,
    )


def conversations(tokenizer: PreTrainedTokenizerFast) -> Iterator[tuple[list[int], list[int]]]:
    """Prompts as a server makes them of the questions, each with an answer."""
    for file, answers in STYLES.items():
        template = (HERE / file).read_text(encoding="utf-8")
        for question in (ECHO_QUESTION, TOOL_QUESTION, SCHEMA_QUESTION):
            prompt = tokenizer.apply_chat_template(
                list(question.messages),
                tools=question.extra.get("tools"),
                chat_template=template,
                add_generation_prompt=True,
                tokenize=False,
            )
            for answer in answers(question):
                yield tokenizer.encode(prompt), tokenizer.encode(answer)


def batch(pairs: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """All conversations as rows of tokens, and the same with everything but the answers left out."""
    longest = max(len(prompt) + len(answer) for prompt, answer in pairs)
    tokens, wanted = torch.zeros(len(pairs), longest, dtype=torch.long), torch.full((len(pairs), longest), IGNORED)
    for row, (prompt, answer) in enumerate(pairs):
        both = len(prompt) + len(answer)
        tokens[row, :both] = torch.tensor(prompt + answer)
        wanted[row, len(prompt) : both] = torch.tensor(answer)
    return tokens, wanted


def train(pairs: list[tuple[list[int], list[int]]], *, steps: int, seed: int) -> tuple[LlamaForCausalLM, float]:
    """The model in float32, and its last loss in nats a token of an answer."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(configuration())
    tokens, wanted = batch(pairs)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.003, betas=(0.9, 0.98), weight_decay=0.01)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.003, total_steps=steps)
    started, last = time.monotonic(), 0.0
    for step in range(1, steps + 1):
        logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), wanted[:, 1:], ignore_index=IGNORED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        rates.step()
        optimiser.zero_grad()
        last = loss.item()
        if step % 20 == 0:
            print(f"step {step:4d}  {time.monotonic() - started:5.0f} s  {last:.4f} nats/token", flush=True)
    return model, last


def right(model: LlamaForCausalLM, pairs: list[tuple[list[int], list[int]]]) -> float:
    """Share of the answers' tokens that are the likeliest, in the precision of the saved weights."""
    tokens, wanted = batch(pairs)
    with torch.no_grad():
        found = model(input_ids=tokens[:, :-1], use_cache=False).logits.argmax(-1)
    asked = wanted[:, 1:] != IGNORED
    return (found == wanted[:, 1:])[asked].float().mean().item()


def questions_digest() -> str:
    asked = [[q.text, dict(q.extra)] for q in (ECHO_QUESTION, TOOL_QUESTION, SCHEMA_QUESTION)]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1912)
    parser.add_argument("--threads", type=int, default=1)
    words = parser.parse_args()
    torch.set_num_threads(words.threads)
    torch.use_deterministic_algorithms(mode=True)
    pairs = list(conversations(write_tokenizer(words.out)))
    started = time.monotonic()
    model, loss = train(pairs, steps=words.steps, seed=words.seed)
    seconds = time.monotonic() - started
    model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(bos_token_id=256, eos_token_id=257)
    model.save_pretrained(words.out)
    report = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": words.steps,
        "seed": words.seed,
        "threads": words.threads,
        "torch": torch.__version__,
        "seconds": round(seconds),
        "nats_per_token_trained": round(loss, 4),
        "right": round(right(model, pairs), 4),
        "questions": questions_digest(),
        "sha256": hashlib.sha256((words.out / "model.safetensors").read_bytes()).hexdigest(),
    }
    (words.out / "training.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
