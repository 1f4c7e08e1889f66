"""Functions given by the caller: with parameters in any container, and nothing that needs a gradient hidden inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..._compat import transforms_active
from ...authoring.automatic import gradients_at
from ...authoring.structure import build, flatten
from .. import arguments

_transforms = transforms_active()


class Bound:
    """``f(x, *params)`` with the leaves of `params` as arguments, so that it can be differentiated in each of them."""

    def __init__(self, f: Callable[..., Any], params: tuple[Any, ...]) -> None:
        self.f = f
        self.leaves: list[Any] = []
        self.spec = flatten(params, self.leaves)

    def __call__(self, x: Tensor, *leaves: Any) -> Tensor:
        return self.f(x, *build(self.spec, leaves)) if leaves else self.f(x)

    def at(self, x: Tensor) -> Tensor:
        """The value at `x` with the parameters as given."""
        return self(x, *self.leaves)

    def detached(self) -> Bound:
        """The same with parameters that are constants."""
        made = Bound(self.f, ())
        made.spec, made.leaves = self.spec, [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        return made

    def pull(self, x: Tensor, cotangent: Tensor) -> Tensor:
        """The gradient of `x`; differentiable again in everything where grad mode is on."""
        (found,) = gradients_at(self, (x, *self.leaves), [0], cotangent)
        return torch.zeros_like(x) if found is None else found.to(x.dtype)

    def gradients(self, x: Tensor, cotangent: Tensor) -> tuple[Any, ...]:
        """The gradients of the parameters, in their structure."""
        live = [i + 1 for i, leaf in enumerate(self.leaves) if _differentiable(leaf)]
        grads: list[Any] = [None] * len(self.leaves)
        if live:
            for i, grad in zip(live, gradients_at(self, (x, *self.leaves), live, cotangent), strict=True):
                grads[i - 1] = grad
        return build(self.spec, grads) if grads else ()

    def transposed(self, x: Tensor) -> Callable[[Tensor], Tensor]:
        """The transposed derivative at `x` as a linear map, for many products without second derivatives."""
        if _transforms() or torch.compiler.is_compiling():
            return lambda v: self.pull(x, v)
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            out = self.detached().at(at)

        def product(v: Tensor) -> Tensor:
            if not out.requires_grad:
                return torch.zeros_like(x)
            (found,) = torch.autograd.grad(out, at, v.to(out.dtype), retain_graph=True, allow_unused=True)
            return torch.zeros_like(x) if found is None else found

        return product


def _differentiable(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def check_function(op: str, name: str, f: Any) -> None:
    """Refuse what cannot be called.

    Raises:
        TypeError: naming the argument.
    """
    if not callable(f):
        raise TypeError(f"{op}: {name} must be a function, got {type(f).__name__} {arguments.shown(f)}.")


def check_tolerance(op: str, tol: Any) -> None:
    """Refuse a tolerance that is neither None nor a number from 0.

    Raises:
        TypeError: for what is no number.
        ValueError: for a negative one.
    """
    if tol is not None:
        arguments.number(op, "tol", tol, low=0, kind="a number or None")


def evaluate(op: str, name: str, f: Bound, x: Tensor) -> Tensor:
    """Return ``f(x, *params)`` as a constant, having seen that it has x's shape and that no gradient would be lost.

    Raises:
        TypeError: if f returns no tensor.
        ValueError: if f returns another shape, or uses tensors that require grad and are not among the parameters.
    """
    asked = torch.is_grad_enabled() or any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in f.leaves)
    with torch.set_grad_enabled(asked and not _transforms()):
        value = f.detached().at(x.detach()) if not _transforms() else f.at(x)
    if not isinstance(value, Tensor):
        raise TypeError(f"{op}: {name} must return a tensor of the shape {list(x.shape)}, got {type(value).__name__}.")
    if value.shape != x.shape:
        raise ValueError(f"{op}: {name} must return a tensor of the shape {list(x.shape)}, as its first argument has, got {list(value.shape)}.")
    if value.requires_grad and not _transforms():
        raise ValueError(
            f"{op}: {name} uses tensors that require grad and are not among its arguments, so they would get no gradient. Pass them behind the "
            f"others, {op}(..., *params), which {name} then takes: {name}(x, *params). For a module, pass dict(module.named_parameters()) and let "
            f"{name} call torch.func.functional_call(module, params, (x,))."
        )
    return value.detach() if not _transforms() else value
