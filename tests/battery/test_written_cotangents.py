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


class DoublesWhereAsked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, inplace: bool = False):
        ctx.inplace = inplace
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return (dy.mul_(2) if ctx.inplace else dy * 2), None


class WritesBoth(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x, 3 * x

    @staticmethod
    def backward(ctx, da, db):
        return da.mul_(2) + db.mul_(3)


def test_samples_with_the_flag_and_without_tell_it_once():
    (finding,) = pb.check(DoublesWhereAsked, select=["PB608"]).findings
    assert finding.severity == "error"


def test_only_under_a_flag_it_is_a_warning_that_names_it():
    (finding,) = pb.check(DoublesWhereAsked, torch.ones(3, requires_grad=True), select=["PB608"]).findings
    assert finding.severity == "warning"
    assert finding.cause.endswith(" with inplace=True")
    assert finding.evidence[0].text.endswith(" with inplace=True")


def test_all_outputs_are_told_in_one_finding():
    (finding,) = pb.check(WritesBoth, torch.ones(3, requires_grad=True), select=["PB608"]).findings
    assert ["output[0]" in finding.evidence[0].text, "output[1]" in finding.evidence[1].text] == [True, True]
