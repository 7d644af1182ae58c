"""Rule `missing-import`: a function imports from the package what this build does not have.

Such an import fails when the function is called, not when its module is loaded. Exempt is one whose ImportError is caught,
one for types only, and a module that makes up its names (`__getattr__`, `globals()`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import griffe

from harness.contracts.bodies import FunctionNode, dotted
from harness.contracts.index import Index
from harness.contracts.model import Finding, Place

RULE = "missing-import"
_CATCHING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    module: str
    name: str
    """Empty for `import module`."""
    line: int
    function: str


def check(index: Index) -> Iterator[Finding]:
    """The findings of a package."""
    package = re.escape(index.sources.package)
    inside = re.compile(rf"^[ \t]+(?:from[ \t]+(?:{package}\b|\.)|import[ \t]+{package}\b)", re.MULTILINE)
    for file in sorted(index.sources.names):
        if inside.search(index.sources.text(file)):
            yield from _in_file(index, file)


def _in_file(index: Index, file: str) -> Iterator[Finding]:
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    try:
        tree = index.tree(module)
    except SyntaxError as error:
        index.unreadable[file] = str(error)
        return
    package = module if file.endswith("/__init__.py") else module.rpartition(".")[0]
    seen = set[str]()
    for each in _wanted(tree, package, index.sources.package):
        missing = _missing(index, each)
        if missing and missing not in seen:
            seen.add(missing)
            yield _finding(module, file, each, missing)


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
    pending: list[tuple[ast.AST, str]] = [(node, "") for node in tree.body]
    while pending:
        node, function = pending.pop(0)
        if function and isinstance(node, ast.Import | ast.ImportFrom):
            yield from (each for each in _imported(node, package, function) if _within(each.module, top))
        pending[:0] = [(child, inner) for child, inner in _below(node, function)]


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _below(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str]]:
    """The parts of a node that run unguarded, each with the function that it is in."""
    if isinstance(node, FunctionNode):
        yield from ((each, f"{function}.{node.name}".lstrip(".")) for each in node.body)
    elif isinstance(node, ast.ClassDef):
        yield from ((each, function) for each in node.body)
    elif isinstance(node, ast.Try) and any(map(_catches, node.handlers)):
        yield from ((each, function) for each in (*node.orelse, *node.finalbody))
    elif isinstance(node, ast.If) and dotted(node.test).endswith("TYPE_CHECKING"):
        yield from ((each, function) for each in node.orelse)
    elif not isinstance(node, ast.With) or not any("suppress" in ast.dump(item) for item in node.items):
        yield from ((each, function) for each in ast.iter_child_nodes(node))


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or dotted(kind).rpartition(".")[2] in _CATCHING for kind in kinds)


def _imported(node: ast.Import | ast.ImportFrom, package: str, function: str) -> Iterator[Wanted]:
    if isinstance(node, ast.Import):
        for each in node.names:
            yield Wanted(module=each.name, name="", line=node.lineno, function=function)
        return
    module = node.module or ""
    if node.level:
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        module = ".".join([*above, *([module] if module else [])])
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
