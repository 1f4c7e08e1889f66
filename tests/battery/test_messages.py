"""What findings say: whose fault it is, what was got, and why a check was left out."""

import re

import pytest
import torch

import pullback as pb


class Accumulates(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        main = getattr(w, "main_grad", None)
        if main is None:
            return dy * w, dy * x
        main.add_(dy * x)
        return dy * w, None


class Views(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.narrow(0, 0, 1), x.narrow(0, 1, 2)

    @staticmethod
    def backward(ctx, head, tail):
        return torch.cat([head, tail])


class ChangesInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


class LogDeterminant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return 2 * torch.linalg.cholesky(a).diagonal().log().sum()

    @staticmethod
    def backward(ctx, dy):
        (a,) = ctx.saved_tensors
        return dy * a.inverse()


class Shuffles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.pixel_shuffle(x, 2)

    @staticmethod
    def backward(ctx, dy):
        return torch.pixel_unshuffle(dy, 2)


class Rounds(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return dy


class Signs(Rounds):
    @staticmethod
    def forward(x):
        return x.sign()


def x(*shape):
    return torch.linspace(-1.3, 1.7, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape).requires_grad_()


def found(function, *arguments, select, severity="note"):
    (finding,) = pb.check(function, arguments, select=[select]).findings
    assert finding.severity == severity
    return finding


def test_a_gradient_that_comes_or_not_is_shown_with_the_attribute_that_decides():
    w = torch.nn.Parameter(x(4).detach())
    w.main_grad = torch.zeros(4, dtype=torch.float64)
    finding = found(Accumulates, x(4), w, select="PB616", severity="error")
    (evidence,) = finding.evidence
    assert (evidence.got, evidence.expected) == ("a tensor [4]", "None, as without")
    assert "main_grad" in finding.cause
    assert "main_grad" in finding.fix


def test_returned_views_are_not_taken_for_changed_arguments():
    (run,) = pb.check(Views, (x(3),), select=["PB616"]).checks
    assert run.status == "pass", run.reason
    (run,) = pb.check(ChangesInPlace, (x(3),), select=["PB616"]).checks
    assert run.reason.startswith("forward changes its arguments")


def test_what_holds_for_symmetric_matrices_is_not_called_wrong():
    a = x(3, 3).detach()
    finding = found(LogDeterminant, (a @ a.mT + torch.eye(3, dtype=torch.float64)).requires_grad_(), select="PB501")
    assert "holds for symmetric matrices only" in finding.message
    assert "wrong" not in finding.message
    assert finding.certain


def test_torch_is_named_where_its_operator_returns_a_wrong_shape():
    finding = found(Shuffles, x(2, 8, 3, 5), select="PB619")
    assert finding.message.startswith("torch.pixel_unshuffle, which Shuffles.backward uses")
    assert "-1" not in finding.fix
    assert finding.upstream == "pytorch/pytorch#192816"


def test_what_torch_compile_drops_is_a_fault_of_torch_and_told_once():
    reports = [pb.check(function, (x(3),), select=["PB706"], exact=False) for function in (Rounds, Signs)]
    for report in reports:
        (finding,) = report.findings
        assert "by a fault of torch" in finding.message
        assert "allow_in_graph" in finding.fix
        assert finding.upstream == "pytorch/pytorch#193279"
    assert str(reports[0].merge(reports[1])).count("allow_in_graph") == 1


SLOPE = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


class Compresses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = torch.zeros_like(x)
        where = x.nonzero(as_tuple=True)
        dx[where] = 2 * (x * dy)[where]
        return dx


class ReadsTable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * SLOPE

    @staticmethod
    def backward(ctx, dy):
        return dy * SLOPE


def test_why_code_cannot_run_without_memory_is_said_in_plain_words():
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    for function, wanted in (
        (Compresses, "backward needs the values of tensors (aten.nonzero.default)"),
        (ReadsTable, "forward reads a tensor that is no argument"),
    ):
        (run,) = pb.check(function, x, select=["PB801"]).checks
        assert run.status == "unsupported"
        assert run.reason.startswith("line ")
        assert run.reason.endswith(wanted)


def multiply(x, w, *, eps=1.0):
    return x * w * eps


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: pb.check(Accumulates, x, x), "pb.check(Accumulates, (x, w)); got 2 arguments one by one"),
        (lambda x: pb.check(Accumulates, (x,), x), "pb.check(Accumulates, (x, w)); got 2 arguments one by one"),
        (lambda x: pb.check(Accumulates, x, w=x), "pb.check(Accumulates, (x, w)); got w= as an option of check"),
        (lambda x: pb.check(multiply, x, x), "pb.check(multiply, (x, w)); got 2 arguments one by one"),
        (lambda x: pb.check(multiply, (x, x), eps=2.0), "pb.check(multiply, (x, w), kwargs={'eps': eps}); got eps= as an option of check"),
        (lambda x: pb.check(torch.mul, x, x), "pb.check(mul, (arg1, arg2)); got 2 arguments one by one"),
        (
            lambda x: pb.check(multiply, (x, x), refrence=torch.mul),
            "no option 'refrence', and multiply no argument of that name: did you mean reference=?",
        ),
        (lambda x: pb.check(multiply, (x, x), zzz=1), "the options are kwargs, reference,"),
    ],
)
def test_arguments_passed_otherwise_are_refused_with_the_call_as_it_should_be(call, words):
    with pytest.raises(TypeError, match=re.escape(words)) as caught:
        call(x(3))
    assert str(caught.value).startswith("pullback.check ")


class StridesByTwo(torch.autograd.Function):
    """Spreads a gradient over every second entry, whatever the stride."""

    @staticmethod
    def forward(ctx, x, stride):
        ctx.shape = x.shape
        return x[..., ::stride] * 1.0

    @staticmethod
    def backward(ctx, dy):
        grad = dy.new_zeros(ctx.shape)
        grad[..., ::2][..., : dy.shape[-1]] = dy[..., : grad[..., ::2].shape[-1]]
        return grad, None


def test_the_cause_at_another_number_says_what_is_known():
    x = torch.linspace(-1, 2, 18, dtype=torch.float64).reshape(3, 6).requires_grad_()
    found = [f for f in pb.check(StridesByTwo, (x, 2), select=["PB502"]).findings if f.severity == "error"]
    assert found[0].message.endswith("at stride=3")
    assert found[0].cause == "with stride=2, as in the sample, the gradient is right"
    assert found[0].fix == "Compare how forward and backward use stride."
