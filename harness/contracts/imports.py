"""Rule `missing-import`: a function imports from the package what this build does not have.

Such an import fails when the function is called, not when its module is loaded. Exempt is one whose ImportError is
caught, one for types only, and a module that makes up its names (`__getattr__`, `globals()`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import griffe

from harness.contracts.bodies import FunctionNode, dotted
from harness.contracts.index import NO_PYTHON, Index, parsed, why
from harness.contracts.model import Finding, Place

RULE: Final = "missing-import"
_CATCHING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    module: str
    name: str
    """Empty for `import module`."""
    line: int
    function: str


def check(index: Index) -> Iterator[Finding]:
    """The findings of a package.

    A file is parsed only where its text names something that seems not to be there: most of a package is in order.
    """
    texts = _Texts(index)
    for file in sorted(index.sources.names):
        if any(not texts.surely_has(each) for each in texts.imported(file)):
            yield from _in_file(index, file)


def _in_file(index: Index, file: str) -> Iterator[Finding]:
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    try:
        tree = parsed(index.sources.text(file))
        wanted = list(_wanted(tree, _package(file), index.sources.package))
    except NO_PYTHON as error:
        index.unreadable[file] = why(error)
        return
    seen = set[str]()
    for each in wanted:
        missing = _missing(index, each)
        if missing and missing not in seen:
            seen.add(missing)
            yield _finding(module, file, each, missing)


def _package(file: str) -> str:
    """The package that relative imports of a file start from."""
    return file.rpartition("/")[0].replace("/", ".")


class _Texts:
    """What texts say of imports, without being parsed."""

    def __init__(self, index: Index) -> None:
        self._index, self._top = index, index.sources.package
        top = re.escape(self._top)
        self._inside = re.compile(
            rf"^[ \t]+from[ \t]+({top}(?:\.[\w.]+)?|\.+[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)"
            rf"|^[ \t]+import[ \t]+({top}[\w.]*)",
            re.MULTILINE,
        )
        self._bound: dict[str, frozenset[str]] = {}

    def imported(self, file: str) -> Iterator[Wanted]:
        """Everything that is imported in an indented line."""
        for match in self._inside.finditer(self._index.sources.text(file)):
            if match[3]:
                yield Wanted(module=match[3], name="", line=0, function="")
                continue
            module = _absolute(match[1], _package(file))
            for name in _ONE_NAME.findall(_COMMENT.sub("", match[2])):
                yield Wanted(module=module, name=name, line=0, function="")

    def surely_has(self, wanted: Wanted) -> bool:
        """Whether a module binds a name somewhere, or has such a module below it."""
        file = self._index.file(wanted.module)
        if file is None:
            return False
        return (
            not wanted.name
            or wanted.name in self._binds(file)
            or _is_module(self._index, f"{wanted.module}.{wanted.name}")
        )

    def _binds(self, file: str) -> frozenset[str]:
        if file not in self._bound:
            text = self._index.sources.text(file)
            imported = (word for words in _IMPORTS.findall(text) for word in _WORD.findall(words))
            self._bound[file] = frozenset((*(a or b for a, b in _BINDS.findall(text)), *imported))
        return self._bound[file]


_WORD = re.compile(r"\w+")
_COMMENT = re.compile(r"#[^\n]*")
_ONE_NAME = re.compile(r"(\w+)(?:\s+as\s+\w+)?")
_BINDS = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^[ \t]*(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE
)
_IMPORTS = re.compile(r"^[ \t]*(?:from[ \t]+\S+[ \t]+)?import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)


def _absolute(module: str, package: str) -> str:
    """`.x` in package `a.b` is `a.b.x`."""
    name = module.lstrip(".")
    level = len(module) - len(name)
    if not level:
        return module
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *([name] if name else [])])


def _finding(module: str, file: str, wanted: Wanted, missing: str) -> Finding:
    return Finding(
        rule=RULE,
        subject=module,
        member=missing,
        state="latent",
        message=f"{wanted.function} imports {missing}, which this build does not have",
        place=Place(file=file, line=wanted.line, function=wanted.function),
    )


def _wanted(tree: ast.Module, package: str, top: str) -> Iterator[Wanted]:
    pending: list[tuple[ast.AST, str]] = [(node, "") for node in reversed(tree.body)]
    while pending:
        node, function = pending.pop()
        if function and isinstance(node, ast.Import | ast.ImportFrom):
            yield from (each for each in _imported(node, package, function) if _within(each.module, top))
        pending += reversed(list(_below(node, function)))


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _below(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
    """The statements in a statement that run unguarded, each with the function that it is in."""
    if isinstance(node, FunctionNode):
        function = f"{function}.{node.name}".lstrip(".")
    parts: tuple[str, ...] = ("body", "orelse", "finalbody", "handlers", "cases")
    if isinstance(node, ast.Try | ast.TryStar) and any(map(_catches, node.handlers)):
        parts = ("handlers", "orelse", "finalbody")  # a handler runs when the guarded one is not there
    elif isinstance(node, ast.If) and dotted(node.test).endswith("TYPE_CHECKING"):
        parts = ("orelse",)
    elif isinstance(node, ast.With) and any("suppress" in ast.dump(item) for item in node.items):
        parts = ()
    yield from ((each, function) for part in parts for each in _statements(getattr(node, part, ())))


def _statements(part: object) -> list[ast.AST]:
    return part if isinstance(part, list) else []  # the body of a lambda or of a conditional value is none


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or dotted(kind).rpartition(".")[2] in _CATCHING for kind in kinds)


def _imported(node: ast.Import | ast.ImportFrom, package: str, function: str) -> Iterator[Wanted]:
    if isinstance(node, ast.Import):
        for each in node.names:
            yield Wanted(module=each.name, name="", line=node.lineno, function=function)
        return
    module = _absolute("." * node.level + (node.module or ""), package)
    for each in node.names:
        yield Wanted(module=module, name="" if each.name == "*" else each.name, line=node.lineno, function=function)


def _missing(index: Index, wanted: Wanted) -> str:
    """What is not there: the module, or the name in it; empty where all is."""
    if not _is_module(index, wanted.module):
        return "" if _native(index, wanted.module) else wanted.module
    if not wanted.name or _is_module(index, f"{wanted.module}.{wanted.name}"):
        return ""
    module = index.module(wanted.module)
    if module is None or _has(index, module, wanted.name):
        return ""
    return f"{wanted.module}.{wanted.name}"


def _native(index: Index, module: str) -> bool:
    """Whether it is compiled, or lies in what is: such a module says nothing of what is in it."""
    return any(_within(module, each) for each in index.sources.native)


def _is_module(index: Index, dotted_name: str) -> bool:
    if index.file(dotted_name) or dotted_name in index.sources.native:
        return True
    folder = dotted_name.replace(".", "/") + "/"
    return any(name.startswith(folder) for name in index.sources.names)


def _has(index: Index, module: griffe.Module, name: str) -> bool:
    if name in module.members or "__getattr__" in module.members or name.startswith("__"):
        return True
    stars = [key.removesuffix("/*") for key in module.members if key.endswith("/*")]
    if any(not _within(star, index.sources.package) or index.resolve(f"{star}.{name}") for star in stars):
        return True
    text = index.sources.text(index.file(module.path) or "")
    return "globals()" in text or any(_binds(node, name) for node in ast.walk(index.tree(module.path)))


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id == name and isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.ClassDef | FunctionNode):
        return node.name == name
    return isinstance(node, ast.alias) and (node.asname or node.name) == name
