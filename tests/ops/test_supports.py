"""What every op says that it supports: dtypes, no rows, no columns, one element, any strides, derivatives of derivatives, transforms, compilers."""

import inspect
import warnings
from dataclasses import dataclass, field

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import pullback as pb

ops = pb.ops
HELPERS = {"KernelError", "compile_kernels", "probe_products", "tune_allocator"}
HALVES = (torch.bfloat16, torch.float16)
DTYPES = (torch.float64, torch.float32, *HALVES)
SHAPES = [(2, 3), (1, 1), (0, 3), (2, 0), (0, 0)]
WIDE_ONLY = {"eigh", "matrix_sqrt", "root"}
NEEDS_COLUMNS = {"logsumexp", "softmax_cross_entropy", "linear_cross_entropy"}


@dataclass
class Make:
    """Makes the tensors of a call: away from kinks, the same values whatever the dtype and the layout."""

    dtype: torch.dtype = torch.float64
    layout: str = "contiguous"
    made: list[Tensor] = field(default_factory=list)

    def __call__(self, *shape, positive=False):
        x = (torch.arange(torch.Size(shape).numel(), dtype=torch.float64) * 0.7 + len(self.made) + 1).sin().mul(1.3).reshape(shape)
        x = LAYOUTS[self.layout]((x.abs() + 0.31 if positive else x).to(self.dtype))
        self.made.append(x)
        return x


def every_second(x):
    if not x.dim():
        return x
    block = torch.full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"), dtype=x.dtype)
    block[..., ::2] = x
    return block[..., ::2]


LAYOUTS = {
    "contiguous": lambda x: x,
    "expanded": lambda x: x[:1].expand(x.shape) if x.dim() > 1 else x,
    "transposed": lambda x: x.mT.contiguous().mT if x.dim() > 1 else every_second(x),
    "strided": every_second,
}


def target(rows, columns):
    return torch.arange(rows) % max(columns, 1)


def contraction(z, a, x):
    return 0.2 * torch.tanh(z) * a + 0.1 * x


def cubic(x, a):
    return x**3 + 2 * x - a


def scaled(x, d):
    return (2 + d * d) * x


def definite(x):
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


CALLS = {
    "add_noise": lambda t, r, c: ops.add_noise(t(r, c), t(c), seed=3),
    "add_noise, one std": lambda t, r, c: ops.add_noise(t(r, c), 0.5, seed=torch.tensor(3)),
    "all_gather": lambda t, r, c: ops.all_gather(t(r, c), 1),
    "all_reduce": lambda t, r, c: ops.all_reduce(t(r, c), "mean"),
    "argmax_onehot_ste": lambda t, r, c: ops.argmax_onehot_ste(t(r, c), 0, 0.5),
    "checkpointed": lambda t, r, c: ops.checkpointed(lambda x, y: torch.sigmoid(x * y) * x, t(r, c), t(c)),
    "clamp_ste": lambda t, r, c: ops.clamp_ste(t(r, c), -0.31, 0.43),
    "clip_gradient": lambda t, r, c: ops.clip_gradient(t(r, c), value=0.4),
    "clip_gradient, norm": lambda t, r, c: ops.clip_gradient(t(r, c), norm=0.4),
    "clip_gradient, norms of rows": lambda t, r, c: ops.clip_gradient(t(r, c), norm=0.4, dim=1),
    "copy_to_group": lambda t, r, c: ops.copy_to_group(t(r, c)),
    "dropout": lambda t, r, c: ops.dropout(t(r, c), 0.4, seed=3),
    "dropout, all": lambda t, r, c: ops.dropout(t(r, c), 1.0),
    "dropout, none": lambda t, r, c: ops.dropout(t(r, c), 0.4, training=False),
    "eigh": lambda t, r, c: ops.eigh(t(r, c, c)),
    "exp_scaled": lambda t, r, c: ops.exp_scaled(t(r, c), t(c)),
    "exp_scaled, a number": lambda t, r, c: ops.exp_scaled(t(r, c), 1.5),
    "fake_quantize": lambda t, r, c: ops.fake_quantize(t(r, c), t(positive=True), -4, 3),
    "fake_quantize, channels": lambda t, r, c: ops.fake_quantize(t(r, c), t(c, positive=True), -4, 3, axis=1),
    "fake_quantize, one step beside an axis": lambda t, r, c: ops.fake_quantize(
        t(r, c), t(positive=True), -4, 3, zero_point=torch.ones(c), axis=1, gradient_scale="lsq"
    ),
    "fake_quantize, a number": lambda t, r, c: ops.fake_quantize(t(r, c), 0.31, -4, 3),
    "fixed_point": lambda t, r, c: ops.fixed_point(contraction, torch.zeros(r, c, dtype=t.dtype), t(c), t(r, c)),
    "gelu": lambda t, r, c: ops.gelu(t(r, c)),
    "gelu, tanh": lambda t, r, c: ops.gelu(t(r, c), "tanh"),
    "gradient_noise": lambda t, r, c: ops.gradient_noise(t(r, c), 0.3),
    "guided_relu": lambda t, r, c: ops.guided_relu(t(r, c)),
    "gumbel_st": lambda t, r, c: ops.gumbel_st(t(r, c), 0.7),
    "gumbel_st, soft": lambda t, r, c: ops.gumbel_st(t(r, c), 0.7, hard=False, dim=0),
    "heaviside": lambda t, r, c: ops.heaviside(t(r, c)),
    "heaviside, fast sigmoid": lambda t, r, c: ops.heaviside(t(r, c), "fast_sigmoid"),
    "heaviside, triangle": lambda t, r, c: ops.heaviside(t(r, c), "triangle", 0.4),
    "layer_norm": lambda t, r, c: ops.layer_norm(t(r, c), t(c), t(c)),
    "layer_norm, bare": lambda t, r, c: ops.layer_norm(t(r, c)),
    "linear_act": lambda t, r, c: ops.linear_act(t(r, c), t(4, c), t(4), "silu"),
    "linear_act, no outputs": lambda t, r, c: ops.linear_act(t(r, c), t(0, c), t(0), "tanh"),
    "linear_cross_entropy": lambda t, r, c: ops.linear_cross_entropy(t(r, 2), t(c, 2), target(r, c), t(c), reduction="sum"),
    "linear_cross_entropy, rows": lambda t, r, c: ops.linear_cross_entropy(t(r, 2), t(c, 2), target(r, c), label_smoothing=0.1, reduction="none"),
    "linear_cross_entropy, nothing in": lambda t, r, c: ops.linear_cross_entropy(t(r, 0), t(c, 0), target(r, c), reduction="sum"),
    "linear_gelu": lambda t, r, c: ops.linear_gelu(t(r, c), t(4, c), t(4), "tanh"),
    "linear_gelu, no bias": lambda t, r, c: ops.linear_gelu(t(r, c), t(4, c)),
    "logsumexp": lambda t, r, c: ops.logsumexp(t(r, c)),
    "lookup": lambda t, r, c: ops.lookup(t(r, c), t(9), -2.0, 2.0),
    "matrix_sqrt": lambda t, r, c: ops.matrix_sqrt(definite(t(r, c, c))),
    "muladd": lambda t, r, c: ops.muladd(t(c), t(r, c), t(r, 1)),
    "observe": lambda t, r, c: ops.observe(t(r, c), lambda what, tensor: None),
    "reduce_from_group": lambda t, r, c: ops.reduce_from_group(t(r, c)),
    "reduce_scatter": lambda t, r, c: ops.reduce_scatter(t(r, c), 1),
    "relu": lambda t, r, c: ops.relu(t(r, c)),
    "reverse_gradient": lambda t, r, c: ops.reverse_gradient(t(r, c), 0.5),
    "rms_norm": lambda t, r, c: ops.rms_norm(t(r, c), t(c)),
    "rms_norm, bare": lambda t, r, c: ops.rms_norm(t(r, c), eps=1e-3),
    "root": lambda t, r, c: ops.root(cubic, torch.zeros(r, c, dtype=t.dtype), t(r, c)),
    "round_ste": lambda t, r, c: ops.round_ste(t(r, c)),
    "scale": lambda t, r, c: ops.scale(t(r, c), -1.5),
    "scale_gradient": lambda t, r, c: ops.scale_gradient(t(r, c), 0.25),
    "scaled_relu": lambda t, r, c: ops.scaled_relu(t(r, c), 0.1),
    "scaled_relu, a tensor": lambda t, r, c: ops.scaled_relu(t(r, c), torch.full((c,), 0.1)),
    "sigmoid": lambda t, r, c: ops.sigmoid(t(r, c)),
    "sign_ste": lambda t, r, c: ops.sign_ste(t(r, c)),
    "softmax_cross_entropy": lambda t, r, c: ops.softmax_cross_entropy(t(r, c), target(r, c), label_smoothing=0.1, reduction="sum"),
    "softmax_cross_entropy, rows": lambda t, r, c: ops.softmax_cross_entropy(t(r, c), target(r, c), z_loss=0.1, soft_cap=3.0, reduction="none"),
    "solve": lambda t, r, c: ops.solve(scaled, t(r, c), t(c)),
    "solve, symmetric": lambda t, r, c: ops.solve(scaled, t(r, c), t(c), symmetric=True),
    "split": lambda t, r, c: ops.split(t(r, c), (c - c // 2, c // 2), -1),
    "stop_gradient": lambda t, r, c: ops.stop_gradient(t(r, c)),
    "swiglu": lambda t, r, c: ops.swiglu(t(r, c), t(r, c)),
    "swiglu, broadcast": lambda t, r, c: ops.swiglu(t(r, c), t(c)),
    "swish": lambda t, r, c: ops.swish(t(r, c)),
    "swish, a tensor": lambda t, r, c: ops.swish(t(r, c), t(c)),
    "zero_nan_gradient": lambda t, r, c: ops.zero_nan_gradient(t(r, c)),
}


class Given:
    """Stands in for `Make` with tensors at hand, in the order in which they are asked for."""

    def __init__(self, tensors, dtype):
        self.tensors, self.dtype = list(tensors), dtype

    def __call__(self, *shape, positive=False):
        return self.tensors.pop(0)


def call(name, rows, columns, dtype=torch.float64, layout="contiguous"):
    """The call as a function of its floating tensors, which gives its floating outputs, and these tensors."""
    make = Make(dtype, layout)
    CALLS[name](make, rows, columns)

    def function(*xs):
        torch.manual_seed(5)
        out = CALLS[name](Given(xs, dtype), rows, columns)
        return tuple(out) if isinstance(out, tuple) else (out,)

    return function, make.made


def loss(outs):
    return sum(((i + 1) * out).sin().sum() for i, out in enumerate(outs))


def gradients(function, xs, **options):
    xs = [x.detach().requires_grad_() for x in xs]
    outs = function(*xs)
    if not any(out.requires_grad for out in outs):
        return outs, [None] * len(xs)
    return outs, list(torch.autograd.grad(loss(outs), xs, allow_unused=True, **options))


def close(got, want, tolerance):
    for g, w in zip(got, want, strict=True):
        assert (g is None) == (w is None)
        assert g is None or torch.allclose(g.double(), w.double(), rtol=tolerance, atol=tolerance, equal_nan=True), f"{g}\nagainst\n{w}"


def op_of(name):
    return getattr(ops, name.partition(",")[0])


def dtypes_of(name):
    return DTYPES[:2] if name.partition(",")[0] in WIDE_ONLY else DTYPES


def shapes_of(name):
    return [(r, c) for r, c in SHAPES if c or name.partition(",")[0] not in NEEDS_COLUMNS]


@pytest.fixture(scope="module", autouse=True)
def a_group_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


pytestmark = [
    pytest.mark.xdist_group("process_group"),
    pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed"),
]
every = pytest.mark.parametrize("name", CALLS)


def test_every_op_is_in_the_table():
    assert {name.partition(",")[0] for name in CALLS} == set(ops.__all__) - HELPERS


@pytest.mark.parametrize("name", sorted(set(ops.__all__) - HELPERS))
def test_the_docstring_claims_what_is_tested_here(name):
    text = inspect.getdoc(getattr(ops, name)).partition("Supports:")[2].partition("Raises:")[0].lower()
    assert ("bfloat16" in text or "very dtype" in text) == (name not in WIDE_ONLY)
    assert [word for word in ("torch.func", "torch.compile", "autocast", "derivatives", "forward") if word not in text] in ([], ["derivatives"])


@every
def test_runs_at_every_size_in_every_dtype(name):
    for dtype in dtypes_of(name):
        for rows, columns in shapes_of(name):
            function, xs = call(name, rows, columns, dtype)
            outs, grads = gradients(function, xs)
            assert {out.dtype for out in outs} == {dtype}
            assert all(out.isfinite().all() for out in outs)
            for x, grad in zip(xs, grads, strict=True):
                assert grad is None or (grad.dtype == dtype and grad.shape == x.shape and grad.isfinite().all())


@every
def test_second_derivatives_exist(name):
    for rows, columns in shapes_of(name):
        function, xs = call(name, rows, columns)
        xs = [x.requires_grad_() for x in xs]
        outs = function(*xs)
        if not any(out.requires_grad for out in outs):
            continue
        first = [g for g in torch.autograd.grad(loss(outs), xs, create_graph=True, allow_unused=True) if g is not None and g.requires_grad]
        if not first:
            continue
        second = torch.autograd.grad(sum((g * g).sum() for g in first), xs, allow_unused=True)
        assert all(g is None or (g.shape == x.shape and g.isfinite().all()) for g, x in zip(second, xs, strict=True))


@every
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "contiguous"])
def test_strides_change_nothing(name, layout):
    for dtype in DTYPES[:2]:
        function, xs = call(name, 3, 4, dtype, layout)
        outs, grads = gradients(function, xs)
        packed_outs, packed_grads = gradients(function, [x.contiguous() for x in xs])
        tolerance = 100 * torch.finfo(dtype).eps
        if name != "eigh":  # of equal rows: eigenvalues coincide, vectors may be any
            close(outs, packed_outs, tolerance)
            close(grads, packed_grads, tolerance)


@every
@pytest.mark.parametrize("shape", [(2, 3), pytest.param((1, 1), marks=pytest.mark.slow), pytest.param((0, 3), marks=pytest.mark.slow)])
def test_transforms_agree_with_autograd(name, shape):
    function, xs = call(name, *shape)
    argnums = tuple(range(len(xs)))
    _, want = gradients(function, xs)
    got = torch.func.grad(lambda *xs: loss(function(*xs)), argnums)(*xs)
    close(got, [torch.zeros_like(x) if g is None else g for g, x in zip(want, xs, strict=True)], 1e-9)

    rows = [torch.stack([x, x * 0.875]) for x in xs]
    batched = torch.vmap(function, randomness="same")(*rows)
    close(batched, [torch.stack(pair) for pair in zip(*(function(*[row[i] for row in rows]) for i in range(2)), strict=True)], 1e-9)

    tangents = tuple(x.cos() for x in xs)
    outs, moved = torch.func.jvp(function, tuple(xs), tangents)
    assert [m.shape for m in moved] == [out.shape for out in outs]
    declared = op_of(name).__pullback__
    if declared["exact"] and declared["linear"] and declared["surrogate"] is None and name != "stop_gradient":
        cotangents = [out.cos() for out in outs]
        pulled = torch.func.vjp(function, *xs)[1](tuple(cotangents))
        forward = sum(float((m * c).sum()) for m, c in zip(moved, cotangents, strict=True))
        backward = sum(float((p * t).sum()) for p, t in zip(pulled, tangents, strict=True))
        assert abs(forward - backward) < 1e-8 * (1 + abs(forward))


@every
def test_autocast_gives_gradients_in_the_dtype_of_the_arguments(name):
    function, xs = call(name, 3, 4, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        xs = [x.requires_grad_() for x in xs]
        outs = function(*xs)
    assert {out.dtype for out in outs} <= {torch.float32, torch.bfloat16}
    if any(out.requires_grad for out in outs):
        grads = torch.autograd.grad(loss(outs), xs, allow_unused=True)
        assert all(g is None or (g.dtype == torch.float32 and g.isfinite().all()) for g in grads)


@every
@pytest.mark.slow
@pytest.mark.parametrize(("shape", "dtype"), [((3, 4), torch.float32), ((0, 3), torch.bfloat16)])
def test_compiled_code_gives_the_same(name, shape, dtype):
    if dtype not in dtypes_of(name):
        dtype = torch.float32
    function, xs = call(name, *shape, dtype)
    torch._dynamo.reset()
    whole = name.partition(",")[0] not in ("fixed_point", "root", "solve", "observe")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def body(*xs):
            out = CALLS[name](Given(xs, dtype), *shape)
            return tuple(out) if isinstance(out, tuple) else (out,)

        compiled = torch.compile(body, backend="aot_eager", fullgraph=whole)

        def seeded(*xs):
            torch.manual_seed(5)
            return compiled(*xs)

        outs, grads = gradients(seeded, xs)
    want, expected = gradients(function, xs)
    close(outs, want, 50 * torch.finfo(dtype).eps)
    close(grads, expected, 50 * torch.finfo(dtype).eps)
