"""PB102."""

from __future__ import annotations

from .pb101_grad_output_written import GradOutputWritten


class CollectiveOnGradOutput(GradOutputWritten):
    """backward runs an in-place collective on grad_output.

    Why it matters:
        `all_reduce` and `broadcast` overwrite their argument; the engine may still need the buffer for another consumer.

    How it is measured:
        Calls of torch.distributed's in-place collectives whose tensor is a gradient argument, followed through views, `contiguous` and helpers.

    Instead:
        Clone first, or use the functional collective.
    """

    code = "PB102"
    name = "collective-on-grad-output"
    severity = "error"
    bad = """
class CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        dist.all_reduce(grad_output)
        return grad_output
"""
    good = """
class CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        total = grad_output.clone()
        dist.all_reduce(total)
        return total
"""
    fixed = """
class CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        grad_output = grad_output.clone()
        dist.all_reduce(grad_output)
        return grad_output
"""
    collective = True
