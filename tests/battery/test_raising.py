"""How bad it is that backward raises with a setting that forward accepts."""

import torch

import pullback as pb


class SumOfRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, keepdim=True):
        ctx.shape = x.shape
        return x.sum(-1, keepdim=keepdim)

    @staticmethod
    def backward(ctx, dy):
        return dy.expand(ctx.shape), None


class EverySecond(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, stride):
        ctx.shape = x.shape
        return x[..., ::stride].clone()

    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_zeros(ctx.shape)
        grad[..., ::2] = dy
        return grad, None


def raised(report):
    return {(f.code, f.severity, f.message.split(" raises ")[1]) for f in report.findings if " raises with " in f.message}


def x():
    return torch.linspace(-1.0, 2.0, 21, dtype=torch.float64).reshape(3, 7).requires_grad_()


def test_a_flag_left_at_its_default_is_a_warning():
    report = pb.check(SumOfRows, x(), select=["PB501"])
    assert raised(report) == {("PB501", "warning", "with keepdim=False, which forward accepts")}


def test_a_flag_that_is_passed_is_an_error():
    report = pb.check(SumOfRows, (x(), True), select=["PB501"])
    assert raised(report) == {("PB501", "error", "with keepdim=False, which forward accepts")}


def test_it_is_a_note_where_the_inputs_were_searched():
    assert {severity for _, severity, _ in raised(pb.check(SumOfRows, select=["PB501"]))} == {"note"}


def test_a_number_is_a_warning_and_says_which():
    report = pb.check(EverySecond, (x(), 2), select=["PB502"])
    assert raised(report) == {("PB502", "warning", "with stride=3, which forward accepts")}


class Root(torch.autograd.Function):
    """Divides by its scale, which backward inverts: at 0 there is nothing to invert, and forward has no result either."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x / scale

    @staticmethod
    def backward(ctx, dy):
        return dy * (1 / ctx.scale), None


def test_where_forward_has_no_finite_result_nothing_is_claimed():
    assert not raised(pb.check(Root, (x(), 0.5), select=["PB502"]))
