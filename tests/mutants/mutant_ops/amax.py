"""A maximum per row, and where it is: an index output."""

import torch


class RowMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, index = x.max(1)
        ctx.save_for_backward(index)
        ctx.columns = x.shape[1]
        ctx.mark_non_differentiable(index)
        return values, index

    @staticmethod
    def backward(ctx, dy, _):
        (index,) = ctx.saved_tensors
        grad = dy.new_zeros(dy.shape[0], ctx.columns)
        return grad.scatter_(1, index[:, None], dy[:, None])


def inputs():
    return (torch.randn(4, 6, dtype=torch.float64, requires_grad=True),)


FAULTS = [
    ("off by one", "permuted-gradient", "index[:, None]", "(index[:, None] + 1) % ctx.columns"),
    ("spread over the row", None, "grad.scatter_(1, index[:, None], dy[:, None])", "dy[:, None].expand(-1, ctx.columns) / ctx.columns"),
    ("ignored cotangent", "ignores-cotangent", "dy[:, None]", "torch.ones_like(dy)[:, None]"),
    ("first row's index", None, "index[:, None]", "index[:1, None].expand(len(index), 1)"),
    ("wrong shape", None, "dy.new_zeros(dy.shape[0], ctx.columns)", "dy.new_zeros(dy.shape[0], ctx.columns + 1)"),
]
WRAPPED = ["doubled", "absolute cotangent", "partial rows", "moves the random state", "strides ignored"]
