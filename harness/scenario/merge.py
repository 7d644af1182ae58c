"""A variant, a `--set` or a `when` rule laid over a scenario.

    base     serve: {a: 1, b: {x: 1, y: 2}}
    overlay  serve: {a: null, b: {x: 3}}              ->  serve: {b: {x: 3, y: 2}}
    overlay  serve: {b: {replace: {x: 3}}}            ->  serve: {a: 1, b: {x: 3}}

Mappings merge key by key, everything else is replaced whole, lists too. In an overlay null removes, whatever the depth;
a JSON null is written in the base or under `replace`.
"""

from __future__ import annotations

from typing import Any

from harness.scenario.yaml_source import Mark, Node


def merge(base: Node, overlay: Node) -> Node:
    """A new tree; each value keeps the position it was written at."""
    if not (_deep(base) and _deep(overlay)):
        return settled(overlay)
    assert isinstance(base.value, dict)  # _deep says so
    assert isinstance(overlay.value, dict)
    values, keys = dict(base.value), dict(base.keys)
    for key, node in overlay.value.items():
        if node.value is None:
            values.pop(key, None)
            continue
        values[key] = merge(values[key], node) if key in values else settled(node)
        keys[key] = overlay.keys[key]
    return Node(values, base.mark, keys=keys)


def settled(node: Node, *, nulls: bool = False) -> Node:
    """An overlay where there is nothing under it: `replace` gives way to its content, nulls go (unless `nulls`)."""
    if not isinstance(node.value, dict):
        return node
    if set(node.value) == {"replace"}:
        return node.value["replace"]
    values = {key: settled(value, nulls=nulls) for key, value in node.value.items() if nulls or value.value is not None}
    return Node(values, node.mark, keys=node.keys)


def merge_plain(base: Any, overlay: Any) -> Any:
    """`merge` for values without positions."""
    nowhere = Mark("")
    return merge(located(base, nowhere), located(overlay, nowhere)).plain()


def located(value: Any, mark: Mark) -> Node:
    """A plain value as a tree of which everything stands at one place."""
    if isinstance(value, dict):
        return Node({k: located(v, mark) for k, v in value.items()}, mark, keys=dict.fromkeys(value, mark))
    if isinstance(value, (list, tuple)):
        return Node([located(v, mark) for v in value], mark)
    return Node(value, mark, raw=str(value))


def _deep(node: Node) -> bool:
    """Whether it merges key by key. `repeat` is one value, and would make no sense mixed with another mapping."""
    return isinstance(node.value, dict) and not set(node.value) & {"replace", "repeat"}
