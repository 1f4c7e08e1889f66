"""What torch's operations return: views and copies, dtypes, and where grad_output stops being a factor."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from . import torch_names as names
from .events import Call
from .iteration import Iteration
from .syntax import of_grad
from .values import UNKNOWN, Dtype, Ref, Value, derived

if TYPE_CHECKING:
    from .interpret import Interpreter


class Operations(Iteration):
    """The part of the interpreter that knows operations."""

    def computed(self: Interpreter, name: str, node: ast.expr, operands: tuple[Value, ...]) -> Value:  # type: ignore[misc]
        """Return the result of torch's operation `name`, as a function or a method."""
        first = operands[0] if operands else UNKNOWN
        if name == "matmul" and isinstance(node, ast.BinOp):
            result = self.fresh_tensor(derived(*operands, kind="tensor", dtype=first.dtype))
            self.emit(Call, node, name="matmul", arguments=operands, receiver=None, discarded=False, result=result)
            return result
        if name in names.PYTHON_RESULTS:
            return replace(derived(*operands), kind="other")
        if name in names.VIEWS:
            return replace(first.through("view"), kind="tensor")
        if name in names.MAYBE_COPIES:
            return replace(first.through("maybe"), kind="tensor")
        if name in names.CASTS:
            return self.fresh_tensor(replace(derived(*operands[:1]), kind="tensor", dtype=_cast(name, node, first)))
        if name in names.TUPLE_RESULTS:
            return replace(derived(*operands, kind="tensor"), container="tuple")
        if name in names.VIEW_SEQUENCES:
            return replace(first.through("view"), kind="tensor", container="tuple")
        if name in names.LIKE or name in names.FACTORIES:
            return self.fresh_tensor(Value(kind="tensor", dtype=_made_dtype(name, node, first)))
        dtype = (
            "int" if name in names.INTEGER_RESULTS else "float" if name in names.FLOAT_RESULTS else first.dtype if name in names.SAME_DTYPE else None
        )
        if dtype is None and name in names.SAME_DTYPE:
            dtype = next((o.dtype for o in operands if o.dtype == "float"), None)
        result = self.fresh_tensor(derived(*operands, kind="tensor", dtype=dtype))  # type: ignore[arg-type]
        if name == "clone" and first.has("grad", "is", "view", "maybe"):
            result = replace(result, refs=result.refs | {Ref("cloned", next(r.key for r in result.refs if r.root == "local"))})
        if name in names.PAIR_WITH_INDICES or (name in ("max", "min") and len(operands) > 1):
            result = replace(result, named="", container="tuple", items=(replace(result, dtype=first.dtype), replace(result, dtype="int")))
        bent = operands[:1] if name in ("pow", "float_power") else operands
        return self.bend(result, node) if name in names.NONLINEAR and any(of_grad(o) for o in bent) else result

    def fresh_tensor(self: Interpreter, value: Value) -> Value:  # type: ignore[misc]
        return value.tied(self.new_local()) if value.kind == "tensor" else value

    def bend(self: Interpreter, value: Value, node: ast.expr) -> Value:  # type: ignore[misc]
        """Mark a value as not linear in grad_output; the key tells where."""
        if not self.via:
            self.record.bends[node.lineno] = node
        site = self.site or node
        self.record.bends[site.lineno] = site  # type: ignore[attr-defined]
        return value.tied(Ref("nonlinear", site.lineno, "from"))  # type: ignore[attr-defined]


def _dtype_word(node: ast.expr | None) -> Dtype:
    word = node.attr if isinstance(node, ast.Attribute) else ""
    if word in ("int8", "int16", "int32", "int64", "long", "int", "uint8", "bool", "short"):
        return "int"
    return "float" if word in ("float32", "float64", "float16", "bfloat16", "float", "half", "double") else None


def _keyword(node: ast.expr, name: str) -> ast.expr | None:
    return next((k.value for k in node.keywords if k.arg == name), None) if isinstance(node, ast.Call) else None


def _cast(name: str, node: ast.expr, first: Value):
    if name in ("float", "half", "bfloat16", "double"):
        return "float"
    if name in ("int", "long", "bool"):
        return "int"
    if name in ("to", "type") and isinstance(node, ast.Call):
        candidates = [*node.args[:2], _keyword(node, "dtype")]
        words = [_dtype_word(c) for c in candidates]
        known = next((w for w in words if w), None)
        return known or (first.dtype if name == "to" and _keyword(node, "dtype") is None and len(node.args) < 1 else None)
    return first.dtype


def _made_dtype(name: str, node: ast.expr, first: Value):
    given = _keyword(node, "dtype")
    if given is not None:
        return _dtype_word(given)
    if name in ("randperm", "tril_indices", "triu_indices", "randint", "randint_like"):
        return "int"
    if name.endswith("_like") or name.startswith("new_"):
        return first.dtype
    return "float" if name in ("rand", "randn", "normal", "linspace") else None
