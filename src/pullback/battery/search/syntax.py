"""The source of a Function: its methods as syntax trees, the module's helpers, and which gradients are always None."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from ...capture.source import FunctionNode, plain, tree_of
from .specs import Slot


@dataclass(slots=True)
class FunctionSource:
    """A Function as the search sees it.

    Args:
        function: The autograd.Function subclass.
        slots: Parameters of forward without ctx.
        separate: Whether forward takes no ctx (setup_context style).
        forward: Syntax tree of forward, None where the source is not at hand.
        backward: Likewise of backward (or of vjp).
        setup_context: Likewise.
    """

    function: type
    slots: tuple[Slot, ...]
    separate: bool
    forward: FunctionNode | None = None
    backward: FunctionNode | None = None
    setup_context: FunctionNode | None = None
    namespace: dict[str, Any] = field(default_factory=dict)


class Unsearchable(Exception):
    """The signature cannot be called by apply."""


def read_function(function: type) -> FunctionSource:
    """Return the signature and, where it can be read, the source of `function`.

    Raises:
        Unsearchable: if forward has no readable signature, or keyword-only parameters without default.
    """
    forward = inspect.getattr_static(function, "forward")
    callable_ = plain(getattr(function, "forward"))  # noqa: B009 - a classmethod forward arrives bound
    separate = is_separate(function)
    try:
        parameters = list(inspect.signature(callable_).parameters.values())
    except (TypeError, ValueError) as error:
        raise Unsearchable(f"{function.__name__}.forward has no readable signature: {error}") from error
    if isinstance(forward, classmethod):
        parameters = parameters[1:]
    slots = tuple(_slots(function, parameters if separate else parameters[1:]))
    return FunctionSource(
        function,
        slots,
        separate,
        tree_of(callable_),
        tree_of(plain(getattr(function, "backward"))),  # noqa: B009
        tree_of(plain(function.setup_context)) if separate else None,  # type: ignore[attr-defined]
        getattr(callable_, "__globals__", {}),
    )


def is_separate(function: type) -> bool:
    """Return whether `function` has its own setup_context."""
    import torch

    return getattr(function, "setup_context", None) is not torch.autograd.Function.setup_context


def _slots(function: type, parameters: list[inspect.Parameter]) -> Iterator[Slot]:
    index = 0
    for parameter in parameters:
        has_default = parameter.default is not inspect.Parameter.empty
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            if not has_default:
                raise Unsearchable(f"{function.__name__}.forward takes `{parameter.name}` by keyword only, which apply cannot pass")
            continue
        yield Slot(parameter.name, index, parameter.kind is inspect.Parameter.VAR_POSITIONAL, has_default, parameter.default if has_default else None)
        index += 1


def applied_function(expression: ast.expr, namespace: Mapping[str, Any]) -> type | None:
    """Return the Function whose apply an expression is, ``Norm.apply``; None for all else."""
    import torch

    if not isinstance(expression, ast.Attribute) or expression.attr != "apply" or not isinstance(expression.value, ast.Name):
        return None
    owner = namespace.get(expression.value.id)
    return owner if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) else None


def helper_of(expression: ast.expr, namespace: Mapping[str, Any]) -> FunctionNode | None:
    """Return the syntax tree of a helper: a function of the module, ``Class.method`` or ``module.function``; None for anything of torch.

    Of another Function that is applied it is the forward.
    """
    if (function := applied_function(expression, namespace)) is not None:
        value = plain(inspect.getattr_static(function, "forward", None))
    elif isinstance(expression, ast.Name):
        value = plain(namespace.get(expression.id))
    elif isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
        value = plain(inspect.getattr_static(namespace.get(expression.value.id), expression.attr, None))
    else:
        return None
    if not isinstance(value, FunctionType) or str(value.__module__).split(".")[0] == "torch":
        return None
    return tree_of(value)


def parameter_names(node: FunctionNode) -> list[str]:
    """Return the names of the positional parameters, ``*args`` last."""
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    return [*names, node.args.vararg.arg] if node.args.vararg else names


def context_name(node: FunctionNode) -> str:
    """Return how this method calls its ctx."""
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    return names[1] if len(names) > 1 and names[0] in ("cls", "self") else names[0] if names else "ctx"


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below `node` in source order, without those of nested functions and classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FunctionNode.__args__, ast.Lambda, ast.ClassDef)):  # type: ignore[attr-defined]
            continue
        yield child
        yield from own_nodes(child)


def integer(node: ast.AST) -> int | None:
    """Return the whole number that is written there, with or without a minus; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int) else None
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def mentions(source: FunctionSource, *words: str) -> bool:
    """Return whether forward or backward names one of these modules or functions."""
    for method in (source.forward, source.backward, source.setup_context):
        for node in own_nodes(method) if method is not None else ():
            if (isinstance(node, ast.Name) and node.id in words) or (isinstance(node, ast.Attribute) and node.attr in words):
                return True
    return False


Row = tuple[list[bool | None], bool]


def none_positions(backward: FunctionNode | None, namespace: Mapping[str, Any]) -> tuple[tuple[bool | None, ...], bool]:
    """Return for each position whether the returned gradient is literally always None, and whether the list ends there.

    None stands for a position that cannot be read (behind a starred or computed tuple). A returned call of a helper is followed into the helper.
    """
    rows = _returned_rows(backward, namespace, 2) if backward is not None else []
    if not rows:
        return (), False
    width = max(len(row[0]) for row in rows)
    columns = [[row[0][i] if i < len(row[0]) else (True if row[1] else None) for row in rows] for i in range(width)]
    return tuple(True if all(c is True for c in column) else None if None in column else False for column in columns), all(row[1] for row in rows)


def _returned_rows(method: FunctionNode, namespace: Mapping[str, Any], depth: int) -> list[Row]:
    assigned: dict[str, set[bool]] = {}
    returned: list[ast.expr] = []
    for node in own_nodes(method):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _note_assigned(target, node.value, assigned)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)) and isinstance(node.target, ast.Name):
            value = getattr(node, "value", None)
            assigned.setdefault(node.target.id, set()).add(isinstance(node, ast.AnnAssign) and _is_none(value))
        elif isinstance(node, ast.Return) and node.value is not None:
            returned.append(node.value)
    rows: list[Row] = []
    for value in returned:
        helper = helper_of(value.func, namespace) if isinstance(value, ast.Call) and depth else None
        rows += _returned_rows(helper, namespace, depth - 1) if helper is not None else [_flatten(value, assigned)]
    return rows


def _note_assigned(target: ast.expr, value: ast.expr, assigned: dict[str, set[bool]]) -> None:
    if isinstance(target, ast.Name):
        assigned.setdefault(target.id, set()).add(_is_none(value))
    elif isinstance(target, (ast.Tuple, ast.List)):
        values = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else [None] * len(target.elts)
        for element, part in zip(target.elts, values, strict=True):
            if isinstance(element, ast.Name):
                assigned.setdefault(element.id, set()).add(_is_none(part))


def _is_none(node: ast.AST | None) -> bool:
    if isinstance(node, (ast.Tuple, ast.List)):
        return False
    return isinstance(node, ast.Constant) and node.value is None


def _flatten(node: ast.expr, assigned: dict[str, set[bool]]) -> Row:
    if isinstance(node, (ast.Tuple, ast.List)):
        row: list[bool | None] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                inner, closed = _flatten(element.value, assigned)
                row += inner
                if not closed:
                    return row, False
            else:
                row.append(_literally_none(element, assigned))
        return row, True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, closed = _flatten(node.left, assigned)
        if not closed:
            return left, False
        right, closed = _flatten(node.right, assigned)
        return left + right, closed
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Tuple):
        row, closed = _flatten(node.left, assigned)
        if isinstance(node.right, ast.Constant) and isinstance(node.right.value, int):
            return row * node.right.value, closed
        return row, False
    if isinstance(node, ast.Name) and not assigned.get(node.id):
        return [False], True
    if isinstance(node, (ast.Name, ast.Call, ast.Subscript, ast.ListComp, ast.GeneratorExp, ast.Starred)):
        return [], False
    return [_literally_none(node, assigned)], True


def _literally_none(node: ast.expr, assigned: dict[str, set[bool]]) -> bool:
    if isinstance(node, ast.IfExp):
        return _literally_none(node.body, assigned) and _literally_none(node.orelse, assigned)
    if isinstance(node, ast.Name):
        return assigned.get(node.id) == {True}
    return _is_none(node)


def is_namespace(node: ast.expr) -> bool:
    """Return whether an attribute is looked up in a module such as torch, by its name."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in (
        "torch",
        "F",
        "np",
        "numpy",
        "scipy",
        "dist",
        "math",
        "linalg",
        "nn",
        "functional",
        "c10d",
        "distributed",
    )
