"""Every cause is found, by its name and with certainty, in wrong gradients made for it."""

import math

import pytest
import torch
from torch.nn import functional as F

import pullback as pb

D = torch.float64
torch.manual_seed(0)


def rand(*shape):
    return torch.randn(*shape, dtype=D).requires_grad_()


def op(forward, backward):
    """Return a Function whose backward gets the saved arguments, the output and grad_output, and returns the gradients of the tensors."""

    class Op(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            out = forward(*args)
            outs = out if isinstance(out, tuple) else (out,)
            ctx.tensors = [isinstance(a, torch.Tensor) for a in args]
            ctx.numbers = [a for a in args if not isinstance(a, torch.Tensor)]
            ctx.save_for_backward(*(a for a in args if isinstance(a, torch.Tensor)), *outs)
            ctx.count = sum(ctx.tensors)
            return out

        @staticmethod
        def backward(ctx, *dys):
            saved = ctx.saved_tensors
            grads = backward(*saved[: ctx.count], *ctx.numbers, *saved[ctx.count :], *dys)
            grads = iter(grads if isinstance(grads, tuple) else (grads,))
            return tuple(next(grads) if is_tensor else None for is_tensor in ctx.tensors)

    return Op


sig = torch.sigmoid


def swish_grad(x, dy):
    return dy * (sig(x) + x * sig(x) * (1 - sig(x)))


def layer_norm(x):
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


def norm_constant_scale(x, y, dy):
    return (dy - dy.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


def last_block(x, dy):
    for rows, cotangents in zip(x.split(2), dy.split(2), strict=True):
        d = cotangents.mT @ rows
        gw = d
    return gw


def log_likelihood(x, w):
    total = x.new_zeros(())
    for rows in x.split(2):
        total = total - (rows @ w.mT).log_softmax(-1)[:, 0].sum()
    return total / len(x)


def likelihood_grads(x, w, dy):
    gx = []
    for rows in x.split(2):
        p = (rows @ w.mT).softmax(-1)
        p[:, 0] -= 1
        gx.append(p @ w)
        d = p.mT @ rows
        gw = d
    return dy * torch.cat(gx) / len(x), dy * gw / len(x)


def last_row_zero(g):
    g = g.clone()
    g[-1] = 0
    return g


def mse(x, t):
    return (x - t).square().mean()


def symmetric_form(a):
    return (a[:, 0] + 2 * a[:, 1] + a[:, 2]).exp()


def symmetric_grad(a, dy, off_diagonal):
    g = dy * symmetric_form(a)
    return torch.stack([g, off_diagonal * g, g], -1)


def clamp(x, lo, hi):
    return x.clamp(lo, hi)


def soft_abs(x, eps):
    return (x * x + eps).sqrt()


def softmax_grads(x, y, dy):
    inner = y * (dy - (dy * y).sum(-1, keepdim=True))
    return inner, inner * x


MUTANTS = [
    ("constant-factor", op(lambda x: x * x, lambda x, y, dy: dy * x), (rand(5),)),
    ("constant-factor", op(mse, lambda x, t, y, dy: (dy * 2 * (x - t), -dy * 2 * (x - t))), (rand(3, 5), rand(3, 5))),
    ("constant-factor", op(lambda x: x.sin(), lambda x, y, dy: dy * x.cos() * 1.0009), (rand(5),)),
    ("constant-factor", op(symmetric_form, lambda a, y, dy: symmetric_grad(a, dy, 1.0)), (rand(4, 3),)),
    ("sign", op(lambda x: x.cos(), lambda x, y, dy: dy * x.sin()), (rand(5),)),
    ("ignores-cotangent", op(lambda x: (x * x).sum(), lambda x, y, dy: 2 * x), (rand(5),)),
    ("ignores-cotangent", op(lambda x: x * x, lambda x, y, dy: 2 * x * dy.flatten()[0]), (rand(5),)),
    ("swapped-gradients", op(lambda a, b: a * b, lambda a, b, y, dy: (dy * a, dy * b)), (rand(4), rand(4))),
    ("permuted-gradient", op(lambda x: x.t() @ x, lambda x, y, dy: (x @ (dy + dy.t())).t().contiguous()), (rand(3, 3),)),
    ("permuted-gradient", op(lambda x: x.cumsum(0), lambda x, y, dy: dy.flip(0).cumsum(0)), (rand(5),)),
    ("permuted-gradient", op(lambda x: x.roll(1, 0) * 2, lambda x, y, dy: 2 * dy), (rand(5),)),
    ("mean-for-sum", op(lambda x, b: x + b, lambda x, b, y, dy: (dy, dy.mean(0))), (rand(6, 4), rand(4))),
    ("wrong-reduction-dim", op(lambda x, w: x * w, lambda x, w, y, dy: (dy * w, (dy * x).sum(1))), (rand(4, 4), rand(4))),
    ("missing-factor", op(lambda x: x.exp().sin(), lambda x, y, dy: dy * x.exp().cos()), (rand(5),)),
    ("missing-factor", op(torch.tanh, lambda x, y, dy: dy), (rand(5),)),
    ("missing-factor", op(lambda x, w: x * w.exp(), lambda x, w, y, dy: (dy * w.exp(), dy * x)), (rand(5), rand(5))),
    ("missing-term", op(lambda x: x * sig(x), lambda x, y, dy: dy * x * sig(x) * (1 - sig(x))), (rand(5),)),
    ("missing-term", op(lambda x: x * x + x, lambda x, y, dy: dy * 2 * x), (rand(5),)),
    ("wrong-operand", op(sig, lambda x, y, dy: dy * x * (1 - x)), (rand(5),)),
    ("output-ignored", op(lambda x: (x * x, x.exp()), lambda x, a, b, da, db: da * 2 * x), (rand(5),)),
    ("output-counted-twice", op(lambda x: (x * x, x.exp()), lambda x, a, b, da, db: da * 2 * x + 2 * db * b), (rand(5),)),
    ("partial-rows", op(lambda x: x.sin(), lambda x, y, dy: last_row_zero(dy * x.cos())), (rand(5, 3),)),
    ("detached-intermediate", op(layer_norm, norm_constant_scale), (rand(3, 6),)),
    ("scalar-derivative-missing", op(lambda x, s: F.softplus(x * s), lambda x, s, y, dy: dy * sig(x * s)), (rand(5), 3.7)),
    (
        "missing-conjugate",
        op(lambda x, w: x * w, lambda x, w, y, dy: (dy * w, dy * x)),
        tuple(torch.randn(4, dtype=torch.complex128).requires_grad_() for _ in "xw"),
    ),
    ("low-precision-inside", op(lambda x: x.sin() * 3, lambda x, y, dy: (dy.bfloat16() * x.bfloat16().cos() * 3).double()), (rand(5),)),
    ("cotangent-squared", op(lambda x: x * x, lambda x, y, dy: dy * dy * 2 * x), (rand(5),)),
    ("boundary", op(clamp, lambda x, lo, hi, y, dy: dy * (x <= hi)), (rand(40), -0.5, 0.5)),
    ("boundary", op(clamp, lambda x, lo, hi, y, dy: dy * ((x >= 0) & (x <= hi))), (rand(40), -0.5, 0.5)),
    ("boundary", op(clamp, lambda x, lo, hi, y, dy: dy), (rand(40), -0.5, 0.5)),
    ("boundary", op(clamp, lambda x, lo, hi, y, dy: dy * ((x < lo) | (x > hi))), (rand(40), -0.5, 0.5)),
    ("misplaced-eps", op(soft_abs, lambda x, eps, y, dy: dy * x / x.abs()), (rand(6), 0.05)),
    ("misplaced-eps", op(soft_abs, lambda x, eps, y, dy: dy * x / (x * x + eps * eps).sqrt()), (rand(6), 0.05)),
    ("missing-factor", op(lambda x: x * sig(x), lambda x, y, dy: dy * (sig(x) + sig(x) * (1 - sig(x)))), (rand(5),)),
    ("missing-factor", op(lambda x, w: (x * w).softmax(-1), lambda x, w, y, dy: softmax_grads(x, y, dy)), (rand(3, 4), rand(3, 4))),
    ("missing-term", op(lambda x: x * sig(x), lambda x, y, dy: dy * (sig(x) - x * sig(x) * (1 - sig(x)))), (rand(5),)),
    ("wrong-operand", op(lambda a, b: a @ b, lambda a, b, y, dy: (dy @ b, a.mT @ dy)), (rand(3, 3), rand(3, 3))),
    ("wrong-operand", op(lambda x, w: x * w, lambda x, w, y, dy: (dy * x, (dy * x).sum(0))), (rand(3, 4), rand(4))),
    ("permuted-gradient", op(lambda x: (x * x).cumsum(0), lambda x, y, dy: 2 * x * dy.flip(0).cumsum(0)), (rand(5),)),
    ("wrong-reduction-dim", op(lambda x: (x * x).sum(1), lambda x, y, dy: 2 * x * dy), (rand(4, 4),)),
    ("sign", op(lambda x: (x * x, x.exp()), lambda x, a, b, da, db: da * 2 * x - db * b), (rand(5),)),
    ("constant-factor", op(lambda x: (x * x, x.exp()), lambda x, a, b, da, db: da * 6 * x + db * b), (rand(5),)),
    ("swapped-gradients", op(lambda x: (x * x, x.exp()), lambda x, a, b, da, db: db * 2 * x + da * b), (rand(5),)),
    (
        "missing-factor",
        op(lambda x, w, s: x @ w * s, lambda x, w, s, y, dy: (dy @ w.mT, x.mT @ (dy * s), (dy * y / s).sum(0))),
        (rand(3, 4), rand(4, 5), rand(5)),
    ),
    (
        "missing-conjugate",
        op(lambda x, w: x * x * w, lambda x, w, y, dy: (dy * 2 * x * w.conj(), dy * (x * x).conj())),
        tuple(torch.randn(4, dtype=torch.complex128).requires_grad_() for _ in "xw"),
    ),
    ("cotangent-as-mask", op(lambda x: x * x, lambda x, y, dy: (dy > 0) * 2 * x), (rand(5),)),
    ("partial-rows", op(lambda x, w: x @ w.mT, lambda x, w, y, dy: (dy @ w, last_block(x, dy))), (rand(6, 5), rand(7, 5))),
    ("partial-rows", op(log_likelihood, lambda x, w, y, dy: likelihood_grads(x, w, dy)), (rand(6, 5), rand(7, 5))),
]


@pytest.mark.parametrize(("name", "function", "inputs"), MUTANTS, ids=[f"{i}-{m[0]}" for i, m in enumerate(MUTANTS)])
def test_cause_is_named(name, function, inputs):
    report = pb.check(function, inputs, select=["PB501", "PB510"])
    finding = next(f for f in report.findings if f.code in ("PB501", "PB510"))
    assert finding.attachments.get("cause") == name, finding
    assert finding.certain, finding
    assert finding.fix


def test_without_a_cause_the_place_is_told():
    function = op(lambda x: x.sin(), lambda x, y, dy: dy * x.cos() * (1 + torch.arange(5, dtype=D).flip(0).sqrt() * (x > -10)))
    (finding,) = pb.check(function, (rand(5),), select=["PB501"]).findings
    assert finding.cause is None
    assert finding.evidence[-1].text.startswith("no known pattern explains it: ")
    assert not finding.certain


def test_single_precision_inside_is_no_fault():
    function = op(lambda x: x.sin() * 3, lambda x, y, dy: (dy.float() * x.float().cos() * 3).double())
    for seed in range(10):
        assert not [f for f in pb.check(function, (rand(5),), select=["PB501"], seed=seed).findings if f.severity != "note"]


def test_a_wrong_formula_is_not_taken_for_low_precision():
    function = op(lambda x: x.sin() * 3, lambda x, y, dy: dy * x.cos() * (3 + 0.05 * torch.arange(5, dtype=D).sqrt()))
    findings = pb.check(function, (rand(5),), select=["PB501"]).findings
    assert [f.attachments.get("cause") for f in findings] == [None]


def test_a_fault_that_shows_on_some_cotangents_only_is_certain_all_the_same():
    function = op(lambda x: x * x, lambda x, y, dy: 2 * x * dy.abs())
    for seed in range(10):
        (finding,) = pb.check(function, (rand(2),), select=["PB503"], seed=seed).findings
        assert (finding.attachments.get("cause"), finding.certain) == ("cotangent-squared", True)


MEAN = op(lambda x: (x * x).mean(), lambda x, y, dy: dy * 2 * x.clone())
SUM = op(lambda x: (x * x).sum(0), lambda x, y, dy: dy * 2 * x / len(x))
TWICE = op(lambda x: (x * x).sum(0), lambda x, y, dy: dy * x)


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 8])
def test_a_number_that_equals_a_size_of_the_sample_is_tried_at_other_sizes(rows):
    def cause(function, *inputs):
        (finding,) = pb.check(function, inputs, select=["PB501"]).findings
        assert finding.attachments["cause"] == "constant-factor"
        return finding.cause, finding.certain, finding.fix

    text, certain, fix = cause(SUM, rand(rows, 7))
    assert certain
    assert f"1/N times what it should be, N = {rows} (size 0 of" in text
    assert fix.startswith(f"multiply the gradient by N, N = {rows} (")
    text, certain, _ = cause(TWICE, rand(rows, 7))
    assert certain
    assert text.startswith("the gradient is 1/2 times")
    text, certain, _ = cause(MEAN, rand(rows))
    assert certain
    assert f"is N times what it should be, N = {rows} (" in text


@pytest.mark.parametrize(
    ("factor", "said", "undone"),
    [
        (2.0, "2", "divide the gradient by 2"),
        (0.5, "1/2", "multiply the gradient by 2"),
        (-1.0, None, "negate the gradient"),
        (-0.5, "-1/2", "multiply the gradient by -2"),
        (3.0, "3", "divide the gradient by 3"),
        (1.5, "1.5", "divide the gradient by 1.5"),
        (2 / 3, "2/3", "multiply the gradient by 1.5"),
        (7 / 3, "7/3", "divide the gradient by 7/3"),
        (0.1, "1/10", "multiply the gradient by 10"),
        (10.0, "10", "divide the gradient by 10"),
        (0.75, "0.75", "divide the gradient by 0.75"),
        (-math.sqrt(2), "-sqrt(2)", "divide the gradient by -sqrt(2)"),
        (math.sqrt(0.5), "1/sqrt(2)", "multiply the gradient by sqrt(2)"),
        (math.pi, "3.14159", "divide the gradient by 3.14159"),
        (1.0009, "1.0009", "divide the gradient by 1.0009"),
    ],
)
def test_a_factor_is_said_as_a_person_would(factor, said, undone):
    function = op(lambda x: x.sin(), lambda x, y, dy: dy * x.cos() * factor)
    (finding,) = pb.check(function, rand(11, 13), select=["PB501"]).findings
    assert finding.certain
    assert finding.cause == (f"the gradient is {said} times what it should be" if said else "the gradient has the wrong sign")
    assert finding.fix == undone


def test_the_root_of_a_size_is_said_with_its_letter():
    (finding,) = pb.check(op(lambda x: x.sin(), lambda x, y, dy: dy * x.cos() / x.shape[1] ** 0.5), rand(3, 13), select=["PB501"]).findings
    assert finding.certain
    assert "is 1/sqrt(N) times what it should be, N = 13 (size 1 of" in finding.cause
    assert finding.fix.startswith("multiply the gradient by sqrt(N), N = 13 (size 1 of")


def test_a_factor_of_some_entries_is_said_as_a_person_would():
    function = op(symmetric_form, lambda a, y, dy: symmetric_grad(a, dy, 3.0))
    (finding,) = pb.check(function, rand(4, 3), select=["PB501"]).findings
    assert "is 1.5 times what it should be" in finding.cause
    assert finding.fix == "divide these entries by 1.5"
    function = op(symmetric_form, lambda a, y, dy: symmetric_grad(a, dy, -2.0))
    (finding,) = pb.check(function, rand(4, 3), select=["PB501"]).findings
    assert finding.fix == "change the sign of these entries"


def test_where_no_other_size_can_be_had_a_number_that_equals_one_is_likely_at_most():
    def forward(x):
        if x.shape != (2, 3):
            raise ValueError("two rows of three are wanted")
        return x**3

    (finding,) = pb.check(op(forward, lambda x, y, dy: dy * x * x * 3 / 2), (rand(2, 3),), select=["PB501"]).findings
    assert finding.attachments["cause"] == "constant-factor"
    assert not finding.certain


def test_a_number_among_the_arguments_that_equals_a_size_is_not_taken_for_it():
    function = op(lambda x, k: (x * x).sum(0) * k, lambda x, k, y, dy: dy * 2 * x * k / len(x))
    (finding,) = pb.check(function, (rand(3, 4), 3.0), select=["PB501"]).findings
    assert finding.certain
    assert "size 0 of" in finding.cause
    function = op(lambda x, k: (x * x).sum(0) * k, lambda x, k, y, dy: dy * 2 * x)
    (finding,) = pb.check(function, (rand(3, 4), 3.0), select=["PB501"]).findings
    assert finding.certain
    assert finding.attachments["cause"] == "scalar-derivative-missing"


def test_a_kernel_for_float32_alone_does_not_round_to_float32():
    def only_single(x):
        if x.dtype != torch.float32:
            raise TypeError("float32 is wanted")
        return x * 3

    function = op(only_single, lambda x, y, dy: dy.clamp(-1, 1) * 3)
    (finding,) = pb.check(function, (rand(5).detach().float(),), select=["PB503"]).findings
    assert "rounds to" not in finding.cause
    assert finding.attachments.get("cause") == "cotangent-as-mask"
