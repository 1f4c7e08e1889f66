import gc
import weakref

import pytest
import torch
from torch.autograd import forward_ad

import pullback as pb

stop_gradient, sample = pb.ops.stop_gradient, pb.sample


def test_against_reference(prove):
    skip = ("second_order", "autocast", "memory")  # they ask for a gradient, and there is no graph
    prove(stop_gradient, edges=[sample(torch.empty(0, 3).double()), sample(torch.tensor(0.5).double())], skip=skip)


def test_what_made_it_does_not_stay_alive():
    x = torch.ones(3, requires_grad=True)
    inner = x.exp()
    y = stop_gradient(inner.sin())
    assert not y.requires_grad
    held = weakref.ref(inner)
    del inner
    gc.collect()
    assert held() is None


def test_tangents_stop_too():
    x = torch.ones(3)
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(stop_gradient(forward_ad.make_dual(x, x))).tangent is None
    assert torch.func.jvp(lambda x: x * stop_gradient(x), (x,), (x,))[1].tolist() == [1.0] * 3


def test_integers_pass():
    assert stop_gradient(torch.arange(3)).tolist() == [0, 1, 2]


def test_check(passes_check):
    passes_check(stop_gradient)


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(stop_gradient, thorough=True)


def test_refuses():
    with pytest.raises(TypeError, match="stop_gradient: x must be a tensor, got float"):
        stop_gradient(1.5)
