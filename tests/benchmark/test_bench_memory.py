"""Bytes are counted once, wherever they hide."""

import pytest
import torch
from torch.nn import functional as F

from pullback.benchmark.call import Call, Inputs
from pullback.benchmark.memory import flops, kept_and_moved, most, peak

N = 1000


class Hides(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.cache = {"mask": x > 0, "again": [x]}
        return x.relu()

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.cache["mask"]


class KeepsViewOfLarge(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.repeat(10)[: x.numel()])
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy


def prepared(fn, *args):
    tensors = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
    return Call.prepared("fn", fn, Inputs(tuple(a.requires_grad_() if any(a is t for t in tensors) else a for a in args), {}, "x", N))


@pytest.mark.parametrize(
    ("fn", "kept"),
    [
        (F.silu, 0),
        (torch.exp, 0),
        (lambda x: x * torch.sigmoid(x), 4 * N),
        (lambda x: (x + 1) * (x + 2), 8 * N),
        (Hides.apply, N),
        (KeepsViewOfLarge.apply, 40 * N),
    ],
)
def test_kept(fn, kept):
    assert kept_and_moved(prepared(fn, torch.randn(N)))[0] == kept


def test_moved_is_what_must_move():
    assert kept_and_moved(prepared(F.silu, torch.randn(N)))[1] == 20 * N
    assert kept_and_moved(prepared(torch.neg, torch.randn(N)))[1] == 16 * N


def test_frozen_weights_live_anyway():
    layer = torch.nn.Linear(8, 8, bias=False)
    layer.weight.requires_grad_(False)
    assert kept_and_moved(prepared(layer, torch.randn(5, 8)))[0] == 0
    weight = torch.randn(N)
    assert kept_and_moved(prepared(lambda x: x * weight, torch.randn(N)))[0] == 0


def test_parameters_are_differentiated():
    call = prepared(torch.nn.Linear(8, 4), torch.randn(5, 8))
    assert sorted(tuple(root.shape) for root in call.roots) == [(4,), (4, 8), (5, 8)]


@pytest.mark.parametrize(("fn", "bytes_an_element"), [(F.silu, 8), (lambda x: x * torch.sigmoid(x), 20), (torch.neg, 8)])
def test_peak(fn, bytes_an_element):
    call = prepared(fn, torch.randn(N))
    assert peak(call) == peak(call) == bytes_an_element * N


def test_peak_is_the_highest_level():
    assert most([4, 4, -4, 8, -12]) == 12
    assert most([-5]) == 0


def test_flops_of_products():
    assert flops(prepared(F.linear, torch.randn(4, 8), torch.randn(16, 8))) == 3 * 2 * 4 * 8 * 16
    assert flops(prepared(F.silu, torch.randn(N))) == 0


def test_integers_have_no_backward():
    call = prepared(torch.add, torch.arange(4), 1)
    assert not call.differentiable
    assert kept_and_moved(call) == (0, 64)
