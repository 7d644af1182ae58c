"""The other rules: read but never set, overrides, counts, imports; and how names and orders are resolved."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packages import classes, contracts, found, report

from harness.contracts import counts
from harness.contracts.contracts_file import Where
from harness.contracts.lengths import Lengthen

# --- read but never set


def test_read_and_never_set(tmp_path: Path) -> None:
    files = {"a": "class Base:\n    def use(self): return self.missing\nclass C(Base):\n    x = 1\n"}
    told = found(tmp_path, files, rule="never-set")
    assert list(told) == ["Base.missing"]
    assert (told["Base.missing"].state, str(told["Base.missing"].place)) == ("live", "pkg/a.py:2 Base.use")


USE = "class Base:\n    def use(self): return self.x\n"
SET_SOMEWHERE = {
    "a child sets it": USE + "class C(Base):\n    def __init__(self): self.x = 1",
    "beside a mixin": USE + "class Other:\n    x = 1\nclass C(Base, Other): pass",
    "declared": "class Base:\n    x: int\n    def use(self): return self.x",
    "dataclass": "from dataclasses import dataclass\n@dataclass\n" + USE + "    x: int",
    "slot": "class Base:\n    __slots__ = ('x',)\n    def use(self): return self.x",
    "from outside": "def f(base): base.x = 1\nclass Base:\n    def use(self): return self.x",
    "setattr from outside": "def f(base): setattr(base, 'x', 1)\nclass Base:\n    def use(self): return self.x",
    "__getattr__": "class Base:\n    def use(self): return self.x\n    def __getattr__(self, n): return 1",
    "computed": "class Base:\n    def use(self): return self.x\n    def put(self, n): setattr(self, n, 1)",
    "outside base": "import torch\nclass Base(torch.nn.Module):\n    def use(self): return self.x",
    "class decorator": "from pkg.b import adds\n@adds\nclass Base:\n    def use(self): return self.x",
    "protocol": "from typing import Protocol\nclass Base(Protocol):\n    def use(self): return self.x",
    "nested function": "class Base:\n    def use(self):\n        def inner(self): return self.x\n        return inner",
    "nested class": "class Base:\n    class In:\n        x = 1\n        def use(self): return self.x\n    y = 1",
    "dunder": "class Base:\n    def use(self): return self.__class__, self.__doc__",
    "guard": "class Base:\n    def use(self): return self.x if hasattr(self, 'x') else 0",
    "loop target": "class Base:\n    def use(self):\n        for self.x in (1, 2): print(self.x)",
    "cls": "class Base:\n    @classmethod\n    def put(cls): cls.x = 1\n    def use(self): return self.x",
}


@pytest.mark.parametrize("text", SET_SOMEWHERE.values(), ids=SET_SOMEWHERE)
def test_may_be_set_somewhere(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, {"a": text, "b": "def adds(cls): return cls\n"}, rule="never-set") == {}


def test_a_file_that_knows_none_of_the_classes_sets_nothing_of_theirs(tmp_path: Path) -> None:
    files = {"a": "class Base:\n    def use(self): return self.x\n", "b": "def f(other):\n    other.x = 1\n"}
    assert list(found(tmp_path, files, rule="never-set")) == ["Base.x"]
    knows = {**files, "b": "from pkg.a import Base\n" + files["b"]}
    known = {**files, "a": "from pkg.b import f\n" + files["a"]}
    assert found(tmp_path / "1", knows, rule="never-set") == found(tmp_path / "2", known, rule="never-set") == {}


# --- overrides

OVERRIDES = {
    "missing": ("self, x, y=1", "self, x", {"m.y": "`y` is missing"}),
    "renamed": ("self, x", "self, other", {"m.x": "`x` is called `other`"}),
    "needs more": ("self, x", "self, x, more", {"m.more": "`more` is new and has no default"}),
    "lost default": ("self, x=1", "self, x", {"m.x": "`x` has lost its default"}),
    "by name only": ("self, x", "self, *, x", {"m.x": "`x` can only be given by name"}),
    "no None": ("self, x: int | None", "self, x: int", {"m.x": "`x` no longer takes None"}),
    "Optional": ("self, x: 'Optional[A]'", "self, x: A", {"m.x": "`x` no longer takes None"}),
    "narrower class": ("self, x: A", "self, x: Child", {"m.x": "`x` no longer takes A"}),
    "union": ("self, x: Union[A, int]", "self, x: A", {"m.x": "`x` no longer takes int"}),
    "type alias": ("self, x: Both", "self, x: 'A'", {"m.x": "`x` no longer takes None"}),
    "same": ("self, x: A, y=1", "self, x: A, y=2", {}),
    "wider": ("self, x: Child", "self, x: A | None", {}),
    "int for float": ("self, x: float", "self, x: float | None", {}),
    "another type": ("self, x: A", "self, x: int", {}),  # the fault of a type checker, not a narrower type
    "more optional": ("self, x", "self, x, more=1, *, z=2", {}),
    "takes everything": ("self, x, y", "self, *args, **kwargs", {}),
    "base takes everything": ("self, *args, **kwargs", "self, x, y", {}),
    "type variable": ("self, x: T", "self, x: A", {}),
    "no types": ("self, x", "self, x: A", {}),
    "Any": ("self, x: Any", "self, x: A", {}),
    "brackets": ("self, x: list[int | None]", "self, x: list[int]", {}),
    "unused by convention": ("self, _x", "self, x", {}),
    "only by place": ("self, x, /", "self, y, /", {}),
}


@pytest.mark.parametrize(("base", "own", "expected"), OVERRIDES.values(), ids=OVERRIDES)
def test_override(tmp_path: Path, base: str, own: str, expected: dict[str, str]) -> None:
    text = f"""
        from typing import Any, Generic, Optional, TypeVar, Union
        T = TypeVar("T")
        class A: pass
        class Child(A): pass
        Both = A | None
        class Base(Generic[T]):
            def m({base}): ...
        class C(Base[A]):
            def m({own}): ...
    """
    told = found(tmp_path, {"a": text}, rule="override")
    said = {name.removeprefix("C."): each.message.partition(": ")[2] for name, each in told.items()}
    assert said == expected


def test_override_is_live_where_a_caller_names_the_parameter(tmp_path: Path) -> None:
    files = {
        "a": "class Base:\n    def build(self, prefix): ...\nclass C(Base):\n    def build(self, start): ...\n",
        "b": "def use(builder):\n    return builder.build(prefix=1)\n",
    }
    told = found(tmp_path, files, rule="override")["C.build.prefix"]
    assert (told.state, [str(use) for use in told.uses]) == ("live", ["pkg/b.py:2"])
    files["c"] = "class Unrelated:\n    def build(self, prefix): ...\n"  # who knows which of them is called
    assert found(tmp_path, files, rule="override")["C.build.prefix"].state == "latent"


def test_override_is_live_where_a_method_that_runs_on_it_names_the_parameter(tmp_path: Path) -> None:
    text = """
        class Base:
            def run(self, fast=False): ...
            def dummy(self): self.run(fast=True)
        class C(Base):
            def run(self): ...
        class Quiet(Base):
            def run(self): ...
            def dummy(self): ...
    """
    files = {"a": text, "b": "class Unrelated:\n    def run(self): ...\n"}
    told = found(tmp_path, files, rule="override")
    assert {name: each.state for name, each in told.items()} == {"C.run.fast": "live", "Quiet.run.fast": "latent"}
    assert [str(use) for use in told["C.run.fast"].uses] == ["pkg/a.py:4 Base.dummy"]


@pytest.mark.parametrize("kind", ["classmethod", "staticmethod"])
def test_override_of_class_and_static_methods(tmp_path: Path, kind: str) -> None:
    first = "cls, " if kind == "classmethod" else ""
    base, own = (f"    @{kind}\n    def m({first}{rest}): ...\n" for rest in ("x, y", "x"))
    text = f"class Base:\n{base}class C(Base):\n{own}"
    assert list(found(tmp_path, {"a": text}, rule="override")) == ["C.m.y"]


def test_constructors_and_properties_are_exempt(tmp_path: Path) -> None:
    text = """
        class Base:
            def __init__(self, x): ...
            def __post_init__(self, x): ...
            @property
            def p(self): ...
            attribute = None
        class C(Base):
            def __init__(self): ...
            def __post_init__(self): ...
            def p(self, x): ...
            def attribute(self, y): ...
    """
    assert found(tmp_path, {"a": text}, rule="override") == {}


def test_a_declared_type_that_the_method_asserts_to_be_another(tmp_path: Path) -> None:
    """vllm#50148: declared AttentionSpec, as by the base, and asserted to be its sibling MambaSpec."""
    text = """
        class Spec: pass
        class Attention(Spec): pass
        class Mamba(Spec): pass
        class Base:
            def __init__(self, spec: "Attention"): ...
        class C(Base):
            def __init__(self, spec: Attention):
                assert isinstance(spec, Mamba)
        class Fine(Base):
            def __init__(self, spec: Spec):
                assert isinstance(spec, Mamba)
    """
    told = found(tmp_path, {"a": text}, rule="override")
    assert [each.message for each in told.values()] == [
        "C.__init__ declares `spec` to be Attention as Base does, and asserts that it is Mamba, which is none"
    ]


# --- counts

MODEL = """
    class Calc:
        @classmethod
        def two(cls): return cls._pair(1, 2)
        @classmethod
        def _pair(cls, a, b): return (a, b)
        @staticmethod
        def more(base, extra): return (*base, extra, extra)
    def one() -> tuple[int]: return helper()
    class Base:
        @classmethod
        def shapes(cls):
            found = Calc.two()
            if cls.flag:
                found = Calc.more(found, 1)
            return found
        @classmethod
        def copies(cls): return Calc.two()
        def names(self): return list(self.copies()) + [1]
        def typed(self): return one()
        def either(self, x): return (1,) if x else (1, 2)
        def early(self, x):
            if x:
                return Calc.more(Calc.two(), 2)
            return Calc.two()
        def unknown(self): return elsewhere()
        def stub(self) -> tuple[int, int]: ...
    class C(Base):
        def copies(self): return super().copies() + (3,)
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shapes", {2, 4}), ("copies", {2}), ("names", {3}), ("typed", {1}), ("either", {1, 2}), ("early", {2, 4}),
        ("unknown", None), ("stub", None), ("absent", None),
    ],
)  # fmt: skip
def test_lengths(tmp_path: Path, name: str, expected: set[int] | None) -> None:
    assert Lengthen(classes(tmp_path, {"a": MODEL})).of_method("pkg.a.Base", name) == expected


def test_lengths_through_super(tmp_path: Path) -> None:
    lengthen = Lengthen(classes(tmp_path, {"a": MODEL}))
    assert (lengthen.of_method("pkg.a.C", "copies"), lengthen.of_method("pkg.a.C", "names")) == ({3}, {4})


def test_a_function_that_calls_itself_has_no_length(tmp_path: Path) -> None:
    text = "class Base:\n    def m(self): return (*self.m(), 1)\n"
    assert Lengthen(classes(tmp_path, {"a": text})).of_method("pkg.a.Base", "m") is None


def test_declared_counts(tmp_path: Path) -> None:
    rule = {"name": "states", "roots": ("pkg.a.Base",), "refs": ("pkg#2",), "must": "copies == shapes"}
    told = report(tmp_path, {"a": MODEL}, contracts(counts=(rule,), imports=False))
    assert [(each.title, each.state, each.refs) for each in told.findings] == [
        ("declared-count:Base.states", "latent", ("pkg#2",)),
        ("declared-count:C.states", "latent", ("pkg#2",)),
    ]
    assert told.findings[0].message == "Base.copies must return as many as shapes: 2 values and 2 or 4"
    rule["must"] = "copies <= shapes"
    told = report(tmp_path, {"a": MODEL}, contracts(counts=(rule,), imports=False))
    assert [each.title for each in told.findings] == ["declared-count:C.states"]  # 3 are more than the 2 it may declare


@pytest.mark.parametrize(("asserts", "holds"), [("len(a)==len( b )", True), ("len(a) <= len(b)", False)])
def test_counts_only_where_a_function_asserts_them(tmp_path: Path, asserts: str, holds: bool) -> None:  # noqa: FBT001
    here = classes(tmp_path, {"a": "def check(a, b):\n    assert len(a) == len(b), 'words'\n"})
    assert counts.applies(here, Where(function="pkg.a.check", asserts=asserts)) is holds
    assert not counts.applies(here, Where(function="pkg.a.gone", asserts=asserts))


# --- what functions import


def test_imports_in_functions(tmp_path: Path) -> None:
    files = {
        "a": """
            from pkg.nowhere import at_the_top_fails_at_once
            def f():
                from pkg.gone import x
                from pkg.b import there, gone as other
                from .b import (  # a comment
                    also_gone,
                    there,
                )
                import pkg.lost.module
            class C:
                async def m(self):
                    if self:
                        from . import b, absent
        """,
        "b": "there = 1\n",
    }
    told = report(tmp_path, files, contracts())
    assert [each.key for each in told.findings] == [
        "missing-import:pkg.a.pkg.absent",
        "missing-import:pkg.a.pkg.b.also_gone",
        "missing-import:pkg.a.pkg.b.gone",
        "missing-import:pkg.a.pkg.gone",
        "missing-import:pkg.a.pkg.lost.module",
    ]
    assert str(told.findings[0].place) == "pkg/a.py:14 m"


def test_imports_that_may_fail_or_need_not_be_there(tmp_path: Path) -> None:
    files = {
        "a": """
            from typing import TYPE_CHECKING
            def f():
                try:
                    from pkg.gone import x
                except ImportError:
                    x = None
                if TYPE_CHECKING:
                    from pkg.types import T
                from pkg.lazy import anything
                from pkg.made import made_up
                from pkg.native import compiled
                from pkg.star import path_like
                from pkg.b import bound_in_a_branch, from_a_loop, imported, sub
                from pkg.copied.here import what
                from other.gone import y
        """,
        "lazy": "def __getattr__(name): return 1\n",
        "made": "globals().update({'made_up': 1})\n",
        "star": "from os.path import *\n",
        "b/__init__": "from os import path as imported\nif imported:\n    bound_in_a_branch = 1\n"
        "for from_a_loop in (): pass\n",
        "b/sub": "",
    }
    rules = contracts(**{"not-in-every-build": ({"modules": ("pkg.copied",), "why": "copied in"},)})
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "native.abi3.so").touch()
    told = report(tmp_path, files, rules)
    assert told.findings == ()
    assert told.notes == ("1 imports of modules that not every build has were left out",)


# --- names, orders


def test_orders_are_those_of_python(tmp_path: Path) -> None:
    """Every way to derive four classes from each other that Python accepts."""
    bases = [
        [c for n in range(len(above) + 1) for c in itertools.permutations(above, n)] for above in ("", "A", "AB", "ABC")
    ]
    for number, choice in enumerate(itertools.product(*bases)):
        names = dict(zip("ABCD", choice, strict=True))
        text = "\n".join(f"class {name}({', '.join(above)}): pass" for name, above in names.items())
        space: dict[str, type] = {}
        try:
            exec(text, space)  # Python is the oracle
        except TypeError:
            continue
        if number % 7:  # every seventh of 400
            continue
        here = classes(tmp_path / str(number), {"a": text})
        expected = [each.__name__ for each in space["D"].__mro__[:-1]]
        assert [path.rpartition(".")[2] for path in here.order("pkg.a.D")] == expected, text


@given(
    st.lists(
        st.sampled_from(["from pkg.b import X as X", "from pkg.c import *", "X = Y", "from pkg import b"]), max_size=4
    )
)
def test_circles_of_imports_end(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    text = "\n".join(lines)
    here = classes(
        tmp_path_factory.mktemp("circle"), {"a": text, "b": "from pkg.a import *", "c": "from pkg.b import *"}
    )
    assert here.get("pkg.a.X") is None
    assert here.below("pkg.a.X") == []


def test_a_root_that_is_not_there_and_a_file_that_is_no_python(tmp_path: Path) -> None:
    files = {"a": "class Base: pass\n", "b": "from pkg.a import Base\nclass C(Base):\n    def (self): pass\n"}
    told = report(tmp_path, files, contracts("pkg.a.Base", "pkg.a.Gone"))
    assert told.notes[0] == "h: this build has no pkg.a.Gone"
    assert len(told.unread) == 1
    assert told.unread[0].startswith("pkg/b.py cannot be read: invalid syntax")
    assert told.classes == {"h": 1}


# --- found by breaking it


def test_two_faults_of_one_parameter_are_one_finding_and_live_if_one_is(tmp_path: Path) -> None:
    base = (
        "class X: pass\nclass Y(X): pass\nclass Base:\n    def m(self, a: X): pass\n    def go(self): self.m(a=X())\n"
    )
    child = "from pkg.a import Base, X, Y\nclass C(Base):\n    def m(self, aa: Y): pass\n"
    told = found(tmp_path, {"a": base, "b": child}, rule="override")["C.m.a"]
    assert told.state == "live"
    assert "is called `aa`" in told.message
    assert "no longer takes X" in told.message


def test_a_parameter_that_may_now_be_named_too_is_no_fault(tmp_path: Path) -> None:
    files = {
        "a": "class Base:\n    def m(self, a, /, b): pass\n",
        "b": "from pkg.a import Base\nclass C(Base):\n    def m(self, a, b): pass\n",
    }
    assert found(tmp_path, files, rule="override") == {}


def test_aliases_that_go_round_in_a_circle_allow_anything(tmp_path: Path) -> None:
    files = {
        "a": "A = 'int | B'\nclass Base:\n    def m(self, a: 'T'): pass\nT = int | 'U'\nU = str | T\n",
        "b": "from pkg.a import Base, U\nclass C(Base):\n    def m(self, a: U): pass\n",
    }
    assert found(tmp_path, files, rule="override") == {}


def test_a_fallback_that_is_not_there_either_is_found(tmp_path: Path) -> None:
    text = "def f():\n    try:\n        import fast\n    except ImportError:\n        from pkg.gone import slow\n"
    told = report(tmp_path, {"a": "class Base: pass\n", "b": text}, contracts("pkg.a.Base"))
    assert [each.title for each in told.findings] == ["missing-import:pkg.b.pkg.gone"]
