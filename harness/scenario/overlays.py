"""What is laid over the base of a file: its variants, and the words of `--set`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from harness.errors import ScenarioError, UsageError
from harness.scenario import problems, yaml_source
from harness.scenario.format import NAME_PATTERN
from harness.scenario.merge import merge, settled
from harness.scenario.yaml_source import Mark, Node, Problem

FIXED = ("schema", "name", "variants")
"""What a variant or `--set` cannot change: the name of a history, and the format."""
INNER = ("replace", "repeat")
"""Words about one mapping inside a scenario; a scenario itself is never replaced whole."""


def shape(root: Node) -> Iterator[Problem]:
    """What is wrong before anything can be merged."""
    if not isinstance(root.value, dict):
        yield Problem.at(root.mark, f"a scenario is a mapping, not {problems.described(root)}")
        return
    yield from _whole(root, "")
    variants = root.child("variants")
    if variants is None:
        return
    if not isinstance(variants.value, dict):
        yield Problem.at(variants.mark, f"`variants` must be a mapping, not {problems.described(variants)}")
        return
    for name, node in variants.value.items():
        if not re.fullmatch(NAME_PATTERN, name):
            yield Problem.at(variants.keys[name], f"`variants.{name}` is no good name: it {problems.NAME_WORDS}")
        if not isinstance(node.value, dict):
            hint = "; write {} for an empty one" if node.value is None else ""
            yield Problem.at(node.mark, f"`variants.{name}` must be a mapping, not {problems.described(node)}{hint}")
            continue
        yield from _whole(node, f"variants.{name}.")
        for key in set(node.value) & set(FIXED):
            yield Problem.at(node.keys[key], f"`variants.{name}.{key}`: a variant cannot change `{key}`")


def _whole(node: Node, where: str) -> Iterator[Problem]:
    for key in set(node.value) & set(INNER) if isinstance(node.value, dict) else ():
        words = "stands inside a key such as `serve`: a scenario is not replaced whole"
        yield Problem.at(node.keys[key], f"`{where}{key}` {words}")


def variant_names(root: Node) -> tuple[str, ...]:
    variants = root.child("variants")
    entries = variants.value.items() if variants and isinstance(variants.value, dict) else ()
    return tuple(name for name, node in entries if isinstance(node.value, dict))


def variant_root(root: Node, variant: str | None) -> Node:
    """The base without `variants`, with one of them merged in."""
    base = _no_null_entries(settled(_without(root, ("variants", *INNER)), nulls=True))
    if variant is None:
        return base
    variants = root.child("variants")
    overlay = variants.child(variant) if variants else None
    return merge(base, _without(overlay, (*FIXED, *INNER))) if overlay else base


def _without(node: Node, keys: Iterable[str]) -> Node:
    if not isinstance(node.value, dict):
        return node
    return Node({key: value for key, value in node.value.items() if key not in keys}, node.mark, keys=node.keys)


def _no_null_entries(root: Node) -> Node:
    """`flag: null` in the base removes a flag that is not there; deeper, null is a JSON value."""
    assert isinstance(root.value, dict)
    values = dict(root.value)
    for name in ("serve", "env"):
        node = values.get(name)
        if node and isinstance(node.value, dict):
            gone = [key for key, value in node.value.items() if value.value is None]
            values[name] = _without(node, gone)
    return Node(values, root.mark, keys=root.keys)


def removes_nothing(base: Node, overlay: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """The nulls of an overlay that stand for nothing in the base."""
    if not isinstance(overlay.value, dict):
        return
    for key, node in overlay.value.items():
        under = base.child(key)
        if node.value is None and under is None:
            yield f"{path}{key}", node
        elif under is not None:
            yield from removes_nothing(under, node, f"{path}{key}.")


def idle(root: Node, variant: str | None) -> Iterator[str]:
    """Remarks on the nulls of a variant that remove nothing."""
    overlay = (root.child("variants") or root).child(variant) if variant else None
    if overlay:
        for name, node in removes_nothing(variant_root(root, None), overlay):
            yield f"{node.mark}: there is no `{name}` to remove"


def set_overlay(words: str) -> Node:
    """`serve.x=y` as a tree; the value is YAML."""
    path, equals, text = words.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        raise UsageError(f"--set {words}: not of the form PATH=VALUE", fix="write --set serve.max-model-len=512")
    if not text.strip():
        raise UsageError(
            f"--set {words}: no value", fix=f"write {path}=null to remove it, {path}='\"\"' for empty text"
        )
    if keys[0] in FIXED:
        raise ScenarioError(f"--set {words}: `{keys[0]}` cannot be changed", fix="copy the file, or write a variant")
    if keys[0] in INNER:
        fix = f"name the key whose content it is: --set serve.{path}=…"
        raise ScenarioError(f"--set {words}: a scenario is not replaced whole", fix=fix)
    mark = Mark(f"--set {words}")
    document = yaml_source.parse(text, mark.source, lines=False)
    problems.refuse(document.problems)
    node = document.root
    for key in reversed(keys):
        node = Node({key: node}, mark, keys={key: mark})
    return node
