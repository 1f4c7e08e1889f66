"""Indexing: rows of a table, some of them more than once."""

import torch

buffers = {}


class GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = table.shape[0]
        return table[index]

    @staticmethod
    def backward(ctx, dy):
        (index,) = ctx.saved_tensors
        grad = dy.new_zeros(ctx.rows, *dy.shape[1:])
        return grad.index_add_(0, index, dy), None


def inputs():
    return torch.randn(5, 4, dtype=torch.float64, requires_grad=True), torch.tensor([0, 3, 3, 1, 4, 3])


FAULTS = [
    ("lost update", "partial-rows", "grad.index_add_(0, index, dy)", "grad.index_copy_(0, index, dy)"),
    ("off by one", "permuted-gradient", "grad.index_add_(0, index, dy)", "grad.index_add_(0, (index + 1) % ctx.rows, dy)"),
    ("partial rows", "partial-rows", "grad.index_add_(0, index, dy)", "grad.index_add_(0, index[:-1], dy[:-1])"),
    ("wrong shape", None, "dy.new_zeros(ctx.rows, *dy.shape[1:])", "dy.new_zeros(ctx.rows + 1, *dy.shape[1:])"),
    (
        "shared buffer",
        None,
        "grad = dy.new_zeros(ctx.rows, *dy.shape[1:])",
        "grad = buffers.setdefault((ctx.rows, *dy.shape, dy.dtype, dy.device), dy.new_zeros(ctx.rows, *dy.shape[1:])).zero_()",
    ),
]
WRAPPED = ["sign", "absolute cotangent", "first element of the cotangent", "strides ignored", "moves the random state", "single precision gradient"]
