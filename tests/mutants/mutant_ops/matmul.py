"""Matrix product."""

import torch


class MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        da = dy @ b.mT if ctx.needs_input_grad[0] else None
        db = a.mT @ dy if ctx.needs_input_grad[1] else None
        return da, db


def inputs():
    return torch.randn(4, 4, dtype=torch.float64, requires_grad=True), torch.randn(4, 4, dtype=torch.float64, requires_grad=True)


FAULTS = [
    ("missing transpose", "wrong-operand", "dy @ b.mT", "dy @ b"),
    ("missing transpose", "wrong-operand", "a.mT @ dy", "a @ dy"),
    ("wrong order of a product", None, "a.mT @ dy", "dy @ a.mT"),
    ("missing transpose", "permuted-gradient", "a.mT @ dy", "(a.mT @ dy).mT"),
    ("wrong operand", "wrong-operand", "dy @ b.mT", "dy @ a.mT"),
    ("needs_input_grad of another input", None, "a.mT @ dy if ctx.needs_input_grad[1] else None", "a.mT @ dy if ctx.needs_input_grad[0] else None"),
    ("bypassed saved tensors", None, "ctx.save_for_backward(a, b)", "ctx.kept = (a, b)", "ctx.saved_tensors", "ctx.kept"),
]
WRAPPED = ["swapped gradients", "wrong when frozen", "strides ignored", "inputs' strides ignored", "flipped", "stale gradient"]
