"""What find_inputs returns for the commonest signatures."""

from __future__ import annotations

import pytest
import torch

from pullback.battery.search import find_inputs


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        ctx.save_for_backward(x)
        ctx.beta = beta
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * x)
        return dy * (s + ctx.beta * x * s * (1 - s)), None


class MissingGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return x * scale

    @staticmethod
    def backward(ctx, dy):
        return dy


class ReadsFile(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, path):
        with open(path) as lines:
            return x * float(lines.read())

    @staticmethod
    def backward(ctx, dy):
        return dy, None


class KeywordOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *, scale):
        return x * scale

    @staticmethod
    def backward(ctx, dy):
        return dy


class Stubborn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, knob):
        if not isinstance(knob, Swish):
            raise ValueError("knob is not what it should be")
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return dy, None


def test_found():
    result = find_inputs(Swish)
    assert result.status == "found"
    assert result.call == "Swish.apply(x=float64[3, 4], beta=0.7)"
    first, second = result.cases[:2]
    assert first.target is Swish
    assert (first.origin, first.index, second.index) == ("searched", 0, 1)
    assert first.args[0].requires_grad
    assert first.args[0].dtype == torch.float64
    assert first.args[0].shape != second.args[0].shape
    assert first.args[1] == 0.7


def test_skeleton_can_be_pasted():
    result = find_inputs(Swish)
    namespace = {"Swish": Swish}
    exec(result.skeleton, namespace)
    (case,) = namespace["pullback_cases"]()
    assert case.target is Swish
    assert case.args[0].shape == (3, 4)


def test_fault_of_backward_is_unsure_and_proved():
    result = find_inputs(MissingGradient)
    assert result.status == "unsure"
    assert result.cases == ()
    assert result.attempted is not None
    assert "proved" in result.flags
    assert "incorrect number of gradients" in result.last_error


def test_nothing_is_invented_for_a_path():
    result = find_inputs(ReadsFile)
    assert result.status == "skipped"
    assert "`path`" in result.reason
    assert result.evaluations == 0
    assert "pb.case(ReadsFile" in result.skeleton


def test_keyword_only_parameters_are_refused():
    assert "by keyword only" in find_inputs(KeywordOnly).reason


def test_nothing_found_names_the_parameter_and_gives_a_skeleton():
    result = find_inputs(Stubborn, evaluations=60)
    assert result.status == "skipped"
    assert result.blamed == "knob"
    assert "knob is not what it should be" in result.last_error
    assert "change `knob`" in result.skeleton
    assert result.evaluations <= 60


def test_only_functions_are_taken():
    with pytest.raises(TypeError, match=r"autograd\.Function"):
        find_inputs(torch.nn.Linear)  # type: ignore[arg-type]
