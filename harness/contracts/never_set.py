"""Rule `never-set`: `self.x` is read, and nothing that is known of the class ever sets it.

Looked at are the class, all it descends from and all that descends from it with what *those* descend from: what a
mixin reads, the class beside it may set. Left alone is what may be set unseen: a base from outside the package,
`__getattr__`, `setattr` with a computed name, a class decorator, an assignment to `other.x` in any file that names one
of the classes or that theirs name (a decorator of a constructor may set it), a name that a class declares with a type
(`x: int` is the promise that somebody sets it).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from harness.contracts.hierarchy import Classes, Klass
from harness.contracts.model import Finding, Place
from harness.contracts.reach import Instance
from harness.contracts.reading import Sources

RULE: Final = "never-set"
_WORD = re.compile(r"\w+")
_PROTOCOLS = frozenset({"typing.Protocol", "typing_extensions.Protocol"})


def check(classes: Classes, family: Iterable[Klass]) -> Iterator[Finding]:
    """The findings of a hierarchy, with the classes from elsewhere in the package that its members descend from."""
    members = list(family)
    heirs = {each.path: classes.order(each.path) for each in members}
    looked = {one for order in heirs.values() for one in order if classes.get(one)}
    for path in sorted(looked):
        klass = classes.get(path)
        below = [heir for heir, order in heirs.items() if path in order]
        if klass and _PROTOCOLS.isdisjoint(klass.bases) and not _vague(classes, path, below):
            yield from _of(classes, klass, below)


def _vague(classes: Classes, path: str, below: Iterable[str]) -> bool:
    """Whether what is not known may set it: of the class, or of all that were made from it."""
    heirs = [heir for heir in below if heir != path]
    return bool(classes.vague(path)) or (bool(heirs) and all(classes.vague(heir) for heir in heirs))


def _of(classes: Classes, klass: Klass, below: Iterable[str]) -> Iterator[Finding]:
    around = {one for path in (klass.path, *below) for one in classes.order(path)}
    known = [each for one in sorted(around) if (each := classes.get(one))]
    given = {name for each in known for name in _given(each)}
    missing: dict[str, list[Place]] = {}
    for method in klass.body.every():
        for read in method.reads:
            if not (read.guarded or read.attribute in given or read.attribute.startswith("__")):
                place = Place(file=klass.file, line=read.line, function=f"{klass.qualified}.{method.name}")
                missing.setdefault(read.attribute, []).append(place)
    for name, places in missing.items():
        if not set_elsewhere(classes.index.sources, name, known):
            yield _finding(classes, klass, name, places)


def _given(klass: Klass) -> Iterator[str]:
    body = klass.body
    yield from (*body.assigned, *body.declared, *body.slots)  # fields of a dataclass are among the declared
    yield from (name for method in body.every() for name in method.sets)


def set_elsewhere(sources: Sources, name: str, classes: Iterable[Klass]) -> bool:
    """Whether an attribute of this name is set on anything but self, in a file that they know or that knows them."""
    classes = list(classes)
    named = re.compile(rf"\b(?:{'|'.join(re.escape(each.name) for each in classes)})\b")
    assigned = re.compile(
        rf"(?<!\bself)(?<!\bcls)\.{re.escape(name)}\s*(?::[^=\n]+)?=(?!=)|setattr\([^)]*[\"']{re.escape(name)}[\"']"
    )
    words = {word for file in {each.file for each in classes} for word in _WORD.findall(sources.text(file))}
    texts = ((file, text) for file in sources.names if name in (text := sources.text(file)))
    return any(assigned.search(text) and (_stem(file) in words or named.search(text)) for file, text in texts)


def _stem(file: str) -> str:
    """What an import calls it: `c` for a/b/c.py, `b` for a/b/__init__.py."""
    return file.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]


def _finding(classes: Classes, klass: Klass, name: str, places: list[Place]) -> Finding:
    running = {(each.klass.path, each.method.name) for each in Instance(classes, klass.path).callable}
    live = any((klass.path, place.function.rpartition(".")[2]) in running for place in places)
    return Finding(
        rule=RULE,
        subject=klass.path,
        member=name,
        state="live" if live else "latent",
        message=f"{klass.name} reads `self.{name}`, which no class that it is made of or made into sets",
        place=places[0],
        uses=tuple(places),
    )
