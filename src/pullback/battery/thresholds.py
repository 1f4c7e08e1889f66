"""Numbers that the forward compares its inputs with, or clamps them to: a branch is taken on either side, which the sample may not reach."""

from __future__ import annotations

import ast
import contextlib
import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..capture.source import called_by, syntax_of
from .probe import Probe
from .special import LARGEST_NUMBER, Point

THRESHOLDS = 3
_CLAMPS = frozenset({"clamp", "clip", "clamp_", "clip_", "clamp_min", "clamp_max", "clamp_min_", "clamp_max_", "hardtanh"})
_OF_SHAPES = frozenset({"dim", "ndim", "ndimension", "shape", "size", "numel", "len", "dtype", "device", "ctx", "range", "stride"})
_ARITHMETIC = {ast.Mult: float.__mul__, ast.Div: float.__truediv__, ast.Pow: pow, ast.Add: float.__add__, ast.Sub: float.__sub__}


def threshold_points(probe: Probe) -> Iterator[Point]:
    """Yield, for each real differentiated input and each threshold in the code, entries between 0 and it, and beyond it."""
    found = thresholds(probe)[:THRESHOLDS]
    for leaf in probe.exact.wanted:
        x = leaf.template
        if x.is_complex() or x.numel() < 2:
            continue
        for value in found:
            yield Point(leaf.path, f"every entry between 0 and {value:g}, which the code compares with", _between(x, value))
            yield Point(leaf.path, f"some entries between 0 and {value:g}, which the code compares with", _some(x, _between(x, value)))
            yield Point(leaf.path, f"some entries beyond {value:g}, which the code compares with", _some(x, torch.full_like(x, 2 * value)))


def thresholds(probe: Probe) -> list[float]:
    """Return the numbers other than 0 that forward, and what it calls of its own class and module, compares a tensor with or clamps it to."""
    names = _numbers_by_name(probe)
    found: dict[float, None] = {}
    for tree in _forward_trees(probe):
        for node in ast.walk(tree):
            for number in _compared(node):
                value = _value(number, names)
                if value is not None and math.isfinite(value) and 0 < abs(value) <= LARGEST_NUMBER:
                    found[value] = None
    return list(found)


def _compared(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare) and all(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops):
        sides = [node.left, *node.comparators]
        if not any(_says_shape(side) for side in sides):
            yield from sides
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CLAMPS:
        yield from (a for a in (*node.args, *(k.value for k in node.keywords)) if not isinstance(a, ast.Starred))


def _says_shape(side: ast.expr) -> bool:
    named = {n.id for n in ast.walk(side) if isinstance(n, ast.Name)} | {n.attr for n in ast.walk(side) if isinstance(n, ast.Attribute)}
    return bool(named & _OF_SHAPES)


def _value(node: ast.expr, names: Mapping[str, float]) -> float | None:
    if isinstance(node, ast.Constant):
        return float(node.value) if isinstance(node.value, (int, float)) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return getattr(math, node.attr, None) if node.value.id == "math" else names.get(f".{node.attr}")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "math":
        values = [_value(a, names) for a in node.args]
        with contextlib.suppress(ArithmeticError, TypeError, ValueError):
            return None if None in values or node.keywords else float(getattr(math, node.func.attr)(*values))
        return None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand, names)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _value(node.left, names), _value(node.right, names)
        try:
            return None if left is None or right is None else float(_ARITHMETIC[type(node.op)](left, right))
        except (ArithmeticError, TypeError, ValueError):
            return None
    return None


def _numbers_by_name(probe: Probe) -> dict[str, float]:
    """Numbers that names in forward stand for: globals, attributes of the class (``.NAME``), defaults and arguments."""
    function = probe.target.described
    if function is None:
        return {}
    forward = inspect.unwrap(function.forward)
    found: dict[str, Any] = dict(getattr(forward, "__globals__", {}))
    for owner in reversed(function.__mro__):
        found |= {f".{name}": value for name, value in vars(owner).items()}
    with contextlib.suppress(TypeError, ValueError):
        found |= {p.name: p.default for p in inspect.signature(forward).parameters.values()}
    found |= dict(probe.exact.named)
    found |= _locals(found, probe)
    return {name: float(value) for name, value in found.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}


def _locals(known: Mapping[str, Any], probe: Probe) -> dict[str, float]:
    """Numbers that forward computes from those it knows: ``low, high = -limit, math.sqrt(limit)``."""
    numbers = {name: float(v) for name, v in known.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    found: dict[str, float] = {}
    for tree in _forward_trees(probe):
        for name, value in _assigned(tree):
            number = _value(value, numbers | found)
            if number is not None:
                found[name] = number
    return found


def _assigned(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            yield target.id, value
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from ((t.id, v) for t, v in zip(target.elts, value.elts, strict=False) if isinstance(t, ast.Name))


def _forward_trees(probe: Probe) -> Iterator[ast.AST]:
    function = probe.target.described
    trees = () if function is None else map(syntax_of, called_by(function, function.forward))
    return (tree for tree in trees if tree is not None)


def _between(x: Tensor, value: float) -> Tensor:
    """Entries spread between a quarter and three quarters of `value`, of both signs where those of `x` are."""
    spread = torch.linspace(0.25, 0.75, x.numel(), dtype=torch.float64).roll(x.numel() // 3).to(x).reshape(x.shape) * value
    mixed = bool((x > 0).any()) and bool((x < 0).any())
    return torch.where(x < 0, -spread, spread) if mixed else spread


def _some(x: Tensor, new: Tensor) -> Tensor:
    flat = x.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    flat[1::3] = new.reshape(-1)[1::3]
    return flat.reshape(x.shape)
