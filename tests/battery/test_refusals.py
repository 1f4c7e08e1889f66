"""A raise in the checked code is a refusal; anything else is a crash."""

import pytest
import torch

import pullback as pb
from pullback.battery.evaluate import UserCodeError
from pullback.battery.refusals import blames_torch, refuses


def raises_itself():
    raise ValueError("at most 1024 columns")


def asserts():
    assert torch.zeros(2).is_complex()


def unbound():
    if torch.zeros(1).item():
        y = 1
    return y


def asks_torch():
    return torch.zeros(2) @ torch.zeros(3)


def out_of_memory():
    return torch.empty(2**60)


def error_of(function):
    try:
        function()
    except Exception as error:
        return UserCodeError("backward", error)
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "expected"), [(raises_itself, True), (asserts, True), (unbound, False), (asks_torch, False), (out_of_memory, True)]
)
def test_refuses(function, expected):
    assert refuses(error_of(function)) is expected


def test_blames_torch_only_for_nodes_of_its_own():
    text = "Function {} returned an invalid gradient at index 0 - got [0, 6] but expected shape compatible with [0, 4]"
    assert blames_torch(UserCodeError("backward", RuntimeError(text.format("PixelShuffleBackward0"))))
    assert not blames_torch(UserCodeError("backward", RuntimeError(text.format("MyScaleBackward"))))


class ToSparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0).to_sparse()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return (dy.to_dense() if dy.is_sparse else dy) * (x > 0)


def test_a_sparse_output_is_left_alone_and_checked_behind_to_dense():
    x = torch.linspace(-1, 2, 8, dtype=torch.float64).reshape(2, 4).requires_grad_()
    (finding,) = pb.check(ToSparse, x).findings
    assert (finding.code, finding.severity) == ("PB004", "note")
    assert "sparse" in finding.message
    report = pb.check(lambda x: ToSparse.apply(x).to_dense(), x)
    assert not [f for f in report.findings if f.severity != "note"], str(report)
