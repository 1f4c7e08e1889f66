import torch

import pullback as pb


class Gain(torch.autograd.Function):
    factor = 1.0

    @staticmethod
    def forward(ctx, x, gain):
        ctx.save_for_backward(x, gain)
        return x * gain

    @classmethod
    def gradients(cls, ctx, dy):
        x, gain = ctx.saved_tensors
        return dy * gain, cls.factor * (dy * x).sum(0)

    @staticmethod
    def backward(ctx, dy):
        return Gain.gradients(ctx, dy)


class OffByOnePercent(Gain):
    factor = 1.01

    @staticmethod
    def backward(ctx, dy):
        return OffByOnePercent.gradients(ctx, dy)


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.linear = torch.nn.Linear(4, 3, dtype=torch.float64)
        self.gain = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64))

    def forward(self, x):
        return self.function.apply(self.linear(x), self.gain)


def test_a_module_is_checked_with_its_parameters_and_left_as_it_was():
    torch.manual_seed(0)
    model = Model(OffByOnePercent)
    before = {name: (p.detach().clone(), p._version) for name, p in model.named_parameters()}
    report = pb.check(model, torch.randn(5, 4, dtype=torch.float64), select=["PB501"])
    (finding,) = report.findings
    assert finding.code == "PB501"
    assert finding.message == "OffByOnePercent.backward returns a wrong gradient for parameters['gain']"
    assert all(torch.equal(p, before[n][0]) and p._version == before[n][1] and p.grad is None for n, p in model.named_parameters())


def test_a_right_module_is_clean():
    assert pb.check(Model(Gain), torch.randn(5, 4, dtype=torch.float64)).ok
