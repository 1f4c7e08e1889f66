"""Transforms beyond the matrix: any nesting of three, linearize, dynamic shapes, calls in one graph, memory under torch.func."""

import itertools

import pytest
import torch
from authoring_zoo import ZOO, linear_gelu, normal, round_ste, split, swish, weighted_sum

import pullback as pb

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

LAYERS = {
    "grad": lambda f: lambda x: torch.func.grad(lambda v: f(v).sin().sum())(x),
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (x.cos(),))[1],
    "vmap": lambda f: lambda x: torch.vmap(f)(torch.stack([x, x * 0.5])).sum(0),
    "jacrev": lambda f: lambda x: torch.func.jacrev(lambda v: f(v).sum())(x),
    "vjp": lambda f: lambda x: torch.func.vjp(f, x)[1](x.sin())[0],
}
SAME_SHAPE = ["swish (number, keyword)", "numpy_sin (opaque, numpy)", "inverse (matrix, out)", "round_ste (surrogate)", "softplus (elementwise)"]


def composed(layers, f):
    for layer in reversed(layers):
        f = LAYERS[layer](f)
    return f


@pytest.mark.parametrize("name", SAME_SHAPE)
def test_any_nesting_of_three(name):
    entry = ZOO[name]
    torch.manual_seed(0)
    (x,) = entry.inputs()
    for layers in itertools.product(["grad", "jvp", "vmap"], repeat=3):
        got = composed(layers, lambda v: entry.call(entry.op, v))(x)
        expected = composed(layers, lambda v: entry.call(entry.reference, v))(x)
        torch.testing.assert_close(got, expected, msg=lambda text, layers=layers: f"{layers}: {text}")


@pytest.mark.parametrize("layers", [("vjp", "jvp", "grad"), ("jacrev", "vmap", "vjp"), ("vjp", "vjp", "jvp")])
def test_other_nestings(layers):
    entry = ZOO["swish (number, keyword)"]
    x = normal(3)
    torch.testing.assert_close(composed(layers, lambda v: entry.call(entry.op, v))(x), composed(layers, lambda v: entry.call(entry.reference, v))(x))


def test_transforms_inside_a_plain_backward():
    entry = ZOO["linear_gelu (of=)"]
    xs = tuple(x.requires_grad_() for x in entry.inputs())

    def penalty(function):
        jvp = torch.func.jvp(lambda x: function(x, *xs[1:]), (xs[0],), (xs[0].detach().cos(),))[1]
        inner = torch.func.grad(lambda x: function(x, *xs[1:]).sum())(xs[0])
        return torch.autograd.grad(jvp.pow(2).sum() + inner.pow(2).sum(), xs)

    for got, expected in zip(penalty(entry.op), penalty(entry.reference), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
def test_linearize():
    x = normal(3)
    value, push = torch.func.linearize(lambda v: swish(v, 1.5), x)
    expected = torch.func.jvp(lambda v: v * torch.sigmoid(1.5 * v), (x,), (x.cos(),))[1]
    torch.testing.assert_close(push(x.cos()), expected)
    torch.testing.assert_close(value, swish(x, 1.5))


def test_a_rule_may_call_another_op_after_its_transform_has_ended():
    @pb.op
    def sin(x):
        return torch.sin(x)

    @pb.op
    def cos(x):
        return torch.cos(x)

    sin.vjp("x")(lambda dy, x: dy * cos(x))
    cos.vjp("x")(lambda dy, x: -dy * sin(x))
    x, dy = normal(3).requires_grad_(), normal(3).requires_grad_()
    _, pull = torch.func.vjp(sin, x)
    got = torch.autograd.grad(pull(dy)[0].sum(), (x, dy))
    torch.testing.assert_close(got, (-dy * torch.sin(x), torch.cos(x)))


def test_func_grad_keeps_only_what_is_wanted():
    kept = []
    x, w = normal(8, 3), normal(4, 3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(tuple(t.shape)) or t, lambda t: t):
        linear_gelu(x.requires_grad_(), w)
    assert (8, 3) not in kept


def test_compile_with_dynamic_shapes():
    compiled = torch.compile(lambda x, b: swish(x, b).sum(), backend="aot_eager", fullgraph=True, dynamic=True)
    for n in (3, 5, 9):
        x, b = normal(n).requires_grad_(), normal(1).requires_grad_()
        got = torch.autograd.grad(compiled(x, b), (x, b))
        torch.testing.assert_close(got, torch.autograd.grad((x * torch.sigmoid(b * x)).sum(), (x, b)))


def test_compiled_transforms_of_a_surrogate_keep_its_gradient():
    x = torch.tensor([0.4, 1.6, 2.5])
    f = lambda x: (round_ste(x) * 3).sum()  # noqa: E731
    assert torch.compile(torch.func.grad(f), backend="aot_eager", fullgraph=True)(x).tolist() == [3, 3, 3]


def test_several_structures_in_one_graph():
    x = normal(6).requires_grad_()

    def f(x):
        a, b = split(x, 2)
        c, d = split(b, 1, dim=0)
        return weighted_sum(a, a * 2).sum() + (c * 3).sum() + weighted_sum(d, d, d).sum()

    got = torch.autograd.grad(torch.compile(f, backend="aot_eager", fullgraph=True)(x), x)
    torch.testing.assert_close(got, torch.autograd.grad(f(x), x))


def test_vmap_of_an_opaque_op_says_once_that_it_loops():
    import warnings

    @pb.op(opaque=True)
    def total(x):
        return torch.from_numpy(x.numpy().cumsum())

    with pytest.warns(UserWarning, match="total .* is opaque and has no vmap rule, so vmap calls it once for each of the 3 examples"):
        assert torch.equal(torch.vmap(total)(torch.ones(3, 2)), torch.ones(3, 2).cumsum(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.vmap(total)(torch.ones(3, 2))


def test_opaque_in_place_and_several_outputs():
    @pb.op(opaque=True, mutates=("x",))
    def scale_(x, by):
        x.numpy().__imul__(by.item())
        return x, x.sum()

    @scale_.fake
    def _(x, by):
        return x, x.new_empty(())

    @scale_.vjp("x")
    def _(dys, by):
        return (dys[0] + dys[1]) * by

    by = torch.tensor(3.0)
    x = torch.ones(2, requires_grad=True)
    y, total = scale_(x * 1, by)
    assert (y.tolist(), total.item()) == ([3, 3], 6)
    (y.sum() + total).backward()
    assert x.grad.tolist() == [6, 6]
    f = lambda x: sum(v.sum() for v in scale_(x * 1, by))  # noqa: E731
    assert torch.func.grad(f)(torch.ones(2)).tolist() == [6, 6]
    x = torch.ones(2, requires_grad=True)
    assert torch.autograd.grad(torch.compile(f, backend="aot_eager", fullgraph=True)(x), x)[0].tolist() == [6, 6]


def test_opaque_op_that_keeps_a_value():
    @pb.op(opaque=True)
    def tanh(x):
        y = torch.from_numpy(x.numpy()).tanh()
        return pb.keep(y * 1, slope=1 - y * y)

    @tanh.fake
    def _(x):
        return pb.keep(torch.empty_like(x), slope=torch.empty_like(x))

    tanh.vjp("x")(lambda dy, slope: dy * slope)
    x = normal(3).requires_grad_()
    expected = torch.autograd.grad(torch.tanh(x).sum(), x)
    torch.testing.assert_close(torch.autograd.grad(tanh(x).sum(), x), expected)
    compiled = torch.compile(lambda x: tanh(x).sum(), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x), expected)
