"""Where the reader's own code stands: the frame that called torch, not one inside of it."""

from __future__ import annotations

import ast
import functools
import linecache
import os
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any

import torch

from .. import _compat
from ..capture.calls import relative_path
from ..report.clean import clean
from ..report.finding import Location


def place_of(frame: FrameType | None) -> Location | None:
    """Return where a frame stands."""
    return location(frame.f_code.co_filename, frame.f_lineno) if frame is not None else None


def location(path: str, line: int) -> Location:
    """Return a place, its path relative to the working directory where it lies inside it."""
    return Location(relative_path(path), line)


def code_at(place: Location | None) -> str:
    """Return the line of source that stands at a place; empty where it cannot be read."""
    return clean(linecache.getline(os.path.abspath(place.path), place.line).strip(), limit=120) if place is not None else ""


def entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    """Yield the entries of a traceback, outermost first."""
    while trace is not None:
        yield trace
        trace = trace.tb_next


@functools.lru_cache(maxsize=64)
def tree_of(path: str) -> ast.Module | None:
    """Return the syntax tree of a file; None where it cannot be read."""
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return None


def expressions_at(entry: TracebackType) -> list[ast.AST]:
    """Return the syntax nodes of the instruction at which a traceback's entry stands, the outermost first."""
    positions = list(entry.tb_frame.f_code.co_positions())
    at = entry.tb_lasti // 2
    tree = tree_of(entry.tb_frame.f_code.co_filename)
    if tree is None or at >= len(positions) or None in positions[at]:
        return []
    line, end_line, column, end_column = positions[at]
    span: Any = (line, column, end_line, end_column)
    return [node for node in ast.walk(tree) if hasattr(node, "lineno") and _span(node)[:2] >= span[:2] and _span(node)[2:] <= span[2:]]


def statement_at(entry: TracebackType) -> ast.stmt | None:
    """Return the smallest statement around the instruction at which a traceback's entry stands."""
    positions = list(entry.tb_frame.f_code.co_positions())
    at = entry.tb_lasti // 2
    tree = tree_of(entry.tb_frame.f_code.co_filename)
    if tree is None or at >= len(positions) or None in positions[at]:
        return None
    line, end_line, column, end_column = positions[at]
    begin: Any = (line, column)
    end: Any = (end_line, end_column)
    around = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and _span(n)[:2] <= begin and _span(n)[2:] >= end]
    return around[-1] if around else None


def owner_text(node: ast.AST) -> str:
    """Return an expression as it reads before a dot: in parentheses, where it needs them."""
    plain = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return text_of(node) if plain else f"({text_of(node)})"


def _span(node: Any) -> tuple[int, int, int, int]:
    return (node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def value_of(node: ast.AST, frame: FrameType) -> Any:
    """Return what a name or an attribute of names stands for in a frame, nothing being called.

    Raises:
        LookupError: where it stands for nothing, or is any other expression.
    """
    if isinstance(node, ast.Name):
        for scope in (frame.f_locals, frame.f_globals):
            if node.id in scope:
                return scope[node.id]
    if isinstance(node, ast.Attribute):
        owner = value_of(node.value, frame)
        if isinstance(owner, torch.Tensor) or node.attr in getattr(owner, "__dict__", {}):
            return getattr(owner, node.attr)
        if isinstance(owner, torch.nn.Module):
            return _of_module(owner, node.attr)
    raise LookupError(ast.dump(node))


def _of_module(module: torch.nn.Module, name: str) -> Any:
    for kept in (module._parameters, module._buffers, module._modules):
        if name in kept:
            return kept[name]
    raise LookupError(name)


def text_of(node: ast.AST) -> str:
    """Return an expression as the reader wrote it, on one line."""
    return clean(ast.unparse(node), limit=60)


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are one, or stand for the same elements."""
    if a is b or a.shape != b.shape or a.layout != torch.strided or b.layout != torch.strided:
        return a is b
    try:
        return a.numel() > 0 and (a.data_ptr(), a.stride(), a.dtype) == (b.data_ptr(), b.stride(), b.dtype)
    except RuntimeError:
        return False


def name_of_tensor(tensor: torch.Tensor, frames: Iterable[FrameType]) -> str:
    """Return the name under which the reader's frames know a tensor: ``"hidden"``, ``"model.fc.weight"``; empty where they do not."""
    for frame in frames:
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, torch.Tensor) and _is_same(value, tensor):
                return clean(name, limit=60)
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, torch.nn.Module):
                for inner, parameter in (*value.named_parameters(), *value.named_buffers()):
                    if _is_same(parameter, tensor):
                        return clean(f"{name}.{inner}", limit=80)
    return ""


def name_of_memory(tensor: torch.Tensor, frames: Iterable[FrameType]) -> str:
    """Return the name of a parameter or buffer that lies in the same memory as a tensor; empty where the reader's frames know none."""
    key = _compat.storage_id(tensor)
    for frame in frames:
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, torch.nn.Module):
                for inner, kept in (*value.named_parameters(), *value.named_buffers()):
                    if _compat.storage_id(kept) == key:
                        return clean(f"{name}.{inner}", limit=80)
    return ""
