"""Forward over reverse mode says nothing new where backward is wrong already."""

import torch

import pullback as pb


class Grows(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, rate):
        return torch.exp(rate * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.rate = inputs
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * y, None

    @staticmethod
    def jvp(ctx, dx, _):
        (y,) = ctx.saved_tensors
        return dx * ctx.rate * y


class GrowsRightly(Grows):
    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * ctx.rate * y, None


def loud(function):
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    report = pb.check(function, (x, 0.5), select=["PB501", "PB507", "PB702"])
    return {f.code for f in report.findings if f.severity != "note"}


def test_a_wrong_backward_is_found_once():
    assert loud(Grows) == {"PB501"}
    assert not loud(GrowsRightly)
