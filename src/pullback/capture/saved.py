"""What a call of a Function keeps until its backward: saved tensors, and tensors on `ctx`, through containers, objects and closures."""

from __future__ import annotations

import ast
import functools
import types
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from .calls import Function, backward_of
from .library import as_written
from .source import syntax_of

DEPTH = 8
_OPAQUE = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, types.BuiltinFunctionType, torch.dtype, torch.device)


@dataclass(frozen=True, slots=True)
class Kept:
    """One tensor that lives until backward.

    Args:
        path: Where it hangs: ``"saved_tensors[0]"``, ``"ctx.cache['inv']"``.
        name: What the author calls it: ``"noise"`` for ``ctx.save_for_backward(noise)``, else the path.
        tensor: The tensor.
        saved: Whether save_for_backward keeps it, so that saved-tensor hooks and version checks see it.
    """

    path: str
    name: str
    tensor: Tensor
    saved: bool

    @property
    def attribute(self) -> str:
        """The name of the ctx attribute it hangs on; empty for saved tensors."""
        return "" if self.saved else self.path.removeprefix("ctx.").partition("[")[0].partition(".")[0].partition(" ")[0]


def kept_by(ctx: Any, function: type[Function]) -> list[Kept]:
    """Return every tensor that a Function's context keeps, saved ones first, each object once.

    Args:
        ctx: The context of a call whose forward has run; it is also the node of the graph.
        function: The class.

    Raises:
        RuntimeError: if the saved tensors are gone because backward ran.
    """
    found: list[Kept] = []
    tensors = tuple(ctx.saved_tensors)
    for i, (name, tensor) in enumerate(zip(saved_names(function, len(tensors)), tensors, strict=True)):
        if isinstance(tensor, Tensor):
            found.append(Kept(f"saved_tensors[{i}]", name, tensor, True))
    seen: set[int] = set()
    for attribute, value in vars(ctx).items():
        for path, tensor in reachable(value, f"ctx.{attribute}"):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                found.append(Kept(path, path, tensor, False))
    return found


def reachable(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield ``(path, tensor)`` for every tensor that can be reached from `value`, each once.

    Looks into containers, the attributes and slots of objects, attributes set on tensors, closures, default arguments, bound methods and partials.
    """
    yield from _reachable(value, path, {}, DEPTH)


def _reachable(value: Any, path: str, seen: dict[int, Any], depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, _OPAQUE) or id(value) in seen or depth == 0:
        return
    seen[id(value)] = value
    if isinstance(value, Tensor):
        yield path, value
    for child_path, child in _children(value, path):
        yield from _reachable(child, child_path, seen, depth - 1)


def _children(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"{path}[{key!r}]" if isinstance(key, (str, int)) else f"{path}[…]", item) for key, item in list(value.items()))
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"{path}[{i}]", item) for i, item in enumerate(list(value)))
    elif isinstance(value, functools.partial):
        yield from ((f"{path}.{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    elif isinstance(value, types.MethodType):
        yield f"{path}.__self__", value.__self__
        yield path, value.__func__
    elif isinstance(value, types.FunctionType):
        yield from closure_of(value, path)
    else:
        yield from _attributes(value, path)


def closure_of(function: types.FunctionType, path: str) -> Iterator[tuple[str, Any]]:
    """Yield what a Python function closes over and its default arguments, with readable paths."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"{path} (its closure's {name})", cell.cell_contents
        except ValueError:
            continue
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    yield from ((f"{path} (a default argument)", default) for default in defaults)


def _attributes(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    try:
        attributes = dict(vars(value))
    except TypeError:
        attributes = {}
    if isinstance(value, torch.nn.Module):
        for name in ("_parameters", "_buffers", "_modules"):
            attributes |= attributes.pop(name, {})
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and isinstance(slot, str):
                attributes.setdefault(slot, getattr(value, slot, None))
    yield from ((f"{path}.{name}", item) for name, item in attributes.items())


def storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Return the bytes of every memory block that `tensors` hold, by its id; a view holds its whole block."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        sizes[_compat.storage_id(tensor)] = storage_bytes(tensor)
    return sizes


def storage_bytes(tensor: Tensor) -> int:
    """Return the bytes of the memory that a tensor keeps alive; of a sparse one, of all its parts."""
    try:
        return tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):
        return sum(part.untyped_storage().nbytes() for part in _compat.parts_of(tensor)) or tensor.numel() * tensor.element_size()


def saved_names(function: type[Function], count: int) -> list[str]:
    """Return how the author writes each of `count` saved tensors, from the call of save_for_backward; ``saved_tensors[i]`` where it cannot tell."""
    calls = [args for args in _save_calls(function) if len(args) == count and not any(isinstance(a, ast.Starred) for a in args)]
    written = {tuple(_short(ast.unparse(_where_there(a)), i) for i, a in enumerate(args)) for args in calls}
    return list(written.pop()) if len(written) == 1 else [f"saved_tensors[{i}]" for i in range(count)]


def saves_wholesale(function: type[Function]) -> bool:
    """Return whether save_for_backward is called with a starred argument."""
    return any(isinstance(a, ast.Starred) for args in _save_calls(function) for a in args)


def read_in_branches(function: type[Function]) -> set[str]:
    """Return the paths of what backward reads in one branch of a condition, so that other arguments may need it.

    Methods of the class to which backward hands ctx are read too.
    """
    function = as_written(function)
    backward = syntax_of(backward_of(function))
    helpers = [syntax_of(getattr(function, name, None)) for name in _given_context(backward)] if backward is not None else []
    return {path for tree in (backward, *helpers) if tree is not None for path in _read_in_branches(tree)}


def _given_context(tree: ast.AST) -> set[str]:
    """Return the names of methods that are called, on the class, with ctx."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and isinstance(n.func.value, ast.Name)]
    return {c.func.attr for c in calls if isinstance(c.func, ast.Attribute) and any(isinstance(a, ast.Name) and a.id == "ctx" for a in c.args)}


def _read_in_branches(tree: ast.AST) -> set[str]:
    names = {name: f"saved_tensors[{i}]" for node in ast.walk(tree) for i, name in enumerate(_unpacked(node))}
    branches = [part for node in ast.walk(tree) for part in _branches(node)]
    inside = [node for part in branches for node in ast.walk(part)]
    plain = {names[n.id] for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in names}
    direct = {f"saved_tensors[{i}]" for n in inside if (i := _saved_index(n)) is not None}
    return plain | direct | {ast.unparse(n) for n in inside if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}


def _unpacked(node: ast.AST) -> list[str]:
    """Return the names that an assignment gives to what was saved, in its order; empty for those without one."""
    if not isinstance(node, ast.Assign):
        return []
    target, index = node.targets[0], _saved_index(node.value)
    if index is not None and isinstance(target, ast.Name):
        return [*[""] * index, target.id]
    if not _is_saved(node.value) or not isinstance(target, ast.Tuple):
        return []
    return [e.id if isinstance(e, ast.Name) else "" for e in target.elts]


def _saved_index(node: ast.AST) -> int | None:
    """Return i of ``ctx.saved_tensors[i]``."""
    if not isinstance(node, ast.Subscript) or not _is_saved(node.value) or not isinstance(node.slice, ast.Constant):
        return None
    return node.slice.value if isinstance(node.slice.value, int) else None


def _is_saved(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("saved_tensors", "saved_variables")


def _branches(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.If) and "needs_input_grad" not in ast.unparse(node.test):
        return [*node.body, *node.orelse]
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else []


def _where_there(argument: ast.expr) -> ast.expr:
    """Return `x` of ``x if … else None``."""
    optional = isinstance(argument, ast.IfExp) and isinstance(argument.orelse, ast.Constant) and argument.orelse.value is None
    return argument.body if optional else argument  # type: ignore[union-attr]


def _short(text: str, index: int) -> str:
    return text if len(text) <= 40 else f"saved_tensors[{index}]"


_SAVE_CALLS: weakref.WeakKeyDictionary[type, list[list[ast.expr]]] = weakref.WeakKeyDictionary()


def _save_calls(function: type[Function]) -> list[list[ast.expr]]:
    """Return the arguments of every call of save_for_backward in a Function's source; read once, since reading source is slow."""
    if function not in _SAVE_CALLS:
        _SAVE_CALLS[function] = list(_find_save_calls(function))
    return _SAVE_CALLS[function]


def _find_save_calls(function: type[Function]) -> Iterator[list[ast.expr]]:
    written = as_written(function)
    for method in (written.forward, written.setup_context):
        tree = syntax_of(method)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "save_for_backward":
                yield node.args
