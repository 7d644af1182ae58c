"""Rule `dropped-argument`: a constructor that passes its base's by, and leaves unset what that one sets.

    class Base:                         class Builder(Base):                        class Child(Builder):
        def __init__(self, names):          def __init__(self, names):                  def context(self):
            self.names = names                  self.spec = 1  # no super()                 return self.names

vllm#54636. `latent` when nobody reads the attribute yet, `live` when somebody does: a method that can run on an
instance of the class, or of one that inherits its constructor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from harness.contracts.hierarchy import Classes, Klass
from harness.contracts.model import Finding, Place
from harness.contracts.never_set import set_elsewhere
from harness.contracts.reach import CONSTRUCTOR, Instance, Reached, reads, sets
from harness.contracts.typed import Typed

RULE: Final = "dropped-argument"


def check(classes: Classes, family: Iterable[Klass], typed: Typed) -> Iterator[Finding]:
    """The findings of a hierarchy."""
    members = list(family)
    for klass in members:
        if CONSTRUCTOR in klass.body.methods and not classes.vague(klass.path):
            yield from _of(classes, klass, members, typed)


def _of(classes: Classes, klass: Klass, family: Iterable[Klass], typed: Typed) -> Iterator[Finding]:
    own = Instance(classes, klass.path)
    if any(CONSTRUCTOR in each.method.supers for each in own.constructed if each.klass.path == klass.path):
        return
    passed = _passed_by(own)
    handed = any(_hands_itself_on(each) for each in own.constructed)
    left = {
        name: by
        for name, by in passed.items()
        if _unset(own, name) and not (handed and set_elsewhere(classes.index.sources, name, [klass]))
    }
    heirs = [Instance(classes, each.path) for each in family if klass.path in classes.order(each.path)]
    for name, by in left.items():
        yield _finding(klass, name, by, [each for each in heirs if _inherits(each, klass, name)], typed)


def _hands_itself_on(at: Reached) -> bool:
    """Whether it gives itself to a function (`fill(self)`), or is made by a `__new__`: either may set what is unset."""
    return any("." not in name for name in at.method.hands_self) or at.method.name == "__new__"


def _passed_by(own: Instance) -> dict[str, Reached]:
    """What the constructors set that are along the order and do not run."""
    ran = {each.step for each in own.constructed}
    missed: list[Reached] = []
    for klass in own.order[1:]:
        for method in klass.body.methods.get(CONSTRUCTOR, ()):
            if (klass.path, CONSTRUCTOR) not in ran and not klass.body.is_dataclass:
                missed += own.walk([Reached(klass=klass, method=method)])
    return sets(each for each in missed if each.step not in ran)


def _unset(own: Instance, name: str) -> bool:
    """Whether an instance may lack an attribute for good: nothing that runs sets it, and no class has a value."""
    return not own.has(name) and name not in sets((*own.constructed, *own.callable))


def _inherits(heir: Instance, klass: Klass, name: str) -> bool:
    """Whether the constructor of a descendant is this one, or calls it, and does not make up for it."""
    return any(each.step == (klass.path, CONSTRUCTOR) for each in heir.constructed) and _unset(heir, name)


def _finding(klass: Klass, name: str, by: Reached, heirs: Iterable[Instance], typed: Typed) -> Finding:
    users = dict.fromkeys(place for heir in heirs for place in _readers(heir, name, typed))
    users.update(dict.fromkeys(typed.readers([heir.order[0].path for heir in heirs], name)))
    base, method = by.klass.name, by.method.name
    line = klass.body.methods[CONSTRUCTOR][0].line
    return Finding(
        rule=RULE,
        subject=klass.path,
        member=name,
        state="live" if users else "latent",
        message=f"{klass.name}.__init__ calls no super().__init__ and leaves `{name}` unset, "
        f"which {base}.{method} sets",
        place=Place(file=klass.file, line=line, function=f"{klass.qualified}.__init__"),
        uses=tuple(users),
    )


def _readers(heir: Instance, name: str, typed: Typed) -> Iterator[Place]:
    for each, read in reads(heir.called_from_outside(typed.called), name):
        yield Place(file=each.klass.file, line=read.line, function=f"{each.klass.qualified}.{each.method.name}")
