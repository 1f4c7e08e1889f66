"""Convolution with a bias."""

import torch
import torch.nn.functional as F


class Conv1d(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return F.conv1d(x, w, b, padding=1)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dx = F.conv_transpose1d(dy, w, padding=1)
        dw = torch.nn.grad.conv1d_weight(x, w.shape, dy, padding=1)
        return dx, dw, dy.sum((0, 2))


def inputs():
    return (
        torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True),
        torch.randn(4, 3, 3, dtype=torch.float64, requires_grad=True),
        torch.randn(4, dtype=torch.float64, requires_grad=True),
    )


FAULTS = [
    ("kernel not flipped", "wrong-operand", "F.conv_transpose1d(dy, w, padding=1)", "F.conv_transpose1d(dy, w.flip(2), padding=1)"),
    (
        "kernel flipped",
        "permuted-gradient",
        "torch.nn.grad.conv1d_weight(x, w.shape, dy, padding=1)",
        "torch.nn.grad.conv1d_weight(x, w.shape, dy, padding=1).flip(2)",
    ),
    ("wrong reduction", "mean-for-sum", "dy.sum((0, 2))", "dy.mean((0, 2))"),
    ("wrong reduction", "partial-rows", "dy.sum((0, 2))", "dy.sum((0, 2)) * (torch.arange(4) < 3)"),
    ("wrong reduction", "partial-rows", "dy.sum((0, 2))", "dy[0].sum(1)"),
    ("off by one", "permuted-gradient", "F.conv_transpose1d(dy, w, padding=1)", "F.conv_transpose1d(dy, w, padding=1).roll(1, 2)"),
]
WRAPPED = ["wrong when frozen", "strides ignored", "doubled", "flipped", "written grad_output"]
