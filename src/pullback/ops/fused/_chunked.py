"""Loss and gradients of a linear layer under a cross-entropy, chunk by chunk of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _entropy as entropy
from . import _products as products
from ._eager import accurate, autocasts, eager, rows_of

CHUNK = {"cpu": 1 << 22}
LEAST = {"cpu": 256}
"""Elements of a chunk of logits, and the rows it has at least: fewer make slow matrix products."""
GPU_CHUNK, GPU_LEAST, COMPILED = 1 << 27, 1024, 8


def chunks(rows: int, classes: int, device: str) -> Iterator[slice]:
    """Yield slices of rows; a compiler unrolls them, and gets at most a few."""
    step = max(CHUNK.get(device, GPU_CHUNK) // max(1, classes), LEAST.get(device, GPU_LEAST))
    if torch.compiler.is_compiling():
        if rows <= step:
            yield slice(None)  # without a bound, which would tie compiled code to this number of rows
            return
        step = max(step, -(-rows // COMPILED))
    for start in range(0, max(rows, 1), step):
        yield slice(start, min(start + step, rows))


def cast(tensor: Tensor) -> Tensor:
    """`tensor` in the dtype in which autocast multiplies, once for all chunks; as it is without autocast."""
    if not autocasts(tensor) or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))


def loss(x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, options: entropy.Options) -> Tensor:
    """The reduced loss."""
    dtype = entropy.loss_dtype(x)
    w, b = cast(weight), None if bias is None else cast(bias)
    rows, flat = rows_of(cast(x)), target.reshape(-1)
    losses = (lambda *given: entropy.losses_now(*given)[0]) if eager(x, weight, bias) else entropy.losses
    each = [losses(products.linear(rows[c], w, b), flat[c], options) for c in chunks(rows.shape[0], w.shape[0], x.device.type)]
    return entropy.shaped(entropy.reduced(torch.cat(each), target, options), target, options).to(dtype)


def loss_and_gradients(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, options: entropy.Options, wanted: Sequence[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    """The reduced loss and its gradients, for a cotangent of 1; nobody may be recording."""
    one = torch.ones((), dtype=accurate(x), device=x.device)
    sums = Sums(x, weight, bias, wanted)
    flat = target.reshape(-1)
    scale = entropy.scales(one, target, options, one.dtype)
    each = []
    for c, logits in sums.chunks():
        rows, lse = entropy.losses_now(logits, flat[c], options)
        each.append(rows)
        sums.add(c, entropy.gradients_now(logits, flat[c], scale[c], options, lse, logits))
    return entropy.reduced(torch.cat(each), target, options).to(entropy.loss_dtype(x)), sums.found()


def gradients_now(
    dy: Tensor, x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, options: entropy.Options, wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients from logits computed again; nobody may be recording."""
    sums = Sums(x, weight, bias, wanted)
    flat = target.reshape(-1)
    scale = entropy.scales(dy, target, options, accurate(x))
    for c, logits in sums.chunks():
        lse = entropy.losses_now(logits, flat[c], options)[1] if entropy.has_kernel(logits, flat[c], options) else None
        sums.add(c, entropy.gradients_now(logits, flat[c], scale[c], options, lse, logits))
    return tuple(sums.found())


class Sums:
    """Gradients that grow with each chunk: dx row by row, dweight and dbias as sums, in float32 for half precision."""

    def __init__(self, x: Tensor, weight: Tensor, bias: Tensor | None, wanted: Sequence[bool]) -> None:
        self.given = (x, weight, bias)
        self.rows, self.weight, self.bias = rows_of(cast(x)), cast(weight), None if bias is None else cast(bias)
        wide = accurate(self.weight)
        self.x = torch.empty_like(self.rows, dtype=x.dtype, memory_format=torch.contiguous_format) if wanted[0] else None
        self.weights = torch.zeros_like(self.weight, dtype=wide, memory_format=torch.contiguous_format) if wanted[1] else None
        self.biases = torch.zeros(weight.shape[0], dtype=wide, device=weight.device) if wanted[2] else None

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield each chunk with its logits."""
        for c in chunks(self.rows.shape[0], self.weight.shape[0], self.rows.device.type):
            yield c, products.linear(self.rows[c], self.weight, self.bias)

    def add(self, c: slice, grad: Tensor) -> None:
        """Take in the gradient of a chunk's logits."""
        if self.biases is not None:
            self.biases += grad.sum(0, dtype=self.biases.dtype)
        if self.x is not None:
            self.x[c] = products.grad_x(grad, self.weight)
        if self.weights is None:
            return
        if self.weights.dtype == grad.dtype:
            self.weights.addmm_(grad.t(), self.rows[c])
        else:
            self.weights += grad.t() @ self.rows[c]

    def found(self) -> list[Tensor | None]:
        """The gradients of x, weight and bias, in their dtypes."""
        x, weight, bias = self.given
        grad_x = None if self.x is None else self.x.reshape(x.shape)
        grad_weight = None if self.weights is None else self.weights.to(weight.dtype)
        return [grad_x, grad_weight, None if self.biases is None or bias is None else self.biases.to(bias.dtype)]


def gradients(
    dy: Tensor, x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, options: entropy.Options, wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients as torch operations, to be differentiated, batched or compiled."""
    rows, flat = rows_of(x), target.reshape(-1)
    scale = entropy.scales(dy, target, options, accurate(x))
    xs, weights, biases = [], [], []
    for c in chunks(rows.shape[0], weight.shape[0], x.device.type):
        logits = F.linear(rows[c], weight, bias)
        grad = entropy.gradients(logits, flat[c], scale[c], options)
        biases.append(grad.sum(0))
        grad = grad.to(logits.dtype)
        xs.append(grad @ weight)
        weights.append((grad.t() @ rows[c]).to(accurate(weight)))
    grad_x = torch.cat(xs).reshape(x.shape).to(x.dtype) if wanted[0] else None
    grad_weight = sum(weights[1:], weights[0]).to(weight.dtype) if wanted[1] else None
    return grad_x, grad_weight, sum(biases[1:], biases[0]).to(weight.dtype) if wanted[2] else None
