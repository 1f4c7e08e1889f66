"""In place, marked dirty: x ← x + alpha · y²."""

import torch


class AddScaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, alpha):
        ctx.mark_dirty(x)
        ctx.save_for_backward(y)
        ctx.alpha = alpha
        return x.add_(y * y, alpha=alpha)

    @staticmethod
    def backward(ctx, dz):
        (y,) = ctx.saved_tensors
        return dz, 2 * ctx.alpha * dz * y, None


def inputs():
    return torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.randn(3, 4, dtype=torch.float64, requires_grad=True), 3.0


FAULTS = [
    ("missing dirty mark", None, "ctx.mark_dirty(x)", "None"),
    ("dropped factor", "scalar-derivative-missing", "2 * ctx.alpha * dz * y", "2 * dz * y"),
    ("dropped factor", "constant-factor", "2 * ctx.alpha * dz * y", "ctx.alpha * dz * y"),
    ("dropped factor", "missing-factor", "2 * ctx.alpha * dz * y", "2 * ctx.alpha * dz"),
    (
        "written grad_output",
        None,
        "2 * ctx.alpha * dz * y",
        "dz.mul_(2 * ctx.alpha * y)",
        "return (dz, dz.mul_(2 * ctx.alpha * y), None)",
        "return (dz.clone(), dz.mul_(2 * ctx.alpha * y), None)",
    ),
]
WRAPPED = ["swapped gradients", "wrong when frozen", "strides ignored", "squared cotangent", "moves the random state"]
