"""Secrets become *** in every written byte: records, reports and the server's own log.

Secret are: the value of a variable or flag whose name says so, every value that came in as `env: {X: {from: X}}`, and
the user part of a URL. Names alone cannot be trusted with short values (`NUM_KEYS=4` would blot out every 4 in a log),
so values of fewer than `SHORTEST` characters count only where the scenario itself named them a secret with `from`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

SHORTEST = 6
# TOKEN and KEY are whole words of a name: `HF_TOKEN` and `api-key`, not `tokenizer` or `max-num-batched-tokens`.
NAME = re.compile(r"(?:^|[_.-])(?:TOKEN|KEY)(?:$|[_.-])|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY", re.IGNORECASE)
# The user part ends at the last @ before the path. Requiring `//` keeps e-mail addresses and decorators (`@torch.jit`).
# A plain `://` in front, no look-behind: `re` then skips to it (1,400 MB/s instead of 18).
URL_USER = re.compile(r"://[^\s/@\"']+@")
URL_USER_BYTES = re.compile(URL_USER.pattern.encode())
URL_OPEN_END = re.compile(rb"://[^\s/@\"']*\Z")
LONGEST_URL_USER = 4096


def secret_values(env: Mapping[str, str]) -> tuple[str, ...]:
    """The values of those variables whose name says that they are secret."""
    return tuple(v for name, v in env.items() if NAME.search(name) and len(v) >= SHORTEST)


def secrets_under(value: Any, *, name: str = "") -> tuple[str, ...]:
    """The string values, at any depth of a mapping of flags, whose own key says that they are secret."""
    if isinstance(value, Mapping):
        return tuple(v for k, inner in value.items() for v in secrets_under(inner, name=str(k)))
    if isinstance(value, (list, tuple)):
        return tuple(v for inner in value for v in secrets_under(inner, name=name))
    return (value,) if isinstance(value, str) and NAME.search(name) and len(value) >= SHORTEST else ()


class Masker:
    """Replaces a fixed set of secrets, also in the spellings that JSON, repr and URLs give them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = tuple(secrets)
        spellings = {form for secret in self.secrets if secret for form in _spellings(secret)}
        self._texts = sorted(spellings, key=len, reverse=True)  # a secret inside a longer one must not break it up
        self._bytes = [text.encode("utf-8", "surrogateescape") for text in self._texts]

    def text(self, value: str) -> str:
        for secret in self._texts:
            value = value.replace(secret, "***")
        return URL_USER.sub("://***@", value) if "://" in value else value

    def raw(self, value: bytes) -> bytes:
        for secret in self._bytes:
            value = value.replace(secret, b"***")
        return URL_USER_BYTES.sub(b"://***@", value) if b"@" in value and b"://" in value else value  # memchr first

    def open_end(self, value: bytes) -> int:
        """Bytes at the end of a masked piece of a stream that may be the start of a secret: hold them back."""
        longest = 0
        for secret in self._bytes:
            lengths = range(min(len(secret) - 1, len(value)), longest, -1)
            longest = next((n for n in lengths if value.endswith(secret[:n])), longest)
        url = URL_OPEN_END.search(value[-LONGEST_URL_USER:])
        return max(longest, len(url.group()) if url else 0, *(n for n in (1, 2) if value.endswith(b"://"[:n])), 0)

    def structure(self, value: Any) -> Any:
        """Mask every string in a JSON-like structure."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(k)): self.structure(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.structure(v) for v in value]
        return value


def redact(value: Any, *, name: str = "") -> Any:
    """Blot out whatever stands under a secret name in a mapping of flags or variables, however short it is."""
    if isinstance(value, Mapping):
        return {k: redact(v, name=str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(v, name=name) for v in value]
    return "***" if NAME.search(name) and value not in (None, "", True, False) else value


def _spellings(secret: str) -> set[str]:
    lines = [line for line in secret.splitlines() if len(line) >= SHORTEST]
    plain = {secret, *lines}
    return (
        plain
        | {json.dumps(p)[1:-1] for p in plain}
        | {repr(p)[1:-1] for p in plain}
        | {quote(p, safe="") for p in plain}
    )
