"""A loop over blocks: tanh of four rows at a time."""

import torch

ROWS = 4


class Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.cat([torch.tanh(block) for block in x.split(ROWS)]) if len(x) else torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        grad = torch.zeros_like(y)
        for start in range(0, len(y), ROWS):
            rows = slice(start, start + ROWS)
            grad[rows] = dy[rows] * (1 - y[rows] ** 2)
        return grad


def inputs():
    return (torch.randn(8, 3, dtype=torch.float64, requires_grad=True),)


FAULTS = [
    ("last block", None, "range(0, len(y), ROWS)", "range(0, len(y) - ROWS + 1, ROWS)"),
    ("first block only", "partial-rows", "range(0, len(y), ROWS)", "range(0, ROWS, ROWS)"),
    ("first block skipped", "partial-rows", "range(0, len(y), ROWS)", "range(ROWS, len(y), ROWS)"),
    ("off by one", "partial-rows", "slice(start, start + ROWS)", "slice(start, start + ROWS - 1)"),
    ("dropped factor", "missing-factor", "dy[rows] * (1 - y[rows] ** 2)", "dy[rows]"),
    ("dropped factor", "missing-factor", "1 - y[rows] ** 2", "1 - y[rows]"),
    ("wrong block", None, "dy[rows] * (1 - y[rows] ** 2)", "dy[:ROWS][: len(y[rows])] * (1 - y[rows] ** 2)"),
]
WRAPPED = ["clipped cotangent", "strides ignored", "written grad_output", "second backward", "low precision inside"]
