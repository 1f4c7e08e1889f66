"""torch's own operators, wrapped in a Function whose backward is autograd's, come out of the whole battery without error or warning."""

import pytest
import torch
import torch.nn.functional as F

import pullback as pb
from pullback.battery.check import Settings, run_case


def function_of(name, operator):
    """Return a Function of `operator` whose backward recomputes it under autograd."""

    def forward(ctx, *arguments):
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.rest = [None if isinstance(a, torch.Tensor) else a for a in arguments]
        outputs = operator(*arguments)
        many = isinstance(outputs, tuple)
        outputs = tuple(y.clone() for y in (outputs if many else (outputs,)))
        ctx.mark_non_differentiable(*[y for y in outputs if not (y.is_floating_point() or y.is_complex())])
        return outputs if many else outputs[0]

    def backward(ctx, *cotangents):
        saved = iter(ctx.saved_tensors)
        arguments = [next(saved).detach() if r is None else r for r in ctx.rest]
        needed = [a.requires_grad_() for a, need in zip(arguments, ctx.needs_input_grad, strict=True) if need]
        with torch.enable_grad():
            outputs = operator(*arguments)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(y, c) for y, c in zip(outputs, cotangents, strict=True) if y.requires_grad]
        found = iter(torch.autograd.grad([y for y, _ in pairs], needed, [c for _, c in pairs], allow_unused=True))
        return tuple(next(found) if need else None for need in ctx.needs_input_grad)

    return type(name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def in_place(name, operator, derivative):
    """Return a Function that changes its first argument with `operator` and marks it dirty."""

    def forward(ctx, x, *rest):
        ctx.save_for_backward(x.clone())
        ctx.rest = rest
        ctx.mark_dirty(x)
        return operator(x, *rest)

    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * derivative(x, *ctx.rest), *(None for _ in ctx.rest)

    return type(name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def positive(*shape):
    return torch.rand(shape, dtype=torch.float64).add_(0.5).requires_grad_()


def unit(*shape):
    return torch.rand(shape, dtype=torch.float64).mul_(1.6).sub_(0.8).requires_grad_()


def z(*shape):
    return x(*shape, dtype=torch.complex128)


def regular(n):
    return (torch.randn(n, n, dtype=torch.float64) + 3 * torch.eye(n, dtype=torch.float64)).requires_grad_()


def index(*values):
    return torch.tensor(values)


ELEMENTWISE = {
    "Exp": (torch.exp, x(3, 4)),
    "Log": (torch.log, positive(3, 4)),
    "Sin": (torch.sin, x(3, 4)),
    "Tan": (torch.tan, unit(5)),
    "Asin": (torch.asin, unit(5)),
    "Sqrt": (torch.sqrt, positive(5)),
    "Rsqrt": (torch.rsqrt, positive(5)),
    "Reciprocal": (torch.reciprocal, positive(5)),
    "Sigmoid": (torch.sigmoid, x(3, 4)),
    "Tanh": (torch.tanh, x(3, 4)),
    "Relu": (torch.relu, x(3, 4)),
    "LeakyRelu": (F.leaky_relu, x(3, 4), 0.2),
    "Gelu": (F.gelu, x(3, 4)),
    "Silu": (F.silu, x(3, 4)),
    "Softplus": (F.softplus, x(3, 4)),
    "Hardtanh": (F.hardtanh, x(3, 4), -0.5, 0.5),
    "Softshrink": (F.softshrink, x(3, 4), 0.5),
    "Abs": (torch.abs, x(3, 4)),
    "Sign": (torch.sign, x(3, 4)),
    "Erf": (torch.erf, x(5)),
    "Lgamma": (torch.lgamma, positive(5)),
    "Clamp": (torch.clamp, x(3, 4), -0.5, 1.0),
    "Pow": (torch.pow, positive(5), 2.5),
    "Square": (torch.square, x(5)),
    "Mul": (torch.mul, x(3, 4), x(4)),
    "Div": (torch.div, x(3, 4), positive(4)),
    "Atan2": (torch.atan2, x(5), positive(5)),
    "Maximum": (torch.maximum, x(5), x(5)),
    "Where": (torch.where, torch.tensor([True, False, True]), x(3), x(3)),
    "Lerp": (torch.lerp, x(5), x(5), 0.3),
    "Scalar": (torch.exp, x()),
}
REDUCTIONS = {
    "Sum": (torch.sum, x(3, 4)),
    "SumDim": (torch.sum, x(3, 4), 1),
    "Mean": (torch.mean, x(3, 4), 0),
    "Var": (torch.var, x(3, 4), 1),
    "Prod": (torch.prod, positive(3, 4), 1),
    "Amax": (torch.amax, x(3, 4), 1),
    "MaxDim": (torch.max, x(3, 4), 1),
    "Norm": (torch.linalg.vector_norm, x(3, 4)),
    "LogSumExp": (torch.logsumexp, x(3, 4), 1),
    "Median": (lambda t: torch.median(t.contiguous(), 0), x(5)),  # torch.median reads past an expanded input (torch 2.13)
    "Cumsum": (torch.cumsum, x(3, 4), 1),
    "Cumprod": (torch.cumprod, positive(3, 4), 1),
    "LogCumSumExp": (torch.logcumsumexp, x(3, 4), 1),
    "Softmax": (torch.softmax, x(3, 4), 1),
    "LogSoftmax": (torch.log_softmax, x(3, 4), 1),
    "Sort": (torch.sort, x(3, 4), 1),
    "TopK": (torch.topk, x(3, 5), 2),
    "VarMean": (torch.var_mean, x(3, 4), 1),
}
LINEAR_ALGEBRA = {
    "MatMul": (torch.matmul, x(3, 4), x(4, 2)),
    "BatchMatMul": (torch.bmm, x(2, 3, 4), x(2, 4, 2)),
    "AddMM": (torch.addmm, x(3, 2), x(3, 4), x(4, 2)),
    "Linear": (F.linear, x(3, 4), x(2, 4), x(2)),
    "Dot": (torch.dot, x(4), x(4)),
    "Outer": (torch.outer, x(3), x(4)),
    "Inverse": (torch.linalg.inv, regular(3)),
    "Solve": (torch.linalg.solve, regular(3), x(3, 2)),
    "Det": (torch.linalg.det, regular(3)),
    "Trace": (torch.trace, x(3, 3)),
    "Kron": (torch.kron, x(2, 2), x(2, 2)),
}
LAYERS = {
    "Conv1d": (F.conv1d, x(2, 3, 7), x(4, 3, 3), x(4)),
    "Conv2d": (F.conv2d, x(1, 2, 5, 5), x(3, 2, 3, 3)),
    "AvgPool": (F.avg_pool1d, x(2, 3, 6), 2),
    "MaxPool": (F.max_pool1d, x(2, 3, 6), 2),
    "LayerNorm": (F.layer_norm, x(3, 4), (4,), x(4), x(4)),
    "RmsNorm": (F.rms_norm, x(3, 4), (4,), x(4)),
    "GroupNorm": (F.group_norm, x(2, 4, 3), 2),
    "CrossEntropy": (F.cross_entropy, x(3, 4), index(0, 2, 3)),
    "MseLoss": (F.mse_loss, x(3, 4), torch.zeros(3, 4, dtype=torch.float64)),
    "HuberLoss": (F.huber_loss, x(3, 4), torch.zeros(3, 4, dtype=torch.float64)),
    "Embedding": (F.embedding, index(0, 2, 2, 1), x(3, 4)),
    "Interpolate": (F.interpolate, x(1, 2, 4), 8),
    "Glu": (F.glu, x(3, 4)),
}
INDEXING = {
    "IndexSelect": (torch.index_select, x(4, 3), 0, index(0, 2, 2)),
    "Gather": (torch.gather, x(3, 4), 1, torch.tensor([[0, 1], [3, 3], [2, 0]])),
    "ScatterAdd": (torch.scatter_add, x(4), 0, index(0, 1, 1), x(3)),
    "Take": (torch.take, x(3, 4), index(0, 5, 5)),
    "MaskedFill": (torch.masked_fill, x(3), torch.tensor([True, False, True]), 0.5),
    "Slice": (lambda t: t[1:, ::2], x(3, 4)),
    "Transpose": (torch.transpose, x(3, 4), 0, 1),
    "Reshape": (torch.reshape, x(3, 4), (2, 6)),
    "Flip": (torch.flip, x(3, 4), (0,)),
    "Roll": (torch.roll, x(3, 4), 1, 1),
    "Cat": (lambda a, b: torch.cat([a, b], 1), x(3, 2), x(3, 4)),
    "Stack": (lambda a, b: torch.stack([a, b]), x(3), x(3)),
    "Chunk": (lambda t: torch.chunk(t, 2, 1), x(3, 4)),
    "Tril": (torch.tril, x(3, 3)),
    "Diag": (torch.diag, x(3)),
    "Pad": (F.pad, x(3, 4), (1, 2)),
    "Repeat": (lambda t: t.repeat(2, 2), x(2, 3)),
    "Expand": (lambda t: t.expand(3, 4), x(4)),
    "Unfold": (lambda t: t.unfold(0, 3, 1), x(6)),
}
COMPLEX = {
    "ComplexMul": (torch.mul, z(3), z(3)),
    "ComplexExp": (torch.exp, z(3)),
    "ComplexAbs": (torch.abs, z(3)),
    "Angle": (torch.angle, z(3)),
    "Conj": (torch.conj_physical, z(3)),
    "RealPart": (torch.real, z(3)),
    "MakeComplex": (torch.complex, x(3), x(3)),
    "Fft": (torch.fft.fft, x(8)),
    "ComplexFft": (torch.fft.fft, z(6)),
    "InverseFft": (torch.fft.ifft, z(6)),
    "RealFft": (torch.fft.rfft, x(8)),
    "ComplexMatMul": (torch.matmul, z(2, 3), z(3, 2)),
}
SINGLE = {
    "ExpSingle": (torch.exp, x(3, 4, dtype=torch.float32)),
    "SoftmaxHalf": (torch.softmax, x(3, 4, dtype=torch.bfloat16), 1),
    "MatMulSingle": (torch.matmul, x(3, 4, dtype=torch.float32), x(4, 2, dtype=torch.float32)),
    "LayerNormHalf": (F.layer_norm, x(3, 8, dtype=torch.bfloat16), (8,)),
}
OPERATORS = ELEMENTWISE | REDUCTIONS | LINEAR_ALGEBRA | LAYERS | INDEXING | COMPLEX | SINGLE
IN_PLACE = {
    "ExpInPlace": (lambda t: t.exp_(), lambda t: t.exp()),
    "ReluInPlace": (lambda t: t.relu_(), lambda t: (t > 0).to(t.dtype)),
    "MulInPlace": (lambda t, c: t.mul_(c), lambda t, c: torch.full_like(t, c), 3.0),
    "SquareInPlace": (lambda t: t.square_(), lambda t: 2 * t),
}


def loud(report):
    return [
        f"{f.code} {f.severity}: {f.message} {[(e.text, e.got, e.expected) for e in f.evidence]}" for f in report.findings if f.severity != "note"
    ]


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_is_clean(name):
    operator, *arguments = OPERATORS[name]
    report = run_case(pb.case(function_of(name, operator), *arguments), Settings())
    assert not loud(report)
    assert report.ok


@pytest.mark.parametrize("name", IN_PLACE)
def test_operator_in_place_is_clean(name):
    operator, derivative, *rest = IN_PLACE[name]
    report = run_case(pb.case(in_place(name, operator, derivative), x(3, 4), *rest), Settings())
    assert not loud(report)
    assert report.ok


def test_there_are_enough_operators():
    assert len(OPERATORS) + len(IN_PLACE) >= 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OPERATORS)
def test_operator_is_clean_at_every_seed(name):
    operator, *arguments = OPERATORS[name]
    for seed in range(1, 20):
        report = run_case(pb.case(function_of(name, operator), *arguments), Settings(seed=seed))
        assert not loud(report), seed


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", IN_PLACE)
def test_operator_in_place_is_clean_at_every_seed(name):
    operator, derivative, *rest = IN_PLACE[name]
    for seed in range(1, 20):
        report = run_case(pb.case(in_place(name, operator, derivative), x(3, 4), *rest), Settings(seed=seed))
        assert not loud(report), seed
