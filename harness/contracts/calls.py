"""Which methods are called with which parameters by name, anywhere in a package."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from harness.contracts.hierarchy import Klass
from harness.contracts.index import Index
from harness.contracts.model import Place

_DEFINED = re.compile(r"^[ \t]+(?:async[ \t]+)?def[ \t]+(\w+)[ \t]*\(", re.MULTILINE)
_MOST = 5
"""Callers that are told; one is enough to know."""


class Calls:
    """Calls of methods, looked for by name when asked."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._known: dict[tuple[str, str], tuple[Place, ...]] = {}
        self._definers: dict[str, set[str]] | None = None

    def naming(self, method: str, parameter: str) -> tuple[Place, ...]:
        """Calls of a method of this name that name this parameter."""
        key = (method, parameter)
        if key not in self._known:
            self._known[key] = tuple(self._naming(method, parameter))[:_MOST]
        return self._known[key]

    def only_in(self, method: str, family: Iterable[Klass]) -> bool:
        """Whether no file defines a method of this name but those of these classes."""
        return self._definer().get(method, set()) <= {each.file for each in family}

    def _definer(self) -> dict[str, set[str]]:
        if self._definers is None:
            self._definers = defaultdict(set)
            for file in self._index.sources.names:
                for name in _DEFINED.findall(self._index.sources.text(file)):
                    self._definers[name].add(file)
        return self._definers

    def _naming(self, method: str, parameter: str) -> Iterator[Place]:
        call = re.compile(rf"\.{re.escape(method)}\(")
        named = re.compile(rf"\b{re.escape(parameter)}\s*=")
        for file in sorted(self._index.sources.names):
            text = self._index.sources.text(file)
            if f".{method}(" in text and call.search(text) and named.search(text):
                yield from self._in_file(file, method, parameter)

    def _in_file(self, file: str, method: str, parameter: str) -> Iterator[Place]:
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if self._index.module(module) is None:
            return
        for node in ast.walk(self._index.tree(module)):
            if _calls(node, method) and any(each.arg == parameter for each in node.keywords):  # type: ignore[attr-defined]
                yield Place(file=file, line=node.lineno)  # type: ignore[attr-defined]


def _calls(node: ast.AST, method: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method


def naming_on_self(node: ast.AST, method: str, parameter: str) -> Iterator[int]:
    """Lines in which a method calls another one on self and names a parameter."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and _calls(each, method) and any(key.arg == parameter for key in each.keywords):
            receiver = each.func.value if isinstance(each.func, ast.Attribute) else None
            if isinstance(receiver, ast.Name) and receiver.id in ("self", "cls"):
                yield each.lineno
