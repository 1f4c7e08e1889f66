"""A backward that writes into grad_output is told so once: no later comparison runs on what it left there."""

import torch

import pullback as pb


class HalvesInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return (a + b) / 2

    @staticmethod
    def backward(ctx, dy):
        dy.div_(2)
        return dy, dy


def test_a_written_cotangent_is_one_finding():
    torch.manual_seed(0)
    a, b = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    report = pb.check(HalvesInPlace, (a, b))
    assert {f.code for f in report.findings if f.severity == "error"} == {"PB608"}, str(report)
