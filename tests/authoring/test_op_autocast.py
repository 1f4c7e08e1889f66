"""AMP: backward runs under the forward's autocast state, gradients have the argument's dtype."""

import pytest
import torch
import torch.nn.functional as F
from authoring_zoo import ZOO, linear_gelu

import pullback as pb

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


def reference(x, weight, bias=None):
    return F.gelu(F.linear(x, weight, bias), approximate="tanh")


def inputs():
    torch.manual_seed(0)
    return tuple(torch.randn(*shape, requires_grad=True) for shape in ((8, 16), (4, 16), (4,)))


def grads(function, xs, dtype):
    with torch.autocast("cpu", dtype=dtype):
        y = function(*xs)
    return y, torch.autograd.grad(y.float().sin().sum(), xs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_as_torchs_own_ops(dtype):
    xs = inputs()
    y, got = grads(linear_gelu, xs, dtype)
    expected_y, expected = grads(reference, xs, dtype)
    exact = torch.autograd.grad(reference(*[x.double() for x in xs]).sin().sum(), xs)
    assert y.dtype == expected_y.dtype == dtype
    for g, e, t in zip(got, expected, exact, strict=True):
        assert g.dtype == torch.float32
        assert (g - t).norm() <= 2 * (e - t).norm() + 1e-6


def test_backward_runs_under_the_forwards_state():
    states = []

    @pb.op
    def double(x):
        return x * 2

    @double.vjp("x")
    def _(dy):
        states.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
        return dy * 2

    x = torch.ones(2, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16):
        y = double(x)
    y.sum().backward()
    z = double(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z.sum().backward()
    assert states[0] == (True, torch.float16)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, pull = torch.func.vjp(double, x.detach())
    pull(torch.ones(2))
    assert states[2] == (True, torch.bfloat16)


def test_together_with_torch_func():
    xs = tuple(x.detach() for x in inputs())

    def run(function):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.func.grad(lambda *v: function(*v).float().sin().sum(), (0, 1, 2))(*xs)

    for g, e in zip(run(linear_gelu), run(reference), strict=True):
        assert g.dtype == e.dtype == torch.float32
        torch.testing.assert_close(g, e, rtol=0.1, atol=0.1)


def test_a_dtype_casts_floating_arguments_and_gradients_come_back_in_theirs():
    seen = []

    @pb.op(autocast=torch.float32)
    def exact_sum(x, n: int):
        seen.append((x.dtype, torch.is_autocast_enabled("cpu")))
        return (x * n).sum()

    @exact_sum.vjp("x")
    def _(dy, x, n):
        seen.append((dy.dtype, torch.is_autocast_enabled("cpu")))
        return dy.expand(x.shape) * n

    x = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = exact_sum(x, 2)
    y.backward()
    assert y.dtype == torch.float32
    assert x.grad.dtype == torch.bfloat16
    assert seen == [(torch.float32, False), (torch.float32, False)]
    assert exact_sum(x, 2).dtype == torch.bfloat16


def test_inputs_casts_to_the_widest():
    @pb.op(autocast="inputs")
    def mul(a, b):
        assert a.dtype == b.dtype
        return a * b

    mul.vjp("a")(lambda dy, b: dy * b)
    mul.vjp("b")(lambda dy, a: dy * a)
    a, b = torch.ones(2, dtype=torch.bfloat16, requires_grad=True), torch.ones(2, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = mul(a, b)
    y.sum().backward()
    assert (y.dtype, a.grad.dtype, b.grad.dtype) == (torch.float32, torch.bfloat16, torch.float32)


def test_recompute_under_autocast():
    entry = ZOO["noisy (random, no rules)"]
    x, s = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(0)
        y = entry.op(x, s)
        torch.manual_seed(0)
        z = entry.reference(x, s)
    for g, e in zip(torch.autograd.grad(y.sum(), (x, s)), torch.autograd.grad(z.sum(), (x, s)), strict=True):
        torch.testing.assert_close(g, e)


def test_compiled_under_autocast():
    xs = inputs()

    def f(*v):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return linear_gelu(*v).float().sin().sum()

    got = torch.autograd.grad(torch.compile(f, backend="aot_eager", fullgraph=True)(*xs), xs)
    for g, e in zip(got, torch.autograd.grad(f(*xs), xs), strict=True):
        assert g.dtype == torch.float32
        torch.testing.assert_close(g, e, rtol=0.05, atol=0.05)
