"""Complex: z² · conj(w)."""

import torch


class ComplexProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, w):
        ctx.save_for_backward(z, w)
        return z * z * w.conj()

    @staticmethod
    def backward(ctx, dy):
        z, w = ctx.saved_tensors
        return dy * (2 * z).conj() * w, dy.conj() * z * z


def inputs():
    return tuple(torch.randn(4, dtype=torch.complex128, requires_grad=True) for _ in "zw")


FAULTS = [
    ("missing conjugate", "missing-conjugate", "dy * (2 * z).conj() * w", "dy * (2 * z) * w.conj()"),
    ("missing conjugate", "missing-conjugate", "(2 * z).conj()", "(2 * z)"),
    ("missing conjugate", "missing-conjugate", "dy.conj() * z * z", "dy * z * z"),
    ("dropped factor", "constant-factor", "2 * z", "z"),
    ("dropped factor", "missing-factor", "dy.conj() * z * z", "dy.conj() * z"),
    ("wrong part", None, "dy.conj() * z * z", "(dy.conj() * z * z).real.to(z.dtype)"),
]
WRAPPED = ["swapped gradients", "sign", "wrong when frozen", "inputs' strides ignored"]
