"""Are the numbers right? The probability that the server gives to each token of a text, against a stored reference.

Perplexity alone does not see a lost block of the KV cache or positions that jump by one (factors of 1.003 to 1.004 on
the tiny model), but single tokens then differ by 4 nats and more. So tokens are compared one by one, and the limits
separate the noise of bfloat16 (largest 0.16 to 0.41, mean 0.008) from damage. Quantised weights or an fp8 cache need
limits of their own (fp8 cache: mean 0.063, largest 0.85).

Where no reference exists, the perplexity has a limit (`max`) or only has to be finite.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness import clock
from harness.checks import judgement, reference, scoring
from harness.checks.base import CheckContext, CheckResult, Params
from harness.checks.judgement import NAME, Material, PerplexityParams
from harness.checks.scoring import Value, Window
from harness.client.answers import BadAnswer
from harness.errors import ScenarioError

if TYPE_CHECKING:
    from harness.client.server_client import ServerClient

NOT_JSON = "Out of range float values"
"""What a server says (HTTP 400) whose log-probabilities are NaN: the model's failure, not the request's."""
FIRST_TOKENS = 8
"""Of the request that only makes the server compile what prompt log-probabilities need (2.4 to 10 s on a CPU)."""


class Perplexity:
    name = NAME
    params: type[Params] = PerplexityParams

    def prepare(self, params: PerplexityParams, *, model: str, corpora: Path) -> None:
        _material(params, model=model, corpora=corpora)

    def run(self, context: CheckContext) -> CheckResult:
        params: PerplexityParams = context.params
        client = context.client
        info = client.models()
        material = _material(params, model=info.root or "", corpora=context.corpora)
        try:
            cut = _windows(client, params, material, info.max_model_len)
            scored, first = _ask(client, cut)
            return judgement.judge(params, material, cut, scored, first_seconds=first)
        except _Failure as failure:
            return _failed(str(failure), request=client.requests)
        except BadAnswer as answer:
            if NOT_JSON not in answer.body:
                raise
            text = "the model's log-probabilities are NaN or infinite: the server could not write them as JSON"
            return _failed(f"{text} (HTTP {answer.status}: {NOT_JSON} are not JSON compliant)", request=answer.request)


class _Failure(Exception):  # noqa: N818 - the model's, and caught here
    """The check is over: one sentence."""


def _material(params: PerplexityParams, *, model: str, corpora: Path) -> Material:
    corpus = _corpus(params.corpus, corpora)
    if params.reference is None:
        return Material(corpus=corpus, reference=None)
    path = Path(params.reference)
    stored = reference.load(path)
    reference.check_fits(stored, path, corpus=corpus, model=model)
    return Material(corpus=corpus, reference=stored)


def _corpus(name: str, corpora: Path) -> bytes:
    known = sorted(file.stem for file in corpora.glob("*.txt"))
    file = Path(name) if "/" in name else corpora / f"{name}.txt"
    try:
        text = file.read_bytes()
        text.decode("utf-8")
    except OSError as error:
        fix = f"texts of the harness are {', '.join(known)}; a file of your own starts with ./"
        raise ScenarioError(f"there is no corpus {name}: {error.strerror}", fix=fix) from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"the corpus {name} is not UTF-8: {error}", fix="convert it") from error
    if len(text) < 2:  # noqa: PLR2004 - the first token of a text has no probability
        raise ScenarioError(f"the corpus {name} is empty", fix="a page of text will do")
    return text


def _windows(
    client: ServerClient, params: PerplexityParams, material: Material, max_model_len: int | None
) -> tuple[Window, ...]:
    """What to ask, one request each: as in the reference, or as many tokens as fit beside the one that is generated."""
    room = max_model_len - 1 if max_model_len else None
    text = material.corpus.decode("utf-8")
    bare = tuple(client.tokenize(text))
    if material.reference is None:
        size = min(size for size in (params.window, room, len(bare) + FIRST_TOKENS) if size is not None)
        dressed = prefix(client, text, bare)
        _has_room(params, size, prefix=len(dressed), longest=max_model_len)
        return scoring.windows(bare, prefix=dressed, size=size)
    if room is not None and material.reference.longest > room:
        raise ScenarioError(
            f"the reference has windows of {material.reference.longest} tokens, the server takes {room} and an answer",
            fix="raise `max-model-len` in `serve`, or make a reference with shorter windows",
        )
    if (at := reference.first_mismatch(bare, material.reference.corpus_tokens)) is not None:
        raise _Failure(
            "the server cuts the corpus into other tokens than the reference: "
            f"{len(bare)} in place of {len(material.reference.corpus_tokens)}, first different at token {at}"
        )
    return material.reference.cut()


def _has_room(params: PerplexityParams, size: int, *, prefix: int, longest: int | None) -> None:
    """A token has a probability only after another one: two must fit, and one beside the prefix."""
    least = max(2, prefix + 1)
    if size < least:
        short = f"`checks.{NAME}.window`" if size == params.window else "`max-model-len` in `serve`"
        raise ScenarioError(
            f"check {NAME}: windows of {size} tokens are too short to score a text, which begins with {prefix} of the "
            f"tokenizer's own; the model takes {longest} in all",
            fix=f"raise {short} to {least if size == params.window else least + 1} or more",
        )


def prefix(client: ServerClient, text: str, bare: tuple[int, ...]) -> tuple[int, ...]:
    """What the tokenizer puts before a prompt (begin of text), so that every window starts as a prompt does."""
    dressed = tuple(client.tokenize(text, special=True))
    extra = len(dressed) - len(bare)
    return next((dressed[:n] for n in range(extra, 0, -1) if dressed[n : n + len(bare)] == bare), ())


def _ask(client: ServerClient, cut: tuple[Window, ...]) -> tuple[list[Value], float]:
    """All scored tokens with what the server gave them, and the seconds of the first, compiling request."""
    begun = clock.now()
    client.prompt_logprobs(cut[0].tokens[:FIRST_TOKENS])
    first = clock.now() - begun
    scored: list[Value] = []
    for number, window in enumerate(cut, start=1):
        scored += scoring.values(window, number, client.prompt_logprobs(window.tokens))
        if found := scoring.fault(scored):
            counts, place = found
            raise _Failure(f"the model's log-probabilities are no numbers: {counts}, first at {place}")
    return scored, first


def _failed(text: str, *, request: int | None) -> CheckResult:
    return CheckResult(name=NAME, outcome="fail", message=text, request=request)
