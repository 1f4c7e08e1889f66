"""Linear algebra: log |det A| and a quadratic form in the inverse."""

import torch


class LogDet(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        inverse = torch.linalg.inv(a)
        ctx.save_for_backward(a, b)
        return torch.linalg.slogdet(a).logabsdet, inverse @ b

    @staticmethod
    def backward(ctx, dl, dx):
        a, b = ctx.saved_tensors
        inverse = torch.linalg.inv(a)
        u = inverse.mT @ dx
        da = dl * inverse.mT - torch.outer(u, inverse @ b)
        return da, u


def inputs():
    a = torch.randn(4, 4, dtype=torch.float64) + 4 * torch.eye(4, dtype=torch.float64)
    return a.requires_grad_(), torch.randn(4, dtype=torch.float64, requires_grad=True)


FAULTS = [
    ("missing transpose", None, "dl * inverse.mT", "dl * inverse"),
    ("missing transpose", "wrong-operand", "u = inverse.mT @ dx", "u = inverse @ dx"),
    ("sign", "sign", "dl * inverse.mT - torch.outer(u, inverse @ b)", "dl * inverse.mT + torch.outer(u, inverse @ b)"),
    ("swapped operands", None, "torch.outer(u, inverse @ b)", "torch.outer(inverse @ b, u)"),
    ("wrong operand", None, "torch.outer(u, inverse @ b)", "torch.outer(u, b)"),
    ("ignored output", "output-ignored", "dl * inverse.mT - torch.outer(u, inverse @ b)", "dl * inverse.mT"),
]
WRAPPED = ["wrong when frozen", "transposed", "strides ignored", "written grad_output", "stale gradient"]
