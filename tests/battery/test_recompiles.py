"""What counts as compiled again: not the pieces of one call."""

import pytest
import torch

import pullback as pb


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


def in_pieces(x):
    x = Twice.apply(x)
    torch._dynamo.graph_break()
    x = Twice.apply(x.sin())
    torch._dynamo.graph_break()
    x = Twice.apply(x.sin())
    torch._dynamo.graph_break()
    return x.sin()


def recompiles(function):
    x = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(3, 2).requires_grad_()
    return pb.check(function, x, select=["PB707"], thorough=True).findings


@pytest.mark.slow
def test_a_call_in_pieces_is_compiled_once():
    assert [f.code for f in recompiles(in_pieces)] == []
