"""Checks of an op's arguments: each raises an error that names the op and the argument, and says what was got and expected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def floating(op: str, **tensors: Any) -> None:
    """Refuse an argument that is no dense floating tensor.

    Raises:
        TypeError: naming the argument.
    """
    for name, value in tensors.items():
        if not (isinstance(value, Tensor) and value.is_floating_point()) or value.is_sparse or value.is_sparse_csr:
            _refuse_unless_floating(op, name, value)


def _refuse_unless_floating(op: str, name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        hint = _HINTS.get(type(value).__name__, "").format(name=name)
        raise TypeError(f"{op}: {name} must be a floating tensor, got {type(value).__name__} {shown(value)}.{hint}")
    if value.is_complex():
        raise TypeError(f"{op}: {name} must be a floating tensor, got dtype {value.dtype}. Take {name}.real, {name}.abs() or both parts apart.")
    if not value.is_floating_point():
        raise TypeError(f"{op}: {name} must be a floating tensor, got dtype {value.dtype}. Convert it: {name}.float().")
    dense(op, name, value)


_HINTS: dict[str, str] = {
    **dict.fromkeys(("int", "float", "bool", "list", "tuple"), " Make it one: torch.tensor({name}, dtype=torch.float32)."),
    "ndarray": " Make it one: torch.from_numpy({name}).",
}


def dense(op: str, name: str, value: Tensor) -> None:
    """Refuse a sparse tensor.

    Raises:
        TypeError: showing its layout.
    """
    if value.is_sparse or value.is_sparse_csr:
        raise TypeError(f"{op}: {name} must be a dense tensor, got layout {value.layout}. Convert it: {name}.to_dense().")


def number(op: str, name: str, value: Any, low: float | None = None, high: float | None = None, kind: str = "a number") -> None:
    """Refuse what is no real number within ``[low, high]``; `kind` says what else the caller lets through.

    Raises:
        TypeError: for what is no number.
        ValueError: for one out of range.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if (low is not None and not value >= low) or (high is not None and not value <= high):
            raise ValueError(f"{op}: {name} must be {_range(low, high)}, got {value!r}.")
        return
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return
    raise TypeError(f"{op}: {name} must be {kind}, got {type(value).__name__} {shown(value)}.{_converted(name, value, 'float')}")


def scalar(op: str, name: str, value: Any, low: float | None = None, high: float | None = None) -> None:
    """Refuse what is neither a real number within ``[low, high]`` nor a real tensor with one element, whose value is not looked at.

    Raises:
        TypeError: for what is neither.
        ValueError: for a number out of range, or a tensor of another size.
    """
    if not isinstance(value, Tensor):
        number(op, name, value, low, high, kind="a number or a tensor with one element")
        return
    real(op, name, value)
    if value.numel() != 1:
        raise ValueError(f"{op}: {name} must be a number or a tensor with one element, got the shape {list(value.shape)}.")


def real(op: str, name: str, value: Tensor) -> None:
    """Refuse a complex tensor.

    Raises:
        TypeError: showing its dtype.
    """
    if value.is_complex():
        raise TypeError(f"{op}: {name} must be a number or a real tensor, got dtype {value.dtype}. Take {name}.real or {name}.abs().")


def flag(op: str, name: str, value: Any) -> None:
    """Refuse what is no bool.

    Raises:
        TypeError: naming the argument.
    """
    if not isinstance(value, (bool, torch.SymBool)):
        raise TypeError(f"{op}: {name} must be True or False, got {type(value).__name__} {shown(value)}.")


def integer(op: str, name: str, value: Any, low: int | None = None, high: int | None = None, kind: str = "an integer") -> None:
    """Refuse what is no integer within ``[low, high]``; `kind` says what else the caller lets through.

    Raises:
        TypeError: for what is no integer.
        ValueError: for one out of range.
    """
    if isinstance(value, torch.SymInt):
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{op}: {name} must be {kind}, got {type(value).__name__} {shown(value)}.{_converted(name, value, 'int')}")
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{op}: {name} must be {_range(low, high)}, got {value!r}.")


def choice(op: str, name: str, value: Any, *allowed: str) -> None:
    """Refuse what is not among the strings `allowed`.

    Raises:
        ValueError: naming what is allowed.
    """
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{op}: {name} must be one of {', '.join(map(repr, allowed))}, got {shown(value)}.")


def dimension(op: str, name: str, value: Any, x: Tensor) -> None:
    """Refuse a dimension that `x` does not have.

    Raises:
        TypeError: for what is no integer.
        IndexError: for one out of range.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{op}: {name} must be an integer, got {type(value).__name__} {shown(value)}.{_converted(name, value, 'int')}")
    if not -x.dim() <= value < x.dim():
        raise IndexError(f"{op}: {name} must be a dimension of a tensor of shape {list(x.shape)}, got {value}.")


def together(op: str, **tensors: Any) -> None:
    """Refuse tensors on several devices; a number in a tensor may stay on the CPU, and what is no tensor is let through.

    Raises:
        ValueError: naming two of them.
    """
    first = None
    for name, value in tensors.items():
        if not isinstance(value, Tensor) or (not value.dim() and value.device.type == "cpu"):
            continue
        if first is None:
            first = name, value.device
        elif value.device != first[1]:
            one, device = first
            got = f"{one} on {device} and {name} on {value.device}"
            raise ValueError(f"{op}: {one} and {name} must be on one device, got {got}. Move one of them: {name}.to({one}.device).")


def broadcasts(op: str, **tensors: Any) -> None:
    """Refuse tensors whose shapes do not broadcast together, or on several devices; numbers and None are let through.

    Raises:
        ValueError: naming the shapes, or the devices.
    """
    if _one_place(tensors.values()):
        return
    together(op, **tensors)
    shapes = {name: value.shape for name, value in tensors.items() if isinstance(value, Tensor)}
    first = next(iter(shapes.values()))
    if all(shape == first for shape in shapes.values()):  # a set of shapes would tie compiled code to their sizes
        return
    try:
        torch.broadcast_shapes(*shapes.values())
    except RuntimeError as error:
        listed = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise ValueError(f"{op}: the shapes do not broadcast together: {listed}.") from error


def _one_place(values: Iterable[Any]) -> bool:
    """Whether all are tensors of one shape on one device."""
    shape = device = None
    for value in values:
        if not isinstance(value, Tensor):
            return False
        if shape is None:
            shape, device = value.shape, value.device
        elif value.shape != shape or value.device != device:
            return False
    return True


def broadcasts_to(op: str, name: str, value: Tensor, x: Tensor) -> None:
    """Refuse a tensor that does not broadcast to x's shape, or lies on another device.

    Raises:
        ValueError: naming the shapes, or the devices.
    """
    together(op, x=x, **{name: value})
    aligned = zip(reversed(value.shape), reversed(x.shape), strict=False)
    if value.dim() > x.dim() or any(size not in (1, whole) for size, whole in aligned):
        raise ValueError(f"{op}: {name} must broadcast to the shape {list(x.shape)}, got the shape {list(value.shape)}.")


def shape(op: str, name: str, value: Tensor, *expected: int | str) -> None:
    """Refuse a tensor of another shape; a string in `expected` names a size that may be anything.

    Raises:
        ValueError: showing both.
    """
    fits = value.dim() == len(expected) and all(isinstance(want, str) or got == want for got, want in zip(value.shape, expected, strict=True))
    if not fits:
        raise ValueError(f"{op}: {name} must have the shape [{', '.join(map(str, expected))}], got {list(value.shape)}.")


def square_matrix(op: str, **tensors: Any) -> None:
    """Refuse what is no real or complex tensor of at least single precision and of shape ``[..., n, n]``.

    Raises:
        TypeError: for another type or dtype.
        ValueError: for another shape.
    """
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            hint = _HINTS.get(type(value).__name__, "").format(name=name)
            raise TypeError(f"{op}: {name} must be a tensor, got {type(value).__name__} {shown(value)}.{hint}")
        if value.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
            raise TypeError(f"{op}: {name} must be float32, float64, complex64 or complex128, got {value.dtype}. Convert it: {name}.float().")
        dense(op, name, value)
        if value.dim() < 2 or value.shape[-1] != value.shape[-2]:
            raise ValueError(f"{op}: {name} must have the shape [..., n, n], got {list(value.shape)}.")


def _converted(name: str, value: Any, to: str) -> str:
    """How to make a number of what nearly is one."""
    if isinstance(value, Tensor):
        return f" Take its value: {name}.item()." if value.numel() == 1 and not value.is_complex() else ""
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item")
    return f" Convert it: {to}({name})." if is_scalar else ""


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return f"at most {high}"
    return f"at least {low}" if high is None else f"from {low} to {high}"


def shown(value: Any) -> str:
    """A value in a few words, for a message."""
    text = f"of dtype {value.dtype} and shape {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."
