"""The source of Python functions: syntax trees with the line numbers of their files, and text without comments and docstrings."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from .._compat import compiled_from

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_NOT_HELPERS = frozenset({"forward", "backward", "vjp", "jvp", "setup_context", "vmap"})


def plain(method: Any) -> Any:
    """Return the Python function behind a bound, wrapped or compiled method."""
    for _ in range(8):
        inner = getattr(method, "__wrapped__", None) or getattr(method, "__func__", None) or compiled_from(method)
        if inner is None:
            break
        method = inner
    return method


def tree_of(function: Any) -> FunctionNode | None:
    """Return the syntax tree of a Python function with the line numbers of its file, None where the source is not at hand.

    It is shared by all that ask for it, and must not be changed.
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    node = _functions_in("".join(linecache.getlines(code.co_filename))).get((code.co_name, code.co_firstlineno))
    if node is not None:
        return node
    tree, start = _parsed_alone(function)
    if tree is None or not tree.body or not isinstance(tree.body[0], FunctionNode):
        return None
    ast.increment_lineno(tree, start - 1)
    return tree.body[0]


def syntax_of(method: Any) -> ast.AST | None:
    """Return the syntax tree of a method, or of the statement that holds a lambda; None where the source is not at hand."""
    function = plain(method)
    return tree_of(function) or _parsed_alone(function)[0]


def text_of(*methods: Any) -> str:
    """Return the code of some methods as `ast.unparse` writes it, without comments and docstrings; nothing for those whose source is not at hand."""
    trees = (syntax_of(method) for method in methods)
    return "\n".join(_unparsed(tree) for tree in trees if tree is not None)


def text_of_class(function: type) -> str:
    """Return the code of all methods of a Function and its bases, apart from torch's."""
    return text_of(*(value for owner in _own_bases(function) for value in vars(owner).values() if callable(plain(value))))


def called_by(function: type, *methods: Any, levels: int = 1) -> list[FunctionType]:
    """Return some methods of a Function, the functions of their module and the methods of the class that they name, and what those name.

    Args:
        function: The Function.
        *methods: Where to begin.
        levels: How far names are followed.
    """
    level = [written for method in methods if isinstance(written := plain(method), FunctionType)]
    found = dict.fromkeys(level)
    for _ in range(levels):
        level = [helper for caller in level for helper in _named_in(function, caller) if helper not in found]
        found |= dict.fromkeys(level)
    return list(found)


def _named_in(function: type, caller: FunctionType) -> Iterator[FunctionType]:
    mentioned = caller.__code__.co_names
    helpers = (caller.__globals__.get(name) for name in mentioned)
    yield from (f for f in helpers if isinstance(f, FunctionType) and f.__module__ == caller.__module__)
    for owner in _own_bases(function):
        for name in vars(owner):
            method = plain(getattr(function, name)) if name in mentioned and name not in _NOT_HELPERS else None
            if isinstance(method, FunctionType):
                yield method


def _own_bases(function: type) -> Iterator[type]:
    return (owner for owner in function.__mro__ if owner.__module__.partition(".")[0] not in ("torch", "builtins"))


def _parsed_alone(function: Any) -> tuple[ast.Module | None, int]:
    """The tree of a function's own lines, and where they start in their file."""
    try:
        lines, start = inspect.getsourcelines(function)
    except (OSError, TypeError, IndentationError):
        return None, 1
    try:
        return ast.parse(textwrap.dedent("".join(lines))), start
    except (SyntaxError, ValueError, RecursionError):
        return None, 1


@functools.lru_cache(maxsize=64)
def _functions_in(text: str) -> dict[tuple[str, int], FunctionNode]:
    """The functions of a file by name and first line."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[tuple[str, int], FunctionNode] = {}
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[node.name, first] = node
    return found


@functools.lru_cache(maxsize=512)
def _unparsed(tree: ast.AST) -> str:
    if isinstance(tree, FunctionNode) and ast.get_docstring(tree, clean=False) is not None:
        tree = copy.copy(tree)
        tree.body = tree.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
