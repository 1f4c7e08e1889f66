"""The matrix of transforms and backends in the thorough tier."""

import pytest
import torch

import pullback as pb
from pullback.battery.check import Settings, run_case

MATRIX = Settings(thorough=True, select=frozenset({"PB706"}))


class Cubes(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return w * x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return 3 * dy * w * x**2, dy * x**3


class Once(Cubes):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return 3 * dy * w * x**2, dy * x**3


class OtherUnderVmap(Cubes):
    """Right by itself; its batching rule, which the compiler leaves out, is wrong."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x, w):
        return Cubes.apply(x, w) * 2, 0


def x(*shape):
    return torch.linspace(-1.3, 1.7, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape).requires_grad_()


@pytest.mark.slow
@pytest.mark.parametrize("function", [Cubes, Once])
def test_right_functions_are_clean(function):
    report = run_case(pb.case(function, x(3), x(3)), MATRIX)
    assert not report.findings
    assert [run.status for run in report.checks] == ["pass"]


@pytest.mark.slow
def test_what_torch_drops_is_charged_to_torch():
    (finding,) = run_case(pb.case(OtherUnderVmap, x(3), x(3)), MATRIX).findings
    assert (finding.code, finding.severity, finding.upstream) == ("PB706", "warning", "pytorch/pytorch#193279")
    assert "torch.vmap" in finding.message
    assert "by a fault of torch" in finding.message
    assert "allow_in_graph" in finding.fix
