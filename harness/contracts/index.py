"""Names of a package and what they stand for: read module by module when asked, nothing imported.

griffe reads a module's names, classes, signatures and imports; this follows them through re-exports, star imports and
`Other = Name`, which need modules that it has not read yet.
"""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import griffe

from harness.contracts.reading import Sources

Known = griffe.Module | griffe.Class | griffe.Function | griffe.Attribute | griffe.TypeAlias


NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What parsers raise: a ValueError is a NUL byte, the last two are of code that is nested too deeply."""


def why(error: BaseException) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError | MemoryError) else str(error)


class Index:
    """The modules of one package."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._modules: dict[str, griffe.Module | None] = {}
        self._trees: dict[str, ast.Module] = {}
        self._found: dict[str, Known | None] = {}
        self._pending: set[str] = set()
        self._everything = griffe.ModulesCollection()
        self._lines = griffe.LinesCollection()
        self.unreadable: dict[str, str] = dict(sources.odd)
        """Files that are no Python of this interpreter, and why."""

    def file(self, module: str) -> str | None:
        """The file of a module, or of a package its `__init__.py`."""
        path = module.replace(".", "/")
        return next((each for each in (f"{path}/__init__.py", f"{path}.py") if each in self.sources.names), None)

    def module(self, dotted: str) -> griffe.Module | None:
        """A module of the package; None: it has none of that name, or none that can be read."""
        if dotted not in self._modules:
            self._modules[dotted] = None  # a module that asks for itself meanwhile
            self._modules[dotted] = self._read(dotted)
        return self._modules[dotted]

    def tree(self, module: str) -> ast.Module:
        """The syntax tree of a module that was read."""
        if module not in self._trees:
            self._trees[module] = parsed(self.sources.text(self.file(module) or ""))
        return self._trees[module]

    def resolve(self, dotted: str) -> Known | None:
        """What a dotted name stands for, where its definition is; None: outside of the package, or not there."""
        if dotted in self._found or dotted in self._pending:
            return self._found.get(dotted)  # an import that goes round in circles finds nothing that way
        self._pending.add(dotted)
        found = self._resolve(dotted)
        self._pending.discard(dotted)
        if found is not None or not self._pending:  # nothing on the way round a circle may be something by itself
            self._found[dotted] = found
        return found

    def canonical(self, dotted: str) -> str:
        """The dotted name of the definition; outside of the package the name itself."""
        found = self.resolve(dotted)
        return found.path if found is not None else dotted

    def _read(self, dotted: str) -> griffe.Module | None:
        file = self.file(dotted)
        if file is None:
            return None
        parent, _, name = dotted.rpartition(".")
        above = self.module(parent) if parent else None
        text = self.sources.text(file)
        try:
            with warnings.catch_warnings(action="ignore"):  # of other people's string escapes
                return griffe.visit(
                    name,
                    filepath=Path(file),
                    code=text,
                    parent=above,
                    modules_collection=self._everything,
                    lines_collection=self._lines,
                )
        except NO_PYTHON as error:
            self.unreadable[file] = why(error)
            return None

    def _resolve(self, dotted: str) -> Known | None:
        module = self.module(dotted)
        if module is not None:
            return module
        parent, _, name = dotted.rpartition(".")
        above = self.resolve(parent) if parent else None
        if isinstance(above, griffe.Module):
            return self._in_module(above, name)
        if isinstance(above, griffe.Class):
            return self._followed(above.members.get(name))
        return None

    def _in_module(self, module: griffe.Module, name: str) -> Known | None:
        if name in module.members:
            return self._followed(module.members[name])
        below = self.module(f"{module.path}.{name}")
        if below is not None:
            return below
        stars = (each for key, each in module.members.items() if key.endswith("/*") and isinstance(each, griffe.Alias))
        return next((found for star in stars if (found := self.resolve(f"{star.target_path}.{name}"))), None)

    def _followed(self, member: griffe.Object | griffe.Alias | None) -> Known | None:
        if isinstance(member, griffe.Alias):
            return self.resolve(member.target_path)
        if isinstance(member, griffe.Attribute) and isinstance(member.value, griffe.ExprName | griffe.ExprAttribute):
            other = self.resolve(member.value.canonical_path)
            return other if isinstance(other, griffe.Class) else member
        assert isinstance(member, Known | None)
        return member


def parsed(text: str) -> ast.Module:
    """The syntax tree of a text.

    Raises:
        SyntaxError: it is no Python of this interpreter.
    """
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(text)
