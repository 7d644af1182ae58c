"""A textual edit inside one function, refused unless its text is there exactly once. Pure."""

from __future__ import annotations

import ast

from harness.errors import ScenarioError
from harness.known.format import Edit

FIX = "correct the edit in known_failures.yaml, or its `builds`: these sources are not the ones it was made for"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def apply(source: str, edit: Edit) -> str:
    """The source with the edit made in it.

    Raises:
        ScenarioError: the function, or the text in it, is not there exactly once, or what comes out is no Python.
    """
    begin, end = span(source, edit)
    body = source[begin:end]
    if (count := body.count(edit.replace)) != 1:
        times = "not there" if count == 0 else f"there {count} times"
        raise ScenarioError(f"{_what(edit)}: the text to replace is {times}, not once: {_short(edit.replace)}", fix=FIX)
    edited = source[:begin] + body.replace(edit.replace, edit.with_) + source[end:]
    _parsed(edited, edit)
    return edited


def span(source: str, edit: Edit) -> tuple[int, int]:
    """Where the function stands: first character, and the one after its last line.

    Raises:
        ScenarioError: there is no such function, or more than one of its name.
    """
    found = _functions(_parsed(source, edit), edit.function.split("."))
    if len(found) != 1:
        times = "no such function" if not found else f"{len(found)} functions of that name"
        raise ScenarioError(f"{_what(edit)}: there is {times} in the file", fix=FIX)
    first = min([found[0].lineno, *(decorator.lineno for decorator in found[0].decorator_list)])
    # Lines as the parser counts them: str.splitlines() would also split at a form feed.
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    last = found[0].end_lineno or found[0].lineno
    return starts[first - 1], min(starts[last], len(source))


def _functions(module: ast.Module, path: list[str]) -> list[Function]:
    """Those at a dotted path, also below `if` and `try`, but not inside other functions unless the path says so."""
    holders: list[ast.AST] = [module]
    for name in path:
        named = [node for holder in holders for node in _definitions(holder) if node.name == name]
        holders = list(named)
    return [holder for holder in holders if isinstance(holder, Function)]


def _definitions(holder: ast.AST) -> list[Function | ast.ClassDef]:
    found: list[Function | ast.ClassDef] = []
    for node in ast.iter_child_nodes(holder):
        if isinstance(node, Function | ast.ClassDef):
            found.append(node)
        else:
            found += _definitions(node)
    return found


def _parsed(source: str, edit: Edit) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise ScenarioError(f"{_what(edit)}: this is no Python ({error})", fix=FIX) from error


def _what(edit: Edit) -> str:
    return f"edit of {edit.function} in {edit.file}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"  # noqa: PLR2004 - one line of a terminal
