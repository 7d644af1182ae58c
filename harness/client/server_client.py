"""The harness as a client of the server: what it asks, and what it makes of the answers.

Every request that the model answers has a number, counted from 1 after ready, so that a failure can say *which* one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from harness import clock
from harness.client import chat, prometheus
from harness.client.answers import BadAnswer, Chat, Completion, Generated, ModelInfo
from harness.client.exchange import Call, Http
from harness.client.prometheus import Metrics

Prompt = str | Sequence[int]
Message = Mapping[str, Any]
"""`{"role": "user", "content": "…"}`."""
T = TypeVar("T")


class ServerClient:
    """Talks to one server about one model. Safe to use, and to abort, from several threads."""

    def __init__(self, url: str, model: str, *, request_seconds: float) -> None:
        self.model = model
        self.requests = 0
        """Number of the last request that the model was asked."""
        self._http = Http(url, seconds=request_seconds)
        self._lock = threading.Lock()
        self._info: ModelInfo | None = None

    @property
    def asking(self) -> float:
        """Seconds so far in which at least one request to the model was under way."""
        return self._http.asking

    def abort(self) -> None:
        """Cut every request that is under way and refuse new ones: the server has ended, or we are interrupted."""
        self._http.abort()

    def complete(self, prompt: Prompt, *, max_tokens: int, **extra: Any) -> Completion:
        """Greedy completion of a text or of token ids; `extra` are further fields of the request.

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: see harness.answers.
        """
        begun = clock.now()
        call = self._completions(prompt, max_tokens, extra)
        answer = call.json()
        choice, usage = call.first_choice(answer), answer.get("usage") or {}
        return Completion(
            text=choice.get("text") or "",
            tokens=usage.get("completion_tokens"),
            seconds=clock.now() - begun,
            choice=choice,
            usage=usage,
        )

    def stream_completion(self, prompt: Prompt, *, max_tokens: int, **extra: Any) -> Completion:
        """The same as a stream, with the time of its first chunk.

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: see harness.answers; also a stream without its end mark.
        """
        begun, first = clock.now(), None
        asked = {"stream": True, "stream_options": {"include_usage": True}, **extra}
        call = self._completions(prompt, max_tokens, asked)
        texts: list[str] = []
        choice: Mapping[str, Any] = {}
        usage: Mapping[str, Any] = {}
        for event in call.events():
            if event.get("choices"):
                first = clock.now() - begun if first is None else first
                choice = call.first_choice(event)
                texts.append(choice.get("text") or "")
            usage = event.get("usage") or usage
        if first is None:
            raise call.bad("streamed no token")
        return Completion(
            text="".join(texts),
            tokens=usage.get("completion_tokens"),
            seconds=clock.now() - begun,
            first_token_seconds=first,
            choice=choice,
            usage=usage,
        )

    def generate(self, prompt: Prompt, *, max_tokens: int, salt: str = "", top: int = 5, **extra: Any) -> Generated:
        """Greedy completion by token, with the log-probabilities of the `top` likeliest at each position.

        Requests of different `salt` share nothing in the prefix cache (`cache_salt`, vLLM 0.27.1 to 0.32.0).

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: see harness.answers; also an answer without numbers for its tokens.
        """
        begun = clock.now()
        asked = {"logprobs": top, "return_tokens_as_token_ids": True, **({"cache_salt": salt} if salt else {}), **extra}
        call = self._completions(prompt, max_tokens, asked)
        answer = call.json()
        choice = call.first_choice(answer)
        given = choice.get("logprobs")
        if not isinstance(given, dict):
            raise call.bad("has no logprobs")
        try:
            tokens = tuple(map(_token_id, given["tokens"]))
            logprobs = tuple(map(float, given["token_logprobs"]))
            likeliest = tuple({_token_id(t): float(v) for t, v in row.items()} for row in given["top_logprobs"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise call.bad(f"has logprobs of another shape ({error!r})") from error
        if not len(tokens) == len(logprobs) == len(likeliest):
            raise call.bad("has not one log-probability for each token")
        text, seconds = choice.get("text") or "", clock.now() - begun
        return Generated(
            tokens=tokens, logprobs=logprobs, top=likeliest, text=text, seconds=seconds, cached=_cached(answer)
        )

    def chat(self, messages: Sequence[Message], *, max_tokens: int, **extra: Any) -> Chat:
        """Greedy answer of the assistant; `extra` are further fields of the request.

        `return_token_ids=True` asks for the token ids of prompt and answer too (vLLM 0.27.1 to 0.32.0).

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: see harness.answers; also parts of another shape than a chat's.
        """
        return chat.whole(self._chat(messages, max_tokens, extra))

    def stream_chat(self, messages: Sequence[Message], *, max_tokens: int, **extra: Any) -> Chat:
        """The same as a stream, put together again.

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: as `chat`; also a stream without its end mark.
        """
        asked = {"stream": True, "stream_options": {"include_usage": True}, **extra}
        return chat.streamed(self._chat(messages, max_tokens, asked))

    def together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """All calls at once, each in a thread of its own; their results in order, or the error of the first to fail.

        One that fails does not end the others: each has its own budget.
        """
        with ThreadPoolExecutor(max_workers=max(1, len(calls))) as pool:
            return [future.result() for future in [pool.submit(call) for call in calls]]

    def health(self, path: str) -> int:
        """HTTP status of the server's own word on its health.

        Raises:
            ServerGone, RequestTimedOut: see harness.answers.
        """
        call = Call(self._http, "GET", path)
        try:
            call.text()
        except BadAnswer as answer:
            return answer.status
        return call.status

    def prompt_logprobs(self, tokens: Sequence[int]) -> list[float | None]:
        """Natural-log probability that the model gives to each token after those before it.

        The first has none. None elsewhere: the server sent no number for that token. Minus infinity is sent as -9999.0.

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: see harness.answers. Where a value is NaN, vLLM answers
                HTTP 400 "Out of range float values are not JSON compliant".
        """
        call = self._completions(tokens, 1, {"prompt_logprobs": 0})
        answer = call.json()
        entries = call.first_choice(answer).get("prompt_logprobs")
        if not isinstance(entries, list):
            raise call.bad("has no prompt_logprobs")
        return [_logprob(entries[at] if at < len(entries) else None, token) for at, token in enumerate(tokens)]

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text; with `special`, those that the tokenizer puts around a prompt too.

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: see harness.answers.
        """
        body = {"model": self.model, "prompt": text, "add_special_tokens": special}
        call = Call(self._http, "POST", "/tokenize", asked=body)
        tokens = call.json().get("tokens")
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise call.bad("has no list of tokens")
        return tokens

    def prompt_tokens(self, asked: Mapping[str, Any]) -> int:
        """Tokens of the prompt of a request with these fields, messages through the model's template.

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: see harness.answers; also a server that cannot count messages.
        """
        prompt = asked.get("prompt")
        if prompt is not None:
            return len(self.tokenize(prompt, special=True) if isinstance(prompt, str) else prompt)
        body = {"model": self.model, **{key: asked[key] for key in ("messages", "tools") if key in asked}}
        call = Call(self._http, "POST", "/tokenize", asked=body)
        count = call.json().get("count")
        if type(count) is not int:
            raise call.bad("has no count of tokens")
        return count

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Text of token ids, special tokens written out.

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: see harness.answers.
        """
        call = Call(self._http, "POST", "/detokenize", asked={"model": self.model, "tokens": list(tokens)})
        text = call.json().get("prompt")
        if not isinstance(text, str):
            raise call.bad("has no text")
        return text

    def models(self) -> ModelInfo:
        """What the server says about our model; asked once.

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: see harness.answers; also where it serves another model.
        """
        if self._info is None:
            self._info = self._model_info()
        return self._info

    def _model_info(self) -> ModelInfo:
        call = Call(self._http, "GET", "/v1/models")
        cards = [card for card in call.json().get("data") or [] if isinstance(card, dict)]
        for card in cards:
            if card.get("id") == self.model:
                return ModelInfo(id=self.model, root=card.get("root"), max_model_len=card.get("max_model_len"))
        raise call.bad(
            f"does not list {self.model}, but {', '.join(str(card.get('id')) for card in cards) or 'nothing'}"
        )

    def metrics(self) -> Metrics:
        """The server's own counters.

        Raises:
            ServerGone, RequestTimedOut, BadAnswer: see harness.answers.
        """
        return prometheus.parse(Call(self._http, "GET", "/metrics").text())

    def _completions(self, prompt: Prompt, max_tokens: int, extra: Mapping[str, Any]) -> Call:
        text = prompt if isinstance(prompt, str) else list(prompt)
        return self._numbered("/v1/completions", {"prompt": text, "max_tokens": max_tokens}, extra)

    def _chat(self, messages: Sequence[Message], max_tokens: int, extra: Mapping[str, Any]) -> Call:
        asked = {"messages": list(messages), "max_tokens": max_tokens}
        return self._numbered("/v1/chat/completions", asked, extra)

    def _numbered(self, path: str, fields: Mapping[str, Any], extra: Mapping[str, Any]) -> Call:
        with self._lock:
            self.requests += 1
            number = self.requests
        asked = {"model": self.model, **fields, "temperature": 0.0, **extra}
        return Call(self._http, "POST", path, asked=asked, number=number)


def _logprob(entry: Any, token: int) -> float | None:
    found = entry.get(str(token)) if isinstance(entry, dict) else None
    value = found.get("logprob") if isinstance(found, dict) else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _cached(answer: Mapping[str, Any]) -> int | None:
    """Given by vLLM under `--enable-prompt-tokens-details` only."""
    details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
    tokens = details.get("cached_tokens")
    return tokens if type(tokens) is int else None


def _token_id(word: str) -> int:
    return int(word.removeprefix("token_id:"))
