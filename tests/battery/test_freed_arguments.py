"""Reversible layers give back the memory of what they can rebuild; a check must not read it."""

import torch

import pullback as pb
from pullback.battery.tensors import copy_tensor, is_freed, same


class Scales(torch.autograd.Function):
    """Gives x back after forward, and rebuilds it in backward."""

    @staticmethod
    def forward(ctx, x, w):
        y = x.detach() * w.detach().exp()
        ctx.save_for_backward(y, w)
        ctx.size, ctx.given_back = x.untyped_storage().nbytes(), x
        x.untyped_storage().resize_(0)
        return y

    @staticmethod
    def backward(ctx, dy):
        y, w = ctx.saved_tensors
        with torch.no_grad():
            ctx.given_back.untyped_storage().resize_(ctx.size)
            ctx.given_back.set_(y / w.exp())
        return dy * w.exp(), (dy * y).sum(0)


def freed():
    x = torch.ones(3, 4)
    x.untyped_storage().resize_(0)
    return x


def test_what_was_given_back_is_not_read():
    assert is_freed(freed())
    assert not is_freed(torch.ones(3, 4)[1:, ::2])
    assert not is_freed(torch.ones(0, 4))
    assert same(freed(), freed())
    assert not same(freed(), torch.ones(3, 4))
    assert bool(torch.isnan(copy_tensor(freed())).all())


def test_a_call_that_gives_its_argument_back_is_checked():
    torch.manual_seed(0)
    x, w = torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.randn(4, dtype=torch.float64, requires_grad=True)
    report = pb.check(Scales, (x, w))
    severities = {f.code: f.severity for f in report.findings}
    assert severities["PB609"] == "note"
    assert not {"PB008", "PB501", "PB502", "PB614", "PB625"} & set(severities), str(report)
    assert bool(torch.isfinite(x).all())
