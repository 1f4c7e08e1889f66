"""Ops of many kinds with references in plain torch, for the tests of authoring."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from pullback.authoring.op import keep, op

Tensor = torch.Tensor


@op
def muladd(w, x, b):
    """w x + b, broadcasting."""
    return w * x + b


@muladd.vjp("w")
def _(dy, x):
    return dy * x


@muladd.vjp("x")
def _(dy, w):
    return dy * w


@muladd.vjp("b")
def _(dy):
    return dy


@op
def linear_gelu(x, weight, bias=None):
    z = F.linear(x, weight, bias)
    return keep(F.gelu(z, approximate="tanh"), z=z)


@linear_gelu.vjp("z")
def _(dy, z):
    return torch.ops.aten.gelu_backward(dy, z, approximate="tanh")


@linear_gelu.vjp("x", of="z")
def _(dz, weight):
    return dz @ weight


@linear_gelu.vjp("weight", of="z")
def _(dz, x):
    return dz.flatten(0, -2).T @ x.flatten(0, -2)


@linear_gelu.vjp("bias", of="z")
def _(dz):
    return dz.flatten(0, -2).sum(0)


@op(static=("size", "dim"))
def split(x, size: int, dim: int = 0):
    return x.narrow(dim, 0, size).clone(), x.narrow(dim, size, x.shape[dim] - size).clone()


@split.vjp("x")
def _(dys, dim):
    return torch.cat(dys, dim)


@op
def swish(x, beta=1.0):
    return x * torch.sigmoid(beta * x)


@swish.vjp("x")
def _(dy, x, beta):
    s = torch.sigmoid(beta * x)
    return dy * (s + beta * x * s * (1 - s))


@swish.vjp("beta")
def _(dy, x, beta):
    s = torch.sigmoid(beta * x)
    return dy * x * x * s * (1 - s)


@op(mutates=("x",))
def exp_scale_(x, s):
    return x.mul_(s).exp_()


@exp_scale_.vjp("x")
def _(dy, out, s):
    return dy * out * s


@exp_scale_.vjp("s")
def _(dy, out, s):
    return dy * out * out.log() / s


@op
def round_ste(x):
    return torch.round(x)


@round_ste.surrogate
def _(x):
    return x


@op
def spike(x, slope):
    return (x > 0).to(x.dtype)


@spike.surrogate
def _(x, slope):
    return torch.atan(slope * x)


@op
def complex_mul(a, b):
    return a * b


@complex_mul.vjp("a")
def _(dy, b):
    return dy * b.conj()


@complex_mul.vjp("b")
def _(dy, a):
    return dy * a.conj()


@op
def affine(x, params: dict[str, Tensor]):
    return x * params["scale"] + params["shift"]


@affine.vjp("x")
def _(dy, params):
    return dy * params["scale"]


@affine.vjp("params")
def _(dy, x, params):
    return {"scale": dy * x, "shift": dy}


@op
def noisy(x, scale):
    """No rules: recomputed, with the same noise."""
    return torch.tanh(x * scale) + torch.rand_like(x) * x


@op(opaque=True, elementwise=True)
def numpy_sin(x):
    import numpy

    return torch.from_numpy(numpy.sin(x.numpy()))


@numpy_sin.fake
def _(x):
    return torch.empty_like(x)


@numpy_sin.vjp("x")
def _(dy, x):
    return dy * numpy_cos(x)


@op(opaque=True, elementwise=True)
def numpy_cos(x):
    import numpy

    return torch.from_numpy(numpy.cos(x.numpy()))


@numpy_cos.fake
def _(x):
    return torch.empty_like(x)


@numpy_cos.vjp("x")
def _(dy, x):
    return -dy * numpy_sin(x)


_C_SOURCE = "void cumsum(const double *x, double *y, long n) { double s = 0; for (long i = 0; i < n; i++) { s += x[i]; y[i] = s; } }"
_library: list[Any] = []


def c_library() -> Any:
    if not _library:
        folder = Path(tempfile.mkdtemp())
        (folder / "cumsum.c").write_text(_C_SOURCE)
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(folder / "cumsum.so"), str(folder / "cumsum.c")], check=True)
        _library.append(ctypes.CDLL(str(folder / "cumsum.so")))
    return _library[0]


HAVE_C = shutil.which("gcc") is not None


@op(opaque=True, linear=("x",))
def c_cumsum(x):
    """Cumulative sum of a vector by a C kernel."""
    x = x.contiguous()
    y = torch.empty_like(x)
    c_library().cumsum(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
    return y


@c_cumsum.fake
def _(x):
    return torch.empty_like(x)


@c_cumsum.vjp("x")
def _(dy):
    return c_cumsum(dy.flip(0)).flip(0)


@op(elementwise=True)
def softplus(x):
    return torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)


@softplus.vjp("x")
def _(dy, x):
    return dy * torch.sigmoid(x)


@op(linear=("x", "y"), static=("t",))
def blend(x, y, t: float):
    return x * (1 - t) + y * t


@blend.vjp("x")
def _(dy, t):
    return dy * (1 - t)


@blend.vjp("y")
def _(dy, t):
    return dy * t


@op
def inverse(a):
    return torch.linalg.inv(a)


@inverse.vjp("a")
def _(dy, out):
    return -out.mT @ dy @ out.mT


@op(static=("dim",))
def top(x, dim: int = -1):
    values, indices = x.max(dim, keepdim=True)
    return values, indices


@top.vjp("x")
def _(dys, x, out, dim):
    dy = dys[0]
    return torch.zeros_like(x).scatter(dim, out[1], dy)


@op
def rms_norm(x):
    """Keeps a bare statistic, so its second derivative raises."""
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return keep(x * r, r=r)


@rms_norm.vjp("x")
def _(dy, x, r):
    return r * (dy - x * r * r * (dy * x).mean(-1, keepdim=True))


@op
def logsumexp(x):
    """A closed formula over a kept statistic that has a rule of its own."""
    m = x.amax(-1, keepdim=True)
    s = torch.exp(x - m)
    total = s.sum(-1, keepdim=True)
    lse = m + total.log()
    return keep(lse.squeeze(-1) ** 2, lse=lse)


@logsumexp.vjp("lse")
def _(dy, lse):
    return 2 * lse * dy.unsqueeze(-1)


@logsumexp.vjp("x", of="lse")
def _(dlse, x, lse):
    return dlse * torch.exp(x - lse)


@op
def product(a, b):
    """Both gradients by one rule."""
    return a @ b


@product.vjp("a", "b", keeps={"a": ("b",), "b": ("a",)})
def _(dy, a, b, wanted):
    return dy @ b.mT if wanted[0] else None, a.mT @ dy if wanted[1] else None


class Moments(NamedTuple):
    mean: Tensor
    var: Tensor


@op
def moments(x):
    mean = x.mean(-1)
    return Moments(mean, (x - mean.unsqueeze(-1)).pow(2).mean(-1))


@moments.vjp("x")
def _(dys, x):
    centred = x - x.mean(-1, keepdim=True)
    return (dys.mean.unsqueeze(-1) + 2 * centred * dys.var.unsqueeze(-1)) / x.shape[-1]


@op
def weighted_sum(*xs):
    total = xs[0] * 1.0
    for i, x in enumerate(xs[1:]):
        total = total + (i + 2) * x * x
    return total


@weighted_sum.vjp("xs")
def _(dy, xs):
    return (dy, *[2 * (i + 2) * dy * x for i, x in enumerate(xs[1:])])


@op(static=("power",))
def gather_pow(x, index, *, power: int = 2):
    """An integer tensor and a keyword-only number among the arguments."""
    return x[index].pow(power)


@gather_pow.vjp("x")
def _(dy, x, index, power):
    return torch.zeros_like(x).index_add(0, index, dy * power * x[index].pow(power - 1))


@dataclass(frozen=True)
class Entry:
    """An op, what it computes in plain torch, and arguments: those that are differentiated, and a call that adds the others."""

    op: Any
    reference: Callable[..., Any]
    inputs: Callable[[], tuple[Tensor, ...]]
    call: Callable[..., Any] = lambda f, *xs: f(*xs)
    orders: int = 2
    dtype_note: str = ""
    vmappable: bool = True


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype)


def _np_ref(x):
    return torch.sin(x)


def _inplace_reference(x, s):
    return x.mul_(s).exp_()


def _spike_reference(x, slope):
    soft = torch.atan(slope * x)
    return soft + ((x > 0).to(x.dtype) - soft).detach()


INDEX = torch.tensor([0, 2, 2])

ZOO: dict[str, Entry] = {
    "muladd (broadcasting)": Entry(muladd, lambda w, x, b: w * x + b, lambda: (normal(3, 1), normal(3, 4), normal(1))),
    "linear_gelu (of=)": Entry(
        linear_gelu,
        lambda x, weight, bias=None: F.gelu(F.linear(x, weight, bias), approximate="tanh"),
        lambda: (normal(2, 3), normal(4, 3), normal(4)),
    ),
    "linear_gelu, bias None": Entry(
        linear_gelu,
        lambda x, weight, bias=None: F.gelu(F.linear(x, weight, bias), approximate="tanh"),
        lambda: (normal(2, 3), normal(4, 3)),
        lambda f, x, w: f(x, weight=w, bias=None),
    ),
    "split (several outputs)": Entry(
        split,
        lambda x, size, dim=0: (x.narrow(dim, 0, size) * 1, x.narrow(dim, size, x.shape[dim] - size) * 1),
        lambda: (normal(2, 5),),
        lambda f, x: f(x, 2, dim=-1),
    ),
    "swish (tensor beta)": Entry(swish, lambda x, beta=1.0: x * torch.sigmoid(beta * x), lambda: (normal(3), normal(1))),
    "swish (number, keyword)": Entry(swish, lambda x, beta=1.0: x * torch.sigmoid(beta * x), lambda: (normal(3),), lambda f, x: f(x, beta=1.5)),
    "exp_scale_ (in-place)": Entry(exp_scale_, _inplace_reference, lambda: (normal(3), normal(1).abs() + 0.5), lambda f, x, s: f(x * 1.0, s)),
    "round_ste (surrogate)": Entry(round_ste, lambda x: x + (torch.round(x) - x).detach(), lambda: (normal(4),)),
    "spike (surrogate)": Entry(spike, _spike_reference, lambda: (normal(4), normal(1).abs())),
    "complex_mul (complex)": Entry(complex_mul, lambda a, b: a * b, lambda: (normal(3, dtype=torch.complex128), normal(3, dtype=torch.complex128))),
    "affine (container)": Entry(
        affine, lambda x, p: x * p["scale"] + p["shift"], lambda: (normal(3), normal(3), normal(3)), lambda f, x, a, b: f(x, {"scale": a, "shift": b})
    ),
    "noisy (random, no rules)": Entry(noisy, lambda x, scale: torch.tanh(x * scale) + torch.rand_like(x) * x, lambda: (normal(3), normal(3))),
    "numpy_sin (opaque, numpy)": Entry(numpy_sin, _np_ref, lambda: (normal(3),)),
    "c_cumsum (opaque, C, linear)": Entry(c_cumsum, lambda x: x.cumsum(0), lambda: (normal(4),)),
    "softplus (elementwise)": Entry(softplus, F.softplus, lambda: (normal(4),)),
    "blend (linear)": Entry(blend, lambda x, y, t: x * (1 - t) + y * t, lambda: (normal(3), normal(3)), lambda f, x, y: f(x, y, 0.3)),
    "inverse (matrix, out)": Entry(inverse, torch.linalg.inv, lambda: (normal(3, 3) + 3 * torch.eye(3, dtype=torch.float64),)),
    "top (integer output)": Entry(top, lambda x, dim=-1: tuple(x.max(dim, keepdim=True)), lambda: (normal(2, 4),)),
    "rms_norm (bare statistic)": Entry(
        rms_norm, lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), lambda: (normal(2, 4),), orders=1
    ),
    "logsumexp (statistic, of=)": Entry(logsumexp, lambda x: torch.logsumexp(x, -1) ** 2, lambda: (normal(2, 4),)),
    "product (joint rule)": Entry(product, lambda a, b: a @ b, lambda: (normal(2, 3), normal(3, 2))),
    "moments (named tuple)": Entry(moments, lambda x: Moments(x.mean(-1), x.var(-1, unbiased=False)), lambda: (normal(2, 4),)),
    "weighted_sum (*args)": Entry(
        weighted_sum, lambda *xs: sum(((i + 1) * x * x for i, x in enumerate(xs) if i), xs[0] * 1.0), lambda: (normal(3), normal(3), normal(3))
    ),
    "gather_pow (integer, keyword-only)": Entry(
        gather_pow, lambda x, index, *, power=2: x[index].pow(power), lambda: (normal(4),), lambda f, x: f(x, INDEX, power=3)
    ),
    "muladd, one tensor twice": Entry(muladd, lambda w, x, b: w * x + b, lambda: (normal(3),), lambda f, x: f(x, x, x)),
}
