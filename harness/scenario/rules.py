"""What the types cannot say: whose flags these are, what a flag's value may be, how many GPUs it adds up to.

Each rule reads the merged tree and tolerates what other rules or the types complain about, so that one reading of a
file finds everything that is wrong with it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase

from harness.build import parse
from harness.errors import UsageError
from harness.scenario.format import FLAG_PATTERN, Registry, RuntimeWords
from harness.scenario.merge import located, merge
from harness.scenario.problems import described, did_you_mean
from harness.scenario.yaml_source import Mark, Node, Problem


def problems(root: Node, registry: Registry) -> Iterator[Problem]:
    """Everything that is wrong with the meaning of one scenario (its variant merged in)."""
    yield from _runtime(root, registry)
    words = _words(root, registry)
    serve = _mapping(root.child("serve"), root)
    yield from flags(serve, "serve", words)
    yield from _gpus(root, serve, words)
    yield from _nodes(root)
    yield from _subject(root, words)
    yield from _check_keys(root, registry)
    yield from _starts(root)
    yield from _limits_of_starts(root)
    for check, node in _entries(root.child("checks")):
        yield from _against(node.child("against"), f"checks.{check}.against", root, serve, words)
        yield from _switched_off(check, root, serve, words)
        yield from _corpus(node.child("corpus"), f"checks.{check}.corpus", registry)
    for index, rule in enumerate(_items(root.child("when"))):
        yield from _when(rule, index, root, serve, words)


def _words(root: Node, registry: Registry) -> RuntimeWords:
    """Of an unknown runtime, those of the first: most of what they say will still hold once its name is corrected."""
    node = root.child("runtime")
    name = node.value if node and isinstance(node.value, str) else "vllm"
    return registry.runtimes.get(name) or next(iter(registry.runtimes.values()))


def _runtime(root: Node, registry: Registry) -> Iterator[Problem]:
    node = root.child("runtime")
    if node and isinstance(node.value, str) and node.value not in registry.runtimes:
        yield Problem.at(node.mark, f'unknown runtime "{node.value}"{did_you_mean(node.value, registry.runtimes)}')


def flags(serve: Node, where: str, words: RuntimeWords) -> Iterator[Problem]:
    """What is wrong with a mapping of flags; `where` is its name in messages."""
    if not isinstance(serve.value, dict):
        return
    for flag, node in serve.value.items():
        if wrong := _flag_name(flag, words):
            yield Problem.at(serve.keys[flag], f"`{where}.{flag}` {wrong}")
        yield from (Problem.at(at.mark, f"`{where}.{flag}` {text}") for at, text in _flag_value(node))


def _flag_name(flag: str, words: RuntimeWords) -> str:
    plain = flag.lstrip("-").replace("_", "-").lower()
    if plain in words.own_flags:
        return "belongs to the harness, which sets it for every launch: remove it"
    if flag in {"replace", "repeat"}:
        return "must stand alone: what is beside it would be lost"
    if re.fullmatch(FLAG_PATTERN, flag):
        return ""
    if "." in flag:
        head, _, tail = flag.partition(".")
        return f"is not the name of a flag; write a mapping: {head}: {{{tail}: …}}"
    near = f"; did you mean `{plain}`?" if re.fullmatch(FLAG_PATTERN, plain) else ""
    return f"is not the name of a flag (lower case, dashes only between words){near}"


def _flag_value(node: Node) -> Iterator[tuple[Node, str]]:
    if isinstance(node.value, dict) and "repeat" in node.value:
        if len(node.value) > 1:
            yield node, "has something beside `repeat`, which must stand alone"
        repeated = node.value["repeat"]
        if not isinstance(repeated.value, list):
            yield repeated, f"repeats a list, not {described(repeated)}"
        node = repeated
    elif isinstance(node.value, dict) and "replace" in node.value and len(node.value) > 1:
        yield node, "has something beside `replace`, which must stand alone"
    if isinstance(node.value, list):
        if not node.value:
            yield node, "is an empty list: write true for a bare flag, null to remove it"
        for item in node.value:
            if item.value is None or isinstance(item.value, (bool, list)):
                hint = f'; quote it: "{item.raw}"' if isinstance(item.value, bool) else ""
                yield item, f"lists text, numbers or mappings, not {described(item)}{hint}"


def _gpus(root: Node, serve: Node, words: RuntimeWords, where: str = "serve") -> Iterator[Problem]:
    sizes = [(flag, node) for flag in words.parallel_flags if (node := serve.child(flag)) and node.value is not None]
    wrong = [(flag, node) for flag, node in sizes if type(node.value) is not int or node.value < 1]
    for flag, node in wrong:
        yield Problem.at(node.mark, f"`{where}.{flag}` must be a whole number of 1 or more, not {described(node)}")
    wanted = _mapping(root.child("needs"), root).child("gpus")
    if wrong or wanted is None or type(wanted.value) is not int:
        return
    size = math.prod(node.value for _, node in sizes if isinstance(node.value, int))
    if wanted.value != size:
        given = " times ".join(f"{flag} {node.value}" for flag, node in sizes)
        makes = f"{given} in `{where}` makes" if given else f"`{where}` has no parallel size, which makes"
        last = max((wanted.mark, *(node.mark for _, node in sizes)), key=_when_written)
        yield Problem.at(last, f"`needs.gpus` is {wanted.value}, but {makes} {size}")


def _when_written(mark: Mark) -> tuple[bool, int, int]:
    """Overrides come last: of values that do not fit together, the one that was written last is to blame."""
    return mark.line == 0, mark.line, mark.column


def _nodes(root: Node) -> Iterator[Problem]:
    node = _mapping(root.child("needs"), root).child("nodes")
    if node and type(node.value) is int and node.value > 1:
        yield Problem.at(node.mark, "`needs.nodes` above 1 is reserved: one launch runs on one node for now")


def _subject(root: Node, words: RuntimeWords) -> Iterator[Problem]:
    for item in _items(root.child("subject")):
        if isinstance(item.value, str) and words.subjects and item.value not in words.subjects:
            yield Problem.at(item.mark, f'unknown subject "{item.value}"{_meant(item.value, words.subjects)}')


def _check_keys(root: Node, registry: Registry) -> Iterator[Problem]:
    """Parameters also have a name in Python, with underscores. One spelling in files, so that variants merge."""
    for check, node in _entries(root.child("checks")):
        fields = registry.checks[check].model_fields if check in registry.checks else {}
        for key in _keys(node):
            if "_" in key and key in fields:
                plain = key.replace("_", "-")
                yield Problem.at(node.keys[key], f"unknown key `{key}` in `checks.{check}`; did you mean `{plain}`?")


def _starts(root: Node) -> Iterator[Problem]:
    node = root.child("starts")
    given = [item.value for item in _items(node)]
    if node and all(word in ("cold", "warm") for word in given) and given not in ([], ["cold"], ["cold", "warm"]):
        yield Problem.at(node.mark, "`starts` is [cold] or [cold, warm]: a warm start needs the caches of a cold one")


NEEDS_STARTS = {("warmup", "max-compiled"): ["cold"], ("warmup", "max-warm-ratio"): ["cold", "warm"]}
"""Limits on what a start alone shows, and the starts that it takes."""


def _limits_of_starts(root: Node) -> Iterator[Problem]:
    given = [item.value for item in _items(root.child("starts"))]
    for (check, key), needed in NEEDS_STARTS.items():
        node = _mapping(_mapping(root.child("checks"), root).child(check), root).child(key)
        if node and node.value is not None and not all(word in given for word in needed):
            yield Problem.at(node.mark, f"`checks.{check}.{key}` needs `starts: [{', '.join(needed)}]`")


def _against(node: Node | None, where: str, root: Node, serve: Node, words: RuntimeWords) -> Iterator[Problem]:
    if node and isinstance(node.value, str) and node.value and words.references and node.value not in words.references:
        yield Problem.at(node.mark, f'unknown launch "{node.value}" in `{where}`{_meant(node.value, words.references)}')
    if node and _is_the_same(node, root, serve, words):
        yield Problem.at(
            node.mark, f"`{where}`: that launch would be the same as the scenario's own; compare with one that differs"
        )
    if not node or not isinstance(node.value, dict):
        return
    yield from _overrides(node, where, root, serve, words)
    build = node.child("build")
    if build and isinstance(build.value, str):
        try:
            parse(build.value)
        except UsageError as error:
            yield Problem.at(build.mark, f"`{where}.build`: {error.what}; {error.fix}")


def _is_the_same(other: Node, root: Node, serve: Node, words: RuntimeWords) -> bool:
    """Whether a second launch changes nothing, whatever build it is: no `when` rule touches what it changes."""
    named = words.references.get(other.value) if isinstance(other.value, str) else None
    if isinstance(other.value, dict) and _keys(other) and set(other.value) <= {"serve", "env"}:
        changed = {name: _mapping(other.child(name), other) for name in ("serve", "env")}
    elif named is not None:
        changed = {"serve": located(dict(named), other.mark)}
    else:
        return False
    base = {"serve": serve, "env": _mapping(root.child("env"), root)}
    touched = {name: _touched(root, name) for name in base}
    return any(map(_keys, changed.values())) and all(
        json.dumps(merge(base[name], each).plain()) == json.dumps(base[name].plain())
        and not touched[name] & set(_keys(each))
        for name, each in changed.items()
    )


def _touched(root: Node, name: str) -> set[str]:
    """Flags or variables that some `when` rule changes."""
    return {key for rule in _items(root.child("when")) for key in _keys(_mapping(rule.child(name), rule))}


def _switched_off(check: str, root: Node, serve: Node, words: RuntimeWords) -> Iterator[Problem]:
    patterns = words.switches.get(check, ())
    given = {*_keys(serve), *_touched(root, "serve")}
    if patterns and not any(fnmatchcase(flag, pattern) for flag in given for pattern in patterns):
        key = _mapping(root.child("checks"), root).keys[check]
        yield Problem.at(key, f"`checks.{check}` would test nothing: give `{patterns[0]}` in `serve`")


def _corpus(node: Node | None, where: str, registry: Registry) -> Iterator[Problem]:
    """A name without a path is one of the harness's own texts; whether a file is there is seen on the node."""
    name = node.value if node else None
    if (
        node
        and isinstance(name, str)
        and name
        and registry.corpora
        and name not in registry.corpora
        and "/" not in name
    ):
        known = f"; known are {', '.join(sorted(registry.corpora))}, a file of yours starts with ./"
        meant = did_you_mean(name, registry.corpora) or known
        yield Problem.at(node.mark, f'unknown corpus "{name}" in `{where}`{meant}')


def _when(rule: Node, index: int, root: Node, serve: Node, words: RuntimeWords) -> Iterator[Problem]:
    where = f"when[{index}]"
    if not isinstance(rule.value, dict):
        return
    yield from _overrides(rule, where, root, serve, words)
    if not _keys(_mapping(rule.child("serve"), rule)) and not _keys(_mapping(rule.child("env"), rule)):
        yield Problem.at(rule.mark, f"`{where}` changes nothing: give it `serve` or `env`")


def _overrides(holder: Node, where: str, root: Node, serve: Node, words: RuntimeWords) -> Iterator[Problem]:
    """What is wrong with flags that are merged over those of the scenario."""
    changed = _mapping(holder.child("serve"), holder)
    yield from flags(changed, f"{where}.serve", words)
    if set(_keys(changed)) & set(words.parallel_flags):
        yield from _gpus(root, merge(serve, changed), words, f"{where}.serve")


def _meant(word: str, known: Collection[str]) -> str:
    return did_you_mean(word, known) or f"; known are {', '.join(sorted(known))}"


def _mapping(node: Node | None, parent: Node) -> Node:
    return node if node and isinstance(node.value, dict) else Node({}, parent.mark)


def _entries(node: Node | None) -> Iterator[tuple[str, Node]]:
    if node and isinstance(node.value, dict):
        yield from node.value.items()


def _keys(node: Node) -> list[str]:
    return list(node.value) if isinstance(node.value, dict) else []


def _items(node: Node | None) -> list[Node]:
    return node.value if node and isinstance(node.value, list) else []
