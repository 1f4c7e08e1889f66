"""Checking ops: declarations, samples, the place of a rule, and the flags from which forward mode follows."""

import inspect

import torch

import pullback as pb


@pb.op
def scaled(w, x):
    return w * x


@scaled.vjp("w")
def _(dy, x):
    return dy * x


@scaled.vjp("x")
def wrong_rule(dy, w):
    return dy * w * 1.01


@scaled.samples
def _():
    yield pb.sample(*(torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(2)))


@pb.op
def steps(x):
    return x.round()


@steps.surrogate
def _(x):
    return x


@pb.op
def clipped(x):
    return x * 1


@clipped.vjp("x", exact=False, linear=False, reason="clips the gradient")
def _(dy):
    return dy.clamp(-1, 1)


@pb.op(elementwise=True)
def running_sum(x):
    return x.cumsum(0)


@running_sum.vjp("x")
def _(dy):
    return dy.flip(0).cumsum(0).flip(0)


@pb.op(linear=("x",))
def square(x):
    return x * x


@square.vjp("x")
def _(dy, x):
    return 2 * x * dy


@pb.op(elementwise=True, linear=("x",))
def double(x):
    return 2 * x


@double.vjp("x")
def _(dy):
    return 2 * dy


def x():
    return torch.randn(5, dtype=torch.float64, requires_grad=True)


def loud(report):
    return {f.code for f in report.findings if f.severity != "note"}


def test_samples_are_used_and_the_finding_points_at_the_rule():
    report = pb.check(scaled)
    (finding,) = [f for f in report.findings if f.severity == "error"]
    lines, start = inspect.getsourcelines(wrong_rule)
    assert finding.code == "PB501"
    assert finding.message == "scaled.vjp[x] returns a wrong gradient for x"
    assert start <= finding.location.line < start + len(lines)
    assert finding.cause == "the gradient is 1.01 times what it should be"


def test_declarations_are_honoured():
    assert not loud(pb.check(steps, x()))
    assert not loud(pb.check(clipped, x()))


def test_flags_are_verified():
    for op, flag in ((running_sum, "elementwise=True"), (square, "linear=('x',)")):
        (finding,) = [f for f in pb.check(op, x()).findings if f.severity != "note"]
        assert finding.code == "PB507"
        assert finding.message == f"{op.__name__} is declared with {flag}, which its forward is not"
    assert not loud(pb.check(double, x()))
