"""What is said of the value that backward takes at a kink."""

import torch

import pullback as pb


class Absolute(torch.autograd.Function):
    """At 0 the gradient is 0 up to the rounding of the values that it usually has."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (x.sign() + 2.0**-54)


class AbsoluteFromTheRight(Absolute):
    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.where(x < 0, -dy, dy)


def said(function):
    x = torch.tensor([0.5, -2.0, 1.0], dtype=torch.float64, requires_grad=True)
    return [f.message for f in pb.check(function, x, select=["PB502"]).findings]


def test_rounding_is_no_choice():
    assert not said(Absolute)


def test_a_choice_is_told():
    (message,) = said(AbsoluteFromTheRight)
    assert "takes another value than autograd for x at a kink" in message
