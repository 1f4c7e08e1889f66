"""Calls of forward and backward are seen as they are made, and the classes are restored."""

import torch

from pullback.capture.observed_calls import observed_backward, observed_forward


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, dy):
        return dy.mul_(ctx.factor), None


class Adds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(ctx, dy):
        return dy, dy


class Inherits(Scale):
    pass


class SetUp(torch.autograd.Function):
    @staticmethod
    def forward(x, factor=2.0):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.factor, None


def test_forward_arguments_results_and_dirty_tensors():
    x, y = torch.ones(2, requires_grad=True) * 1, torch.ones(2)
    with observed_forward(Adds, SetUp) as calls:
        Adds.apply(x, y)
        SetUp.apply(y)
    first, second = calls
    assert first.arguments == (x, y)
    assert first.returned is first.dirty[0] is x
    assert second.arguments[0] is y
    assert second.outputs[0].tolist() == [2.0, 2.0]


def test_backward_keeps_what_arrived():
    x = torch.ones(2, requires_grad=True)
    with observed_backward(Scale) as calls:
        Scale.apply(x, 3.0).backward(torch.ones(2))
    (call,) = calls
    assert call.received[0].tolist() == [1.0, 1.0]
    assert call.grad_outputs[0].tolist() == [3.0, 3.0]
    assert len(call.gradients) == 2


def test_classes_are_restored():
    with observed_forward(Inherits), observed_backward(Inherits):
        assert "forward" in vars(Inherits)
    assert not {"forward", "backward"} & set(vars(Inherits))
