"""Fixed points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ...authoring.op import Sample, op, sample
from .. import arguments
from . import _solvers
from ._functions import Bound, check_function, check_tolerance, evaluate
from .solve import solve


def fixed_point_reference(
    f: Callable[..., Tensor], z0: Tensor, *params: Any, tol: float | None = None, max_iter: int = 1000, memory: int = 5
) -> Tensor:
    """The same by plain iteration, unrolled: autograd goes through every step."""
    z = z0.detach()
    for _ in range(200):
        z = f(z, *params)
    return z


@op(reference=fixed_point_reference, static=("f", "z0", "tol", "max_iter", "memory"), autocast="inputs")
def fixed_point(f: Callable[..., Tensor], z0: Tensor, *params: Any, tol: float | None = None, max_iter: int = 1000, memory: int = 5) -> Tensor:
    """Return z with ``f(z, *params) = z``, found by accelerated iteration and differentiated implicitly.

    Math:
        z = f(z, p) gives (I - J) dz = (df/dp) dp with J = df/dz. So with u = (I - J^H)^-1 dz, one linear solution by GMRES with f's vjp,
        the cotangent of p is u^H df/dp, one more vjp: no step of the iteration is kept or differentiated.

    Args:
        f: Function ``(z, *params)`` that returns a tensor of z's shape.
        z0: Where to begin, floating, any shape. It is not differentiated: the fixed point does not depend on it.
        *params: What `f` depends on: tensors, or containers of them, such as ``dict(module.named_parameters())``.
        tol: Largest ``||f(z) - z||`` relative to ``||f(z)||``, and residual of the linear solution; None for four fifths of the
            digits, and further while a step halves the former.
        max_iter: Most calls of `f`, and most products in backward.
        memory: How many past steps Anderson acceleration mixes; 0 for plain iteration.

    Returns:
        A tensor of z0's shape and dtype.

    Saves:
        `params`: nothing beyond the arguments and the output, however many iterations it takes.

    Supports:
        float64, float32; bfloat16 and float16 with the few digits that they have; CPU and CUDA; derivatives of any order, torch.func (vmap iterates
        all examples together), forward mode, autocast (`f` runs in the precision of the arguments). torch.compile runs it eagerly.

    Raises:
        TypeError: for a `z0` that is no floating tensor, a number that is none, or an `f` that is no function or returns no tensor.
        ValueError: for a number out of range, or an `f` that returns another shape or uses tensors that require grad and are not among `params`.
        RuntimeError: where the iteration or the linear solution does not come down to `tol`.

    Example:
        >>> import torch, pullback as pb
        >>> a = torch.tensor(2.0, requires_grad=True)
        >>> z = pb.ops.fixed_point(lambda z, a: (z + a / z) / 2, torch.tensor(1.0), a)
        >>> z.backward()
        >>> z.detach(), a.grad
        (tensor(1.4142), tensor(0.3536))

    References:
        Bai, Kolter and Koltun, Deep equilibrium models, 2019, arXiv:1909.01377, theorem 1; Walker and Ni, Anderson acceleration for fixed-point
        iterations, 2011, DOI 10.1137/10078356X.
    """
    _check(f, z0, tol, max_iter, memory)
    bound = Bound(f, params)
    evaluate("fixed_point", "f", bound, z0)
    if z0.numel() == 0:
        return torch.zeros_like(z0)
    with torch.no_grad():
        image = bound.detached().at
        z = _solvers.anderson(lambda z: image(z.reshape(z0.shape)).reshape(-1), z0.detach().reshape(-1), tol, max_iter, memory)
    return z.reshape(z0.shape)


@fixed_point.vjp("params")
def _(dz, out, f, params, tol, max_iter):
    u = solve(Adjoint(f), dz, out, *params, tol=tol, max_iter=max_iter)
    return Bound(f, params).gradients(out, u)


@fixed_point.samples
def _() -> Iterator[Sample]:
    z0 = torch.zeros(3, dtype=torch.float64)
    weight = torch.tensor([[0.3, -0.2, 0.1], [0.0, 0.4, -0.3], [0.2, 0.1, -0.1]], dtype=torch.float64)
    yield sample(layer, z0, weight, torch.linspace(-0.5, 1.0, 3, dtype=torch.float64))
    yield sample(layer, z0.expand(2, 3), weight, torch.linspace(-0.5, 1.0, 6, dtype=torch.float64).reshape(2, 3))


class Adjoint:
    """The map ``u -> u - J^H u`` at a point, for the derivative J of `f` there; as a function of the point and the parameters too."""

    def __init__(self, f: Callable[..., Tensor]) -> None:
        self.f = f

    def __call__(self, u: Tensor, z: Tensor, *params: Any) -> Tensor:
        return u - Bound(self.f, params).pull(z, u)

    def prepared(self, z: Tensor, *params: Any) -> Callable[[Tensor], Tensor]:
        product = Bound(self.f, params).transposed(z)
        return lambda u: u - product(u)


def _check(f: Any, z0: Any, tol: Any, max_iter: Any, memory: Any) -> None:
    check_function("fixed_point", "f", f)
    arguments.floating("fixed_point", z0=z0)
    check_tolerance("fixed_point", tol)
    arguments.integer("fixed_point", "max_iter", max_iter, low=1)
    arguments.integer("fixed_point", "memory", memory, low=0)


def layer(z: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    """A layer whose fixed point is taken: a contraction for small weights."""
    return torch.tanh(z @ weight + x)
