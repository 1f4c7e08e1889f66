"""The derivative of softmax, and one-hot tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def softmax_vjp(dy: Tensor, p: Tensor, dim: int) -> Tensor:
    """Return the gradient of softmax's argument, given its output `p`."""
    if not torch.is_grad_enabled():
        return torch.ops.aten._softmax_backward_data(dy, p, dim, p.dtype)
    return p * (dy - (p * dy).sum(dim, keepdim=True))


def one_hot_of_greatest(x: Tensor, dim: int) -> Tensor:
    """Return 1 at the first greatest element along `dim` and 0 elsewhere."""
    if x.numel() == 0:
        return torch.zeros_like(x)
    return torch.zeros_like(x).scatter(dim, x.argmax(dim, keepdim=True), 1.0)
