"""A certain cause comes with the line of backward as it should be, and that line is right."""

import importlib.util

import pytest
import torch

import pullback as pb

SOURCE = """
import torch


class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, {arguments}):
        ctx.save_for_backward({tensors})
        {kept}
        return {forward}

    @staticmethod
    def backward(ctx, dy):
        {tensors}, = ctx.saved_tensors
        return {backward}
"""
KEPT = {"x, a": "ctx.a = a"}
LINES = [
    ("x", "torch.cos(x)", "dy * torch.sin(x)", "return -(dy * torch.sin(x))"),
    ("x", "x * x", "dy * x", "return dy * x * 2"),
    ("x", "(x * x).sum()", "2 * x", "return 2 * x * dy"),
    ("x", "x ** 3", "3 * x * dy", "return 3 * x * dy * x"),
    ("x", "x * x + x", "2 * x * dy", "return 2 * x * dy + dy"),
    ("x", "torch.sin(torch.exp(x))", "dy * torch.cos(torch.exp(x))", "return dy * torch.cos(torch.exp(x)) * torch.exp(x)"),
    ("x", "(x * x).mean()", "2 * x * dy", "return 2 * x * dy / x.numel()"),
    ("x, w", "x * w", "(dy * x, dy * w)", "return dy * w, dy * x"),
    ("x, w", "x * w", "(dy * w, -dy * x)", "return dy * w, -(-dy * x)"),
    ("x, a", "torch.exp(a * a * x)", "(dy * ctx.a * torch.exp(ctx.a ** 2 * x), None)", "return dy * ctx.a * torch.exp(ctx.a ** 2 * x) * ctx.a, None"),
]


def load(path, arguments, forward, backward):
    tensors = arguments.removesuffix(", a")
    path.write_text(SOURCE.format(arguments=arguments, tensors=tensors, kept=KEPT.get(arguments, "pass"), forward=forward, backward=backward))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Op


def inputs(arguments):
    torch.manual_seed(3)
    return tuple(1.7 if name == "a" else torch.randn(7, dtype=torch.float64, requires_grad=True) for name in arguments.split(", "))


@pytest.mark.parametrize(("arguments", "forward", "backward", "line"), LINES)
def test_line_is_told_and_right(tmp_path, arguments, forward, backward, line):
    wrong = load(tmp_path / "wrong.py", arguments, forward, backward)
    finding = next(f for f in pb.check(wrong, inputs(arguments), select=["PB501", "PB503"]).findings if f.code == "PB501")
    assert finding.certain
    assert finding.fix.endswith(f": `{line}`")
    mended = load(tmp_path / "mended.py", arguments, forward, line.removeprefix("return "))
    assert not pb.check(mended, inputs(arguments), select=["PB501", "PB503"]).findings


@pytest.mark.parametrize(
    "backward",
    [
        "dy * x if x.sum() > 9 else (lambda g: g * x)(dy)",
        "(dy * x,)[0]",
        "tuple([dy * x])",
        "dy * x if x is not None else None",
    ],
)
def test_other_sources_get_words_or_a_right_line(tmp_path, backward):
    wrong = load(tmp_path / "wrong.py", "x", "x * x", backward)
    finding = next(f for f in pb.check(wrong, inputs("x"), select=["PB501"]).findings if f.code == "PB501")
    assert finding.fix.startswith("multiply the gradient by 2")
    if "`" in finding.fix:
        mended = load(tmp_path / "mended.py", "x", "x * x", finding.fix.split("`")[1].removeprefix("return "))
        assert not pb.check(mended, inputs("x"), select=["PB501"]).findings


def test_a_factor_that_may_be_a_size_is_not_written_as_a_number(tmp_path):
    wrong = load(tmp_path / "wrong.py", "x", "x.mean(0)", "dy.expand(ctx.saved_tensors[0].shape)")
    (finding,) = pb.check(wrong, torch.randn(3, 5, dtype=torch.float64, requires_grad=True), select=["PB501"]).findings
    assert finding.cause == "the gradient is N times what it should be, N = 3 (size 0 of x)"
    assert finding.fix.startswith("divide the gradient by N, N = 3 (size 0 of x): `return dy.expand")
    assert finding.fix.endswith("/ x.shape[0]`")
