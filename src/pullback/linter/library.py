"""Ops of torch.library, read as Function classes: their forward, setup_context and backward are functions of the module."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from .project import dotted
from .source import Source

_DEFINES = frozenset({"custom_op", "triton_op"})
_REGISTERS = "register_autograd"
_NOTHING_KEPT = "def setup_context(ctx, inputs, output):\n    pass"


def library_ops(source: Source) -> Iterator[ast.ClassDef]:
    """Yield a class definition for every op that a module defines and gives a backward, with the methods where they stand.

    Left out are ops that write to arguments, take some by keyword alone, or whose rules are no functions of the module.
    """
    functions = {n.name: n for n in source.tree.body if isinstance(n, ast.FunctionDef)}
    ops = dict(_defined(source.tree.body, functions))
    for statement in source.tree.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != _REGISTERS:
            continue
        named = [call.func.value, *call.args] if dotted(call.func.value) in ops else call.args
        rules = [functions.get(dotted(node) or "") for node in (*named[1:2], *(k.value for k in call.keywords if k.arg == "setup_context"))]
        forward = ops.get(_key(named[0])) if named else None
        if forward is not None and rules and all(rules):
            yield _as_class(forward, rules[0], rules[1] if len(rules) > 1 else _empty(call))  # type: ignore[arg-type]


def _defined(body: list[ast.stmt], functions: dict[str, ast.FunctionDef]) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the names of ops, both the variable's and the registered one, and the function that implements each."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            made = [(d, node) for d in node.decorator_list if isinstance(d, ast.Call)]
            variables = [node.name]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.value.args) > 1:
            implementation = functions.get(dotted(node.value.args[1]) or "")
            made = [(node.value, implementation)] if implementation is not None else []
            variables = [name for target in node.targets if (name := dotted(target))]
        else:
            continue
        for call, function in made:
            if (dotted(call.func) or "").rpartition(".")[2] in _DEFINES and _is_pure(call) and not function.args.kwonlyargs:
                yield from ((name, function) for name in (*variables, *map(_key, call.args[:1])))


def _is_pure(call: ast.Call) -> bool:
    """Whether it is said of an op that it writes to none of its arguments."""
    return any(k.arg == "mutates_args" and ast.unparse(k.value) in ("()", "[]", "{}", "set()") for k in call.keywords)


def _key(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else dotted(node) or ""


def _as_class(forward: ast.FunctionDef, backward: ast.FunctionDef, setup: ast.FunctionDef) -> ast.ClassDef:
    methods = [_method(forward, "forward"), _method(setup, "setup_context"), _method(backward, "backward")]
    return ast.copy_location(ast.ClassDef(forward.name, [], [], methods, []), forward)  # type: ignore[arg-type, call-arg]


def _method(function: ast.FunctionDef, name: str) -> ast.FunctionDef:
    method = copy.copy(function)
    method.name = name
    method.decorator_list = [ast.copy_location(ast.Name("staticmethod", ast.Load()), function)]
    return method


def _empty(call: ast.Call) -> ast.FunctionDef:
    (function,) = ast.parse(_NOTHING_KEPT).body
    assert isinstance(function, ast.FunctionDef)
    for node in ast.walk(function):
        ast.copy_location(node, call)
    return function
