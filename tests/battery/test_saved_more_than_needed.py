"""PB902 says only what a sample with frozen arguments shows."""

import torch

import pullback as pb


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.t(), x.t() @ dy


def test_a_frozen_argument_is_named_and_nothing_is_said_about_other_samples():
    x, w = torch.ones(3, 4, dtype=torch.float64), torch.rand(4, 2, dtype=torch.float64, requires_grad=True)
    (found,) = [f for f in pb.check(Product, (x, w), select=["PB902"]).findings if f.code == "PB902"]
    assert found.message == "Product keeps w for backward, which needs none of its values while x does not require grad"
    assert found.cause.startswith("no gradient depends on its values while x does not require grad")
    assert "reads only" not in found.cause
    assert "needs_input_grad" in found.fix


def test_nothing_is_said_where_both_ask():
    x, w = torch.ones(3, 4, dtype=torch.float64, requires_grad=True), torch.rand(4, 2, dtype=torch.float64, requires_grad=True)
    assert not pb.check(Product, (x, w), select=["PB902"]).findings


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.rand(4, 2, dtype=torch.float64))

    def forward(self, x):
        return Product.apply(x, self.w).relu()


def test_in_a_module_too_what_does_not_require_grad_is_named():
    report = pb.check(Layer(), torch.randn(3, 4, dtype=torch.float64))
    (found,) = [f for f in report.findings if f.code == "PB902"]
    assert found.message == "Product keeps w for backward, which needs none of its values while x does not require grad"
