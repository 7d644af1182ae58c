"""Greedy requests, as the checks that compare outputs make them: prompts by token, and nothing shared by accident."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from harness.checks.perplexity import prefix
from harness.client.answers import Generated

if TYPE_CHECKING:
    from harness.client.server_client import ServerClient

CORPUS = "smoke_en.txt"
TOP = 20
"""Likeliest tokens asked for at each position: as many as vLLM gives unless told otherwise (`--max-logprobs`)."""
PLAIN = {"ignore_eos": True, "repetition_penalty": 1.0}
"""Every answer as long as asked; no penalty from the model's generation_config, which moves the likeliest token."""

Tokens = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A text as this server cuts it into tokens."""

    prefix: Tokens
    """What its tokenizer puts before every prompt."""
    tokens: Tokens

    def piece(self, length: int, *, start: int = 0) -> Tokens:
        """So many tokens from a place on; the text begins again at its end."""
        return tuple(islice(cycle(self.tokens), start % len(self.tokens), start % len(self.tokens) + length))

    def prompt(self, length: int, *, start: int = 0) -> Tokens:
        """The same as a prompt, the prefix counted in."""
        return (*self.prefix, *self.piece(max(0, length - len(self.prefix)), start=start))[:length]


def text(client: ServerClient, corpora: Path) -> Text:
    """The harness's own text.

    Raises:
        ServerGone, RequestTimedOut, BadAnswer: see harness.answers.
    """
    words = (corpora / CORPUS).read_text("utf-8")
    bare = tuple(client.tokenize(words))
    return Text(prefix=prefix(client, words, bare), tokens=bare)


def salt() -> str:
    """Shares nothing with any other in the prefix cache, also with those of earlier runs where a cache outlives one."""
    return uuid.uuid4().hex


def question(client: ServerClient, prompt: Sequence[int], *, tokens: int, salt: str) -> Callable[[], Generated]:
    """A greedy request, not yet asked."""
    return partial(client.generate, prompt, max_tokens=tokens, salt=salt, top=TOP, **PLAIN)


def ask(client: ServerClient, prompts: Sequence[Tokens], *, tokens: int) -> list[Generated]:
    """All prompts at once, each with a salt of its own.

    Raises:
        ServerGone, RequestTimedOut, BadAnswer: see harness.answers.
    """
    return client.together([question(client, prompt, tokens=tokens, salt=salt()) for prompt in prompts])
