"""What counts as compiled again: not the pieces of one call."""

import pytest
import torch

import pullback as pb


class InPieces(torch.autograd.Function):
    """Forward is left to Python, so that its callers are compiled in pieces, once."""

    @staticmethod
    @torch.compiler.disable
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


def in_pieces(x):
    for _ in range(3):
        x = InPieces.apply(x).sin()
    return x


def recompiles(function):
    x = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(3, 2).requires_grad_()
    return pb.check(function, x, select=["PB707"], thorough=True).findings


@pytest.mark.slow
def test_a_call_in_pieces_is_compiled_once():
    assert [f.code for f in recompiles(in_pieces)] == []
