"""Corners: values kept twice or returned as they came, several outputs beside kept ones, missing cotangents, scalars, empty tensors."""

import pytest
import torch
from authoring_zoo import linear_gelu, muladd, normal
from torch.autograd import gradcheck, gradgradcheck

import pullback as pb


def leaf(*shape):
    return normal(*shape).requires_grad_()


def test_a_kept_value_that_is_the_output():
    @pb.op
    def exp(x):
        y = torch.exp(x)
        return pb.keep(y, y=y)

    exp.vjp("y")(lambda dy: dy)
    exp.vjp("x", of="y")(lambda dy, y: dy * y)
    x = leaf(3)
    assert gradcheck(exp, x, check_forward_ad=True)
    assert gradgradcheck(exp, x)


def test_a_kept_value_that_is_an_argument():
    @pb.op
    def square(x, on=True):
        z = x
        return pb.keep(z * z, z=z)

    square.vjp("z")(lambda dy, z: 2 * dy * z)
    square.vjp("x", of="z")(lambda dz: dz)
    x = leaf(3)
    assert gradcheck(square, x, check_forward_ad=True)
    assert gradgradcheck(square, x)


def test_an_identity_op():
    @pb.op
    def reverse_gradient(x, scale: float = 1.0):
        return x

    reverse_gradient.vjp("x", exact=False)(lambda dy, scale: -scale * dy)
    x = torch.ones(2, requires_grad=True)
    y = reverse_gradient(x, 2.0)
    y.sum().backward()
    assert x.grad.tolist() == [-2, -2]
    assert torch.func.grad(lambda x: reverse_gradient(x).sum())(torch.ones(2)).tolist() == [-1, -1]
    assert torch.vmap(torch.func.grad(lambda x: reverse_gradient(x).sum()))(torch.ones(2, 2)).eq(-1).all()


@pytest.mark.parametrize("undefined", ["zeros", "none"])
def test_several_outputs_beside_a_kept_value(undefined):
    @pb.op
    def both(x):
        e = torch.exp(x)
        return pb.keep((e * 2, e.sum()), e=e)

    @both.vjp("e", undefined=undefined)
    def _(dys):
        a, b = dys
        if undefined == "zeros":
            return 2 * a + b
        return 2 * (0 if a is None else a) + (0 if b is None else b) * torch.ones(3, dtype=torch.float64)

    both.vjp("x", of="e")(lambda de, e: de * e)
    x = leaf(3)
    for call in (both, lambda x: both(x)[0], lambda x: both(x)[1]):
        assert gradcheck(call, x, check_forward_ad=True)
        assert gradgradcheck(call, x)
        got = torch.func.jacrev(lambda x, call=call: sum(v.sum() for v in call(x)) if isinstance(call(x), tuple) else call(x).sum())(x.detach())
        assert got.shape == (3,)


def test_missing_cotangents_under_transforms_are_zeros():
    @pb.op
    def pair(x):
        return x * 1, x * 2

    @pair.vjp("x")
    def _(dys):
        return dys[0] + 2 * dys[1]

    x = normal(3)
    assert torch.func.grad(lambda x: pair(x)[1].sum())(x).tolist() == [2, 2, 2]
    assert torch.vmap(torch.func.grad(lambda x: pair(x)[0].sum()))(normal(2, 3)).eq(1).all()
    _, tangents = torch.func.jvp(pair, (x,), (x,))
    torch.testing.assert_close(tangents, (x, 2 * x))


def test_scalars_and_empty_tensors():
    a, b, c = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (1.0, 2.0, 3.0))
    assert gradcheck(muladd, (a, b, c))
    x = torch.empty(0, 3, dtype=torch.float64, requires_grad=True)
    w = leaf(4, 3)
    gx, gw = torch.autograd.grad(linear_gelu(x, w).sum(), (x, w))
    assert gx.shape == (0, 3)
    assert gw.eq(0).all()


def test_expanded_and_transposed_cotangents():
    x, w = leaf(4, 3), leaf(5, 3)
    for dy in (torch.ones(1, dtype=torch.float64).expand(4, 5), normal(5, 4).T, normal(8, 5)[::2]):
        got = torch.autograd.grad(linear_gelu(x, w), (x, w), dy)
        expected = torch.autograd.grad(torch.nn.functional.gelu(x @ w.T, approximate="tanh"), (x, w), dy)
        torch.testing.assert_close(got, expected)


def test_complex_cotangents_and_a_real_argument():
    @pb.op
    def rotate(x, angle):
        return x * torch.exp(1j * angle)

    rotate.vjp("x")(lambda dy, angle: dy * torch.exp(-1j * angle))
    rotate.vjp("angle")(lambda dy, out: (dy * (1j * out).conj()).real)
    x = normal(3, dtype=torch.complex128).requires_grad_()
    angle = leaf(3)
    assert gradcheck(rotate, (x, angle), check_forward_ad=True)
    assert gradgradcheck(rotate, (x, angle))


def test_float32_arguments_with_a_float64_one():
    x, b = torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.float64, requires_grad=True)
    muladd(x, x, b).sum().backward()
    assert (x.grad.dtype, b.grad.dtype) == (torch.float32, torch.float64)


def test_inference_mode():
    with torch.inference_mode():
        assert muladd(torch.ones(2), torch.ones(2), 1.0).tolist() == [2, 2]


def test_an_error_in_the_body_is_the_users_own():
    @pb.op
    def bad(x):
        raise KeyError("mine")

    bad.vjp("x")(lambda dy: dy)
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            bad(torch.ones(1, requires_grad=True))


def test_an_identity_with_a_declared_gradient_under_a_dual_level():
    """Torch asks for the tangent of a view to be a view."""

    @pb.op(elementwise=True)
    def reverse_gradient(x):
        return x.view_as(x)

    reverse_gradient.surrogate(lambda x: -x)
    reverse_gradient.vjp("x")(lambda dy: -dy)
    x, tangent = torch.ones(2), torch.tensor([1.0, 2.0])
    with torch.autograd.forward_ad.dual_level():
        y = reverse_gradient(torch.autograd.forward_ad.make_dual(x, tangent))
        assert torch.autograd.forward_ad.unpack_dual(y).tangent.tolist() == [-1.0, -2.0]
    assert torch.func.jvp(reverse_gradient, (x,), (tangent,))[1].tolist() == [-1.0, -2.0]


def test_an_op_whose_arguments_are_all_static():
    @pb.op(static=("x", "y"))
    def shift(x, y: float = 1.0):
        """Constant."""
        return x.detach() + y

    x = torch.ones(2, requires_grad=True)
    assert not shift(x).requires_grad
    assert torch.func.grad(lambda x: (shift(x, y=2.0) * x).sum())(x.detach()).tolist() == [3.0, 3.0]
    assert torch.compile(shift, backend="eager", fullgraph=True)(x).tolist() == [2.0, 2.0]


class Undefined(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return None


def plus_two(x):
    return x * 1.0


def plus_kept(x):
    return pb.keep(x * 1.0, shift=2.0)


@pytest.mark.parametrize(("body", "rule"), [(plus_two, lambda dy: dy + 2.0), (plus_kept, lambda dy, shift: dy + shift)])
def test_a_rule_that_is_not_linear_gets_zeros_where_nothing_came(body, rule):
    op = pb.op(body)
    op.vjp("x", exact=False, linear=False)(rule)
    x = torch.ones(2, requires_grad=True)
    assert torch.autograd.grad(Undefined.apply(op(x)).sum(), x)[0].tolist() == [2.0, 2.0]


def test_a_kept_value_in_columns_has_first_derivatives_in_forward_mode():
    """Its tangent, which nobody may use, is laid out as it is."""

    @pb.op
    def square(x):
        return pb.keep(x * x, rows=x.t().contiguous().t())

    square.vjp("x")(lambda dy, rows: 2 * dy * rows)
    x, tangent = normal(2, 3), normal(2, 3)
    torch.testing.assert_close(torch.func.jvp(square, (x,), (tangent,))[1], 2 * x * tangent)
    with torch.autograd.forward_ad.dual_level():
        y = square(torch.autograd.forward_ad.make_dual(x, tangent))
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(y).tangent, 2 * x * tangent)


def test_a_static_argument_is_a_constant_to_forward_mode():
    @pb.op(static=("scale",), elementwise=True)
    def scaled(x, scale):
        return x * scale

    scaled.vjp("x")(lambda dy, scale: dy * scale)
    x, scale = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert torch.func.jvp(scaled, (x, scale), (x, scale))[1].tolist() == [3.0, 8.0]
    assert torch.func.jvp(lambda scale: scaled(x, scale), (scale,), (scale,))[1].tolist() == [0.0, 0.0]
    with torch.autograd.forward_ad.dual_level():
        y = scaled(x, torch.autograd.forward_ad.make_dual(scale, scale))
        tangent = torch.autograd.forward_ad.unpack_dual(y).tangent
    assert tangent is None or not tangent.any()


def test_no_arguments_behind_a_star():
    @pb.op(static=("first",))
    def total(first, *rest):
        return sum(rest, first.detach() * 1.0)

    total.vjp("rest")(lambda dy, rest: tuple([dy for _ in rest]))
    assert total(torch.ones(2)).tolist() == [1.0, 1.0]
    assert total(torch.ones(2), torch.ones(2, requires_grad=True)).requires_grad


@pb.op
def sine(x):
    return torch.sin(x)


@sine.vjp("x")
def _(dy, x):
    return dy * sine(x + torch.pi / 2)


def test_a_rule_that_calls_its_own_op_ends_under_a_dual_level():
    x, tangent = normal(3), normal(3)
    with torch.autograd.forward_ad.dual_level():
        y = sine(torch.autograd.forward_ad.make_dual(x, tangent))
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(y).tangent, x.cos() * tangent)


def test_kept_integers_are_saved_without_an_output_of_their_own():
    @pb.op
    def thinned(x, several):
        mask = (x > 0).to(torch.uint8)
        kept = x * mask
        return pb.keep((kept, -kept) if several else kept, mask=mask, count=int(mask.sum()))

    @thinned.vjp("x")
    def _(dy, mask, several, count):
        assert isinstance(count, int)
        return (dy[0] - dy[1] if several else dy) * mask

    x = torch.tensor([-1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    for _ in range(10):  # the first calls take another way
        y = thinned(x, False)
        gradient = torch.autograd.grad(y, x, torch.tensor([5.0, 6.0, 7.0], dtype=torch.float64))[0]
        assert gradient.tolist() == [0, 6, 7]
        first, second = thinned(x, True)
        assert torch.autograd.grad(first.sum() + 3 * second.sum(), x)[0].tolist() == [0, -2, -2]
    assert torch.autograd.gradgradcheck(lambda x: thinned(x, False), x)
    assert pb.saved(thinned(x, False)).extra == 3
