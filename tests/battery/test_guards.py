"""Findings on searched inputs: wrong inputs must not become a fault of the Function."""

import torch

import pullback as pb
from pullback.battery.check import run_case


class Masked(torch.autograd.Function):
    """Right for masks of 0 and 1 only: mask * mask is taken for mask."""

    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(mask)
        return x * mask * mask

    @staticmethod
    def backward(ctx, dy):
        (mask,) = ctx.saved_tensors
        return dy * mask, None


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, dy):
        (mask,) = ctx.saved_tensors
        return 2 * dy * mask, None


class Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, fn):
        ctx.save_for_backward(x)
        return fn(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy, None


def searched(function, *args, invented=()):
    return pb.Case(function, args, origin="searched", invented=invented)


def tensors():
    return torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.rand(3, 4, dtype=torch.float64)


def found(case):
    return [f for f in run_case(case).findings if f.code == "PB501"]


def test_a_contract_on_values_is_a_question():
    (finding,) = found(searched(Masked, *tensors()))
    assert finding.severity == "warning"
    assert finding.cause == "right if `mask` is 0/1: is that the contract?"


def test_given_inputs_are_taken_at_their_word():
    (finding,) = found(pb.case(Masked, *tensors()))
    assert finding.severity == "error"


def test_a_fault_stays_one_on_every_domain():
    (finding,) = found(searched(Wrong, *tensors()))
    assert finding.severity == "error"


def test_an_invented_callable_makes_it_a_warning():
    (finding,) = found(searched(Through, tensors()[0], torch.tanh, invented=("fn",)))
    assert finding.severity == "warning"
    assert "`fn`" in finding.cause


def test_inputs_are_searched_where_none_are_given():
    assert {f.code for f in pb.check(Wrong).findings if f.severity == "error"} == {"PB501"}
    assert not [f for f in pb.check(Masked).findings if f.severity == "error"]


class Babylonian(torch.autograd.Function):
    """The gradient of the square root to which the steps lead."""

    @staticmethod
    def forward(ctx, x, n_steps):
        y = x
        for _ in range(n_steps):
            y = (y + x / y) / 2
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy / (2 * y), None


class WrongLimit(Babylonian):
    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy / (3 * y), None


class Halves(torch.autograd.Function):
    """What it tends to does not depend on the input any more: a gradient of nothing is right there whatever the formula."""

    @staticmethod
    def forward(ctx, x, n_steps=2):
        for _ in range(n_steps):
            x = x / 2
        return x

    @staticmethod
    def backward(ctx, dy):
        return torch.zeros_like(dy), None


def roots():
    return torch.linspace(2, 5, 6, dtype=torch.float64).requires_grad_()


def test_the_gradient_of_what_too_few_steps_lead_to_is_a_note():
    for case in (searched(Babylonian, roots(), 2), pb.case(Babylonian, roots(), 2)):
        (finding,) = found(case)
        assert (finding.severity, finding.certain) == ("note", True)
        assert finding.cause == "forward stops after n_steps = 2 steps; with 16, where its result has come to rest, the gradient is right"
        assert found(searched(Babylonian, roots(), 12)) == []


def test_the_gradient_of_another_limit_is_wrong():
    assert [f.severity for f in found(pb.case(WrongLimit, roots(), 2))] == ["error"]
    (finding,) = found(searched(WrongLimit, roots(), 2))
    assert finding.severity == "warning"
    assert "n_steps = 2 steps" in (finding.cause or "")


def test_a_limit_that_nothing_moves_clears_no_gradient():
    assert [f.severity for f in found(pb.case(Halves, roots()))] == ["error"]


class SafeQuotient(torch.autograd.Function):
    """backward keeps its division from zero: at a small x it is off by 1e-8."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.pow(3)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 3 * dy * x**4 / (x**2 + 1e-8 * (x.abs() < 0.3))


def test_a_division_kept_from_zero_is_a_note():
    x = torch.linspace(0.5, 2, 6, dtype=torch.float64, requires_grad=True)
    report = run_case(pb.case(SafeQuotient, x))
    assert not [f for f in report.findings if f.code == "PB502" and f.severity != "note"], str(report)


class InItsBasis(torch.autograd.Function):
    """The first argument stands for where its gradient goes; forward needs the second only."""

    @staticmethod
    def forward(ctx, place, roots):
        ctx.save_for_backward(roots)
        return torch.diag(roots)

    @staticmethod
    def backward(ctx, dy):
        (roots,) = ctx.saved_tensors
        return dy / (roots.unsqueeze(-1) + roots), None


def test_a_gradient_for_an_argument_that_a_searched_sample_ignores_is_a_note():
    place = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
    roots = torch.linspace(1, 2, 3, dtype=torch.float64)
    (finding,) = found(searched(InItsBasis, place, roots))
    assert finding.severity == "note"
    assert "whatever place is" in (finding.cause or "")


class Eigen(torch.autograd.Function):
    """Its eigenvectors change their sign here and there, which makes no surrogate of it."""

    @staticmethod
    def forward(ctx, a):
        values, vectors = torch.linalg.eigh(a)
        ctx.save_for_backward(values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx, dvalues, dvectors):
        values, vectors = ctx.saved_tensors
        gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
        gaps.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
        inner = vectors.mT @ dvectors
        grad = vectors @ (torch.diag_embed(dvalues) + (inner - inner.mT) / (2 * gaps)) @ vectors.mT
        return (grad + grad.mT) / 2


def test_jumps_of_eigenvectors_make_no_surrogate():
    draw = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    report = run_case(pb.case(Eigen, (draw + draw.mT).requires_grad_()))
    assert not [f for f in report.findings if f.code == "PB512" or f.severity == "error"], str(report)


class Fits(torch.autograd.Function):
    """Backward takes `slope` for the derivative of `fn`."""

    @staticmethod
    def forward(ctx, x, fn, slope):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return fn(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return ctx.slope(x) * dy, None, None


class Filters(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, fn):
        ctx.fn = fn
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return ctx.fn(dy), None


class Constant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x.detach().new_ones(4)

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy, 3 * dy


def test_invented_callables_that_have_to_fit_together_are_no_warning():
    x = tensors()[0]
    (finding,) = found(searched(Fits, x, torch.sin, torch.tanh, invented=("fn", "slope")))
    assert finding.severity == "note"
    assert "`fn` and `slope`" in finding.cause
    (given,) = found(pb.case(Fits, x, torch.sin, torch.tanh))
    assert given.severity == "error"
    assert not found(pb.case(Fits, x, torch.sin, torch.cos))


def test_what_an_invented_callable_does_with_grad_output_is_its_own():
    x = tensors()[0]
    severities = {f.severity for f in run_case(searched(Filters, x, torch.tanh, invented=("fn",))).findings if f.code == "PB503"}
    assert severities == {"note"}
    assert {f.severity for f in run_case(pb.case(Filters, x, torch.tanh)).findings if f.code == "PB503"} - {"note"}


def test_where_no_input_counts_nothing_was_measured():
    vectors = torch.randn(2, 4, dtype=torch.float64)
    args = [v.clone().requires_grad_() for v in vectors]
    assert {f.severity for f in found(searched(Constant, *args))} <= {"note"}


class Centred(torch.autograd.Function):
    """The caller passes the mean along; its gradient is that of x minus its own mean."""

    @staticmethod
    def forward(ctx, x, mean, scale):
        return scale * (x - mean)

    @staticmethod
    def backward(ctx, dy):
        return dy - dy.mean(-1, keepdim=True), None, None


def test_statistics_that_are_passed_along_belong_to_the_rest():
    x, mean = tensors()[0], torch.randn(3, 1, dtype=torch.float64)
    (finding,) = found(searched(Centred, x, mean, 1.0))
    assert finding.severity == "note"
    assert "`mean`" in finding.cause
    (given,) = found(pb.case(Centred, x, mean, 1.0))
    assert given.severity == "error"


class Negates(torch.autograd.Function):
    """Right as long as nothing is to be negated."""

    @staticmethod
    def forward(ctx, x, w, negate=False):
        ctx.save_for_backward(x, w)
        return -x * w if negate else x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy * w, dy * x, None


def test_no_domain_explains_what_another_setting_makes_wrong():
    first, *_ = found(searched(Negates, tensors()[0], tensors()[0], False))
    assert first.severity == "warning"
    assert "negate" in first.cause
    assert "contract" not in first.cause
