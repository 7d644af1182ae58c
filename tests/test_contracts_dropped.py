"""Constructors that pass their base's by: what is found, and every trap in which nothing may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from packages import found

BASE = """
    from abc import ABC
    from typing import Generic, TypeVar
    M = TypeVar("M")
    class Base(ABC, Generic[M]):
        def __init__(self, names, device):
            self.names = names
            self.device = device
"""
RULE = "dropped-argument"


def test_latent_where_nobody_reads_it(tmp_path: Path) -> None:
    files = {
        "a": BASE,
        "b": "from pkg.a import Base\nclass C(Base[int]):\n    def __init__(self, n, d): self.device = d\n",
    }
    told = found(tmp_path, files, rule=RULE)
    assert list(told) == ["C.names"]
    only = told["C.names"]
    assert (only.state, only.subject, only.refs) == ("latent", "pkg.b.C", ("pkg#1",))
    assert str(only.place) == "pkg/b.py:3 C.__init__"
    assert only.message == "C.__init__ calls no super().__init__ and leaves `names` unset, which Base.__init__ sets"


def test_live_where_a_child_reads_it_and_says_who(tmp_path: Path) -> None:
    files = {
        "a": BASE,
        "b": "from pkg.a import Base as B\nclass C(B):\n    def __init__(self, n, d): self.device = d\n",
        "c": """
            import pkg.b as other
            class D(other.C):
                def __init__(self, n, d):
                    super().__init__(n, d)
                def context(self):
                    return [self.names[0]]
        """,
    }
    told = found(tmp_path, files, rule=RULE)
    assert list(told) == ["C.names"]  # D calls C's constructor: it is C that drops it
    assert told["C.names"].state == "live"
    assert [str(use) for use in told["C.names"].uses] == ["pkg/c.py:7 D.context"]


def test_a_sibling_that_reads_its_own_does_not_make_it_live(tmp_path: Path) -> None:
    files = {
        "a": BASE
        + """
    class C(Base):
        def __init__(self, n, d): self.device = d
    class Sibling(Base):
        def use(self): return self.names
"""
    }
    assert found(tmp_path, files, rule=RULE)["C.names"].state == "latent"


@pytest.mark.parametrize(
    ("word", "state"), [("x: C", "live"), ("x: 'C | None'", "live"), ("x: Base", "live"), ("x", "latent")]
)
def test_reads_through_a_name_with_a_type(tmp_path: Path, word: str, state: str) -> None:
    files = {
        "a": BASE,
        "b": "from pkg.a import Base\nclass C(Base):\n    def __init__(self, n, d): self.device = d\n",
        "c": f"from pkg.b import C\nfrom pkg.a import Base\ndef use({word}):\n    return x.names\n",
    }
    assert found(tmp_path, files, rule=RULE)["C.names"].state == state


def test_a_method_that_is_overridden_without_super_reads_nothing(tmp_path: Path) -> None:
    files = {
        "a": """
            class Base:
                def __init__(self, names): self.names = names
                def use(self): return self.names
            class C(Base):
                def __init__(self): pass
                def use(self): return 1
            class D(Base):
                def __init__(self): pass
                def use(self): return super().use()
        """
    }
    told = found(tmp_path, files, rule=RULE)
    assert {name: each.state for name, each in told.items()} == {"C.names": "latent", "D.names": "live"}


def test_a_helper_of_the_constructor_that_does_not_run_neither_sets_nor_reads(tmp_path: Path) -> None:
    files = {
        "a": """
            class Base:
                def __init__(self, names):
                    self._keep(names)
                def _keep(self, names):
                    self.names = names
                    print(self.names)
            class C(Base):
                def __init__(self): pass
        """
    }
    told = found(tmp_path, files, rule=RULE)
    assert {name: each.state for name, each in told.items()} == {"C.names": "latent"}


NOTHING = {
    "super": "def __init__(self): super().__init__(1, 2)",
    "super of two": "def __init__(self): super(C, self).__init__(1, 2)",
    "base by name": "def __init__(self): Base.__init__(self, 1, 2)",
    "a helper calls super": "def __init__(self): self._start()\n    def _start(self): super().__init__(1, 2)",
    "sets both": "def __init__(self): self.names, self.device = 1, 2",
    "in a branch": "def __init__(self, x):\n        if x: self.names = self.device = 1",
    "by a helper": "def __init__(self): self._set()\n    def _set(self): self.names = self.device = 1",
    "setattr": "def __init__(self):\n        setattr(self, 'names', 1)\n        setattr(self, 'device', 1)",
    "object.__setattr__": "def __init__(self): object.__setattr__(self, 'names', 1); self.device = 1",
    "computed setattr": "def __init__(self, **k):\n        for n, v in k.items(): setattr(self, n, v)",
    "__dict__": "def __init__(self, **k): self.__dict__.update(k)",
    "class attributes": "names = ()\n    device: str = 'cpu'\n    def __init__(self): pass",
    "property": "device = 0\n    def __init__(self): pass\n    @property\n    def names(self): return ()",
    "__slots__": "__slots__ = ('names', 'device')\n    def __init__(self): pass",
    "__getattr__": "def __init__(self): pass\n    def __getattr__(self, name): return 1",
    "later": "def __init__(self): pass\n    def bind(self, n, d): self.names = n; self.device = d",
    "in with": "def __init__(self):\n        with open('x') as self.names: self.device = 1",
    "annotated": "def __init__(self):\n        self.names: list = []\n        self.device: int = 1",
    "__new__": "def __new__(cls):\n        self = super().__new__(cls)\n        self.names = self.device = 1\n"
    "        return self\n    def __init__(self): pass",
    "no constructor": "pass",
}


@pytest.mark.parametrize("body", NOTHING.values(), ids=NOTHING)
def test_nothing_is_dropped(tmp_path: Path, body: str) -> None:
    files = {"a": BASE, "b": f"from pkg.a import Base\nclass C(Base[int]):\n    {body}\n"}
    assert found(tmp_path, files, rule=RULE) == {}


def test_annotation_alone_sets_nothing(tmp_path: Path) -> None:
    body = "names: list\n    def __init__(self):\n        self.device: int\n"
    told = found(tmp_path, {"a": BASE, "b": f"from pkg.a import Base\nclass C(Base):\n    {body}"}, rule=RULE)
    assert sorted(told) == ["C.device", "C.names"]


def test_hidden_by_a_base_from_outside(tmp_path: Path) -> None:
    files = {
        "a": BASE,
        "b": "import torch\nfrom pkg.a import Base\nclass C(Base, torch.nn.Module):\n    def __init__(self): pass\n",
    }
    assert found(tmp_path, files, rule=RULE) == {}


def test_a_mixin_in_front_that_sets_it(tmp_path: Path) -> None:
    files = {
        "a": BASE,
        "b": """
            from pkg.a import Base
            class Mixin:
                def prepare(self): self.names = self.device = 1
            class C(Mixin, Base):
                def __init__(self): self.prepare()
        """,
    }
    assert found(tmp_path, files, rule=RULE) == {}


def test_conditional_definitions_are_left_alone(tmp_path: Path) -> None:
    files = {
        "a": BASE,
        "b": """
            from pkg.a import Base
            if 1:
                class C(Base):
                    def __init__(self): pass
            else:
                class C:
                    pass
        """,
    }
    assert found(tmp_path, files, rule=RULE) == {}


def test_through_re_exports_stars_and_aliases(tmp_path: Path) -> None:
    files = {
        "a": BASE,
        "api/__init__": "from .inner import *\nfrom pkg.a import Base as Exported\n",
        "api/inner": "from ..a import Base\nRenamed = Base\n",
        "b": "from pkg.api import Renamed\nclass C(Renamed):\n    def __init__(self): self.device = 1\n",
        "c": "from pkg import api\nclass D(api.Exported[int]):\n    def __init__(self): self.names = 1\n",
        "d": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pkg.c import D\nclass E:\n"
        "    def __init__(self): pass\n",
    }
    assert sorted(found(tmp_path, files, rule=RULE)) == ["C.names", "D.device"]


def test_guarded_reads_keep_it_latent(tmp_path: Path) -> None:
    files = {
        "a": """
            class Base:
                def __init__(self, names): self.names = names
                def one(self): return self.names if hasattr(self, "names") else None
                def two(self): return getattr(self, "names", None)
                def three(self):
                    try:
                        return self.names
                    except AttributeError:
                        return None
            class C(Base):
                def __init__(self): pass
        """
    }
    assert found(tmp_path, files, rule=RULE)["C.names"].state == "latent"


def test_getattr_without_default_and_augmented_assignment_read(tmp_path: Path) -> None:
    files = {
        "a": """
            class Base:
                def __init__(self): self.names = self.count = 0
                def one(self): return getattr(self, "names")
                def two(self): self.count += 1
            class C(Base):
                def __init__(self): pass
        """
    }
    told = found(tmp_path, files, rule=RULE)
    assert {name: each.state for name, each in told.items()} == {"C.names": "live", "C.count": "live"}


def test_an_abstract_constructor_sets_too(tmp_path: Path) -> None:
    """As that of vLLM's builders: pylint says nothing of those who do not call it."""
    text = """
        from abc import ABC, abstractmethod
        class Base(ABC):
            @abstractmethod
            def __init__(self, names): self.names = names
        class C(Base):
            def __init__(self, names): pass
    """
    assert list(found(tmp_path, {"a": text}, rule=RULE)) == ["C.names"]


def test_a_dataclass_with_a_constructor_of_its_own(tmp_path: Path) -> None:
    files = {
        "a": BASE,
        "b": "from dataclasses import dataclass\nfrom pkg.a import Base\n@dataclass\nclass C(Base):\n"
        "    def __init__(self): self.device = 1\n",
    }
    assert list(found(tmp_path, files, rule=RULE)) == ["C.names"]


MADE = """
    def __new__(cls, n, d):
        made = super().__new__(cls)
        made.names = made.device = n
        return made
    def __init__(self, n, d): pass
"""


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("    def __init__(self, n, d): fill(self, n)", []),
        ("    def __init__(self, n, d): look(self)", ["C.device", "C.names"]),
        (MADE, []),
    ],
    ids=["given to a function that sets it", "given to one that does not", "made by __new__"],
)
def test_what_is_set_from_outside(tmp_path: Path, body: str, left: list[str]) -> None:
    fill = "def fill(it, n):\n    it.names = n\n    it.device = n\n"
    look = "def look(it): return it\n"
    child = f"from pkg.a import Base\nfrom pkg.helpers import {'look' if left else 'fill'}\nclass C(Base):\n{body}\n"
    files = {"a": BASE, "helpers" if not left else "others": fill, **({"helpers": look} if left else {}), "b": child}
    assert sorted(found(tmp_path, files, rule=RULE)) == left
