"""Arguments that hold functions or layers: looped over, unpacked, taken by number, annotated or passed one by one."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

import pullback as pb
from pullback.battery.search import find_inputs


def again(forward):
    """Return the backward of a Function of `x` and something that is called."""

    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = forward(x, ctx.parts)
        return torch.autograd.grad(y, x, dy)[0], None

    return staticmethod(backward)


class Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, parts):
        ctx.parts = parts
        ctx.save_for_backward(x)
        return sum(part(x) for part in parts)

    backward = again(lambda x, parts: sum(part(x) for part in parts))


class Chains(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, steps):
        first, second = steps
        ctx.parts = steps
        ctx.save_for_backward(x)
        return second(first(x))

    backward = again(lambda x, steps: steps[1](steps[0](x)))


class TakesByNumber(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, pair):
        ctx.parts = pair
        ctx.save_for_backward(x)
        return pair[0](x) * pair[1](x)

    backward = again(lambda x, pair: pair[0](x) * pair[1](x))


class Weighs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weights, branches: Sequence[Callable[[torch.Tensor], torch.Tensor]]):
        ctx.branches = branches
        ctx.save_for_backward(x, weights)
        return sum(w * branch(x) for w, branch in zip(weights, branches, strict=False))

    @staticmethod
    def backward(ctx, dy):
        with torch.enable_grad():
            x, weights = (t.detach().requires_grad_() for t in ctx.saved_tensors)
            y = sum(w * branch(x) for w, branch in zip(weights, ctx.branches, strict=False))
        return (*torch.autograd.grad(y, (x, weights), dy), None)


class TakesTwo(torch.autograd.Function):
    """Its members are called with two tensors."""

    @staticmethod
    def forward(ctx, x, t, terms):
        ctx.terms = terms
        ctx.save_for_backward(x, t)
        return torch.stack([term(x, t) for _, term in enumerate(terms)])

    @staticmethod
    def backward(ctx, dy):
        with torch.enable_grad():
            x, t = (a.detach().requires_grad_() for a in ctx.saved_tensors)
            y = torch.stack([term(x, t) for term in ctx.terms])
        return (*torch.autograd.grad(y, (x, t), dy), None)


class Runs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *layers):
        ctx.layers = layers
        ctx.save_for_backward(x)
        for layer in layers:
            x = layer(x)
        return x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            y = x = x.detach().requires_grad_()
            for layer in ctx.layers:
                y = layer(y)
        return (torch.autograd.grad(y, x, dy)[0], *[None] * len(ctx.layers))


class Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, part: nn.Module):
        ctx.parts = part
        ctx.save_for_backward(x)
        return part(x)

    backward = again(lambda x, part: part(x))


class ReadsLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, inner):
        ctx.inner = inner
        return torch.nn.functional.linear(x, inner.weight, inner.bias)

    @staticmethod
    def backward(ctx, dy):
        return dy @ ctx.inner.weight, None


@pytest.mark.parametrize("function", [Sums, Chains, TakesByNumber, Weighs, TakesTwo])
def test_two_callables_that_differ_are_found_at_once(function):
    result = find_inputs(function, seconds=1e9)
    assert result.status == "found", result.last_error
    assert result.evaluations < 60
    members = result.cases[0].args[-1]
    assert isinstance(members, (list, tuple))
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)
    values = [member(*[x] * (2 if function is TakesTwo else 1)) for member in members]
    assert len(members) >= 2
    assert not torch.equal(values[0], values[1])
    assert len(result.cases[0].invented) == 1


def test_callables_passed_one_by_one():
    result = find_inputs(Runs, seconds=1e9)
    assert len(result.cases[0].args) == 3
    assert all(map(callable, result.cases[0].args[1:]))


@pytest.mark.parametrize("function", [Through, ReadsLayer])
def test_a_module_is_found(function):
    result = find_inputs(function, seconds=1e9)
    assert isinstance(result.cases[0].args[1], nn.Module)


class ChainsTheOtherWay(Chains):
    backward = again(lambda x, steps: steps[0](steps[1](x)))


def test_their_order_counts():
    assert not [f for f in pb.check(Chains, select=["PB501"]).findings if f.severity == "error"]
    (finding,) = pb.check(ChainsTheOtherWay, select=["PB501"]).findings
    assert finding.severity == "warning"
