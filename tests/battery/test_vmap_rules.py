"""What PB701 says of a vmap rule through which no gradient can be taken."""

import torch

import pullback as pb


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return dy * 2

    @staticmethod
    def vmap(info, in_dims, x):
        return Doubled.apply(x), in_dims[0]


class RuleUsesNumpy(Doubled):
    @staticmethod
    def vmap(info, in_dims, x):
        return torch.from_numpy(x.detach().numpy() * 2), in_dims[0]


class RuleLooksUp(Doubled):
    @staticmethod
    def vmap(info, in_dims, x):
        return x * {False: 2.0}[x.requires_grad], in_dims[0]


def run_of(target):
    x = torch.linspace(-1, 2, 4, dtype=torch.float64).requires_grad_()
    report = pb.check(target, x, select=["PB701"])
    assert not report.findings
    return report.checks[0]


def test_what_torch_func_refuses_is_said():
    run = run_of(RuleUsesNumpy)
    assert run.status == "pass"
    assert run.reason.startswith("the gradient through vmap was not compared: RuntimeError")


def test_another_error_of_the_rule_is_no_pass():
    run = run_of(RuleLooksUp)
    assert run.status == "skipped"
    assert run.reason.startswith("vmap raised KeyError")


def test_a_rule_that_calls_apply_passes():
    run = run_of(Doubled)
    assert (run.status, run.reason) == ("pass", "")
