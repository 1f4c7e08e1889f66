"""Rules by name in eager mode: what is computed, and what is kept."""

import gc
import weakref
from dataclasses import dataclass

import pytest
import torch
from authoring_zoo import ZOO, affine, exp_scale_, linear_gelu, moments, muladd, normal, product, rms_norm, swish, top, weighted_sum
from torch.autograd import gradcheck, gradgradcheck

import pullback as pb


def leaf(*shape):
    return normal(*shape).requires_grad_()


def kept_bytes(call):
    """Bytes that save_for_backward keeps during `call`, each storage once."""
    seen = {}

    def pack(tensor):
        seen[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = call()
    return sum(seen.values()), out


SECOND = [
    name
    for name, entry in ZOO.items()
    if entry.orders == 2 and not any(word in name for word in ("random", "surrogate", "in-place", "integer output"))
]


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_are_exact(name):
    entry = ZOO[name]
    torch.manual_seed(0)
    xs = tuple(x.requires_grad_() for x in entry.inputs())

    def call(*values):
        out = entry.call(entry.op, *values)
        return out if isinstance(out, torch.Tensor) else tuple(out)

    assert gradcheck(call, xs, check_forward_ad=True)
    assert gradgradcheck(call, xs, check_fwd_over_rev=True)


@pytest.mark.parametrize(
    "name", ["muladd (broadcasting)", "linear_gelu (of=)", "inverse (matrix, out)", "logsumexp (statistic, of=)", "numpy_sin (opaque, numpy)"]
)
def test_third_derivatives_equal_nested_autograd(name):
    entry = ZOO[name]
    torch.manual_seed(0)
    inputs = entry.inputs()

    def third(function):
        xs = tuple(x.clone().requires_grad_() for x in inputs)
        value = entry.call(function, *xs).sin().sum()
        for _ in range(2):
            grads = torch.autograd.grad(value, xs, create_graph=True)
            value = sum((g * g.cos()).sum() for g in grads)
        return torch.autograd.grad(value, xs)

    for got, expected in zip(third(entry.op), third(entry.reference), strict=True):
        torch.testing.assert_close(got, expected)


def test_each_frozen_argument_frees_what_only_its_gradient_reads():
    x, w = torch.randn(64, 32), torch.randn(16, 32)
    sizes = {}
    for frozen in ("", "x", "w"):
        a, b = x.clone().requires_grad_(frozen != "x"), w.clone().requires_grad_(frozen != "w")
        sizes[frozen], _ = kept_bytes(lambda a=a, b=b: linear_gelu(a, b))
    z = 64 * 16 * 4
    assert sizes == {"": z + x.nbytes + w.nbytes, "x": z + x.nbytes, "w": z + w.nbytes}


def test_a_bias_alone_keeps_nothing():
    size, out = kept_bytes(lambda: muladd(torch.randn(4), torch.randn(4), torch.randn(4, requires_grad=True)))
    assert size == 0
    assert out.requires_grad


def test_a_joint_rule_keeps_what_the_wanted_gradient_needs():
    a, b = torch.randn(8, 4), torch.randn(4, 2)
    assert kept_bytes(lambda: product(a.requires_grad_(), b))[0] == b.nbytes
    assert kept_bytes(lambda: product(a.detach(), b.requires_grad_()))[0] == a.nbytes


def test_a_surrogate_that_is_the_identity_keeps_nothing():
    entry = ZOO["round_ste (surrogate)"]
    x = torch.randn(100, requires_grad=True)
    size, out = kept_bytes(lambda: entry.op(x))
    assert size == 0
    assert torch.autograd.grad(out.sum(), x)[0].eq(1).all()


def test_a_surrogate_keeps_what_its_gradient_reads():
    entry = ZOO["spike (surrogate)"]
    x, slope = torch.randn(100, requires_grad=True), torch.ones(1)
    assert kept_bytes(lambda: entry.op(x, slope))[0] == x.nbytes + slope.nbytes


def spike_with(slope_of):
    @pb.op(static=("width",))
    def spike(x, width: float):
        return (x > 0).to(x.dtype)

    spike.surrogate(lambda x, width: torch.atan(x / width))
    spike.vjp("x")(slope_of)
    return spike


def test_rules_may_compute_the_gradient_of_a_surrogate():
    spike = spike_with(lambda dy, x, width: dy * width / (width * width + x * x))
    x = torch.linspace(-1, 1, 6, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(spike(x, 0.5).sum(), x)[0], torch.autograd.grad(torch.atan(x / 0.5).sum(), x)[0])
    found = torch.func.jvp(lambda x: spike(x, 0.5), (x.detach(),), (torch.ones_like(x),))[1]
    torch.testing.assert_close(found, torch.autograd.grad(torch.atan(x / 0.5).sum(), x)[0])
    assert [run.status for run in pb.check(spike, (x.detach(), 0.5), select=["PB508"]).checks] == ["pass"]


def test_rules_that_are_not_the_surrogates_gradient_are_found():
    spike = spike_with(lambda dy, x, width: dy / (width * width + x * x))
    report = pb.check(spike, (torch.linspace(-1, 1, 6, dtype=torch.float64), 0.5), select=["PB508"])
    assert [finding.code for finding in report.findings] == ["PB508"]


@pb.op(static=("width",))
def step(x, *, width: float = 0.5):
    return (x > 0).to(x.dtype)


@step.surrogate
def _(x, width):
    return torch.atan(x / width)


def test_a_declared_surrogate_is_called_as_the_op_is():
    """It need not repeat defaults, nor which arguments are given by keyword."""
    x = torch.linspace(-1, 1, 6, dtype=torch.float64)
    declared = step.__pullback__
    torch.testing.assert_close(declared["surrogate"](x), torch.atan(x / 0.5))
    torch.testing.assert_close(declared["surrogate"](x, width=2.0), torch.atan(x / 2))
    torch.testing.assert_close(declared["reference"](x, width=2.0), (x > 0).double())
    assert [run.status for run in pb.check(step, x, select=["PB508"]).checks] == ["pass"]


def test_no_node_is_made_where_no_gradient_is_wanted():
    x = torch.randn(3)
    assert muladd(x, x, x).grad_fn is None
    with torch.no_grad():
        assert muladd(x.requires_grad_(), x, x).grad_fn is None


def test_residuals_die_with_the_graph():
    x = torch.randn(3, requires_grad=True)
    y = linear_gelu(x.unsqueeze(0), torch.randn(4, 3))
    node = weakref.ref(y.grad_fn)
    gc.disable()
    try:
        del y
        assert node() is None
    finally:
        gc.enable()


def test_gradients_reach_every_tensor_of_a_container():
    @dataclass
    class Config:
        scale: torch.Tensor
        shifts: list
        name: str = "none"

    @pb.op
    def act(x, cfg):
        return x * cfg.scale + cfg.shifts[0] - cfg.shifts[1]["deep"]

    @act.vjp("x")
    def _(dy, cfg):
        return dy * cfg.scale

    @act.vjp("cfg")
    def _(dy, x, cfg):
        return Config(dy * x, [dy, {"deep": -dy}], cfg.name)

    x, s, a, b = leaf(3), leaf(3), leaf(1), leaf(3)
    assert gradcheck(lambda x, s, a, b: act(x, Config(s, [a, {"deep": b}])), (x, s, a, b))
    y = act(x.detach(), cfg=Config(s.detach(), [a, {"deep": b.detach()}], "kept"))
    (grad,) = torch.autograd.grad(y.sum(), a)
    assert grad.item() == 3


def test_a_container_of_other_values_is_handed_through():
    @pb.op
    def scale_to(x, shape):
        return x.sum() * torch.ones(shape)

    @scale_to.vjp("x")
    def _(dy, x, shape):
        assert shape == [2, 3]
        return dy.sum().expand(x.shape)

    x = torch.randn(4, requires_grad=True)
    scale_to(x, [2, 3]).sum().backward()
    assert x.grad.eq(6).all()


def test_outputs_keep_their_structure():
    x = leaf(2, 4)
    assert type(moments(x)).__name__ == "Moments"
    assert isinstance(top(x), tuple)

    @pb.op
    def both(x):
        return {"double": 2 * x, "parts": [x, 3]}

    @both.vjp("x")
    def _(dys):
        return 2 * dys["double"] + dys["parts"][0]

    out = both(x)
    assert list(out) == ["double", "parts"]
    assert out["parts"][1] == 3
    assert gradcheck(lambda x: (both(x)["double"], both(x)["parts"][0]), x)


def test_undefined_cotangents_are_zeros_or_none_as_the_rule_asks():
    seen = []

    @pb.op
    def pair(x, y):
        return x * 1, y * 1

    @pair.vjp("x")
    def _(dys):
        seen.append(dys)
        return dys[0]

    @pair.vjp("y", undefined="none")
    def _(dys):
        seen.append(dys)
        return dys[1]

    x, y = leaf(3), leaf(2)
    pair(x, y)[0].sum().backward()
    assert seen[0][1].eq(0).all()
    assert seen[1][1] is None
    assert y.grad is None or y.grad.eq(0).all()
    assert x.grad.eq(1).all()


def test_a_bare_statistic_has_first_derivatives_and_refuses_second_ones_by_name():
    x = leaf(2, 4)
    assert gradcheck(rms_norm, x)
    (grad,) = torch.autograd.grad(rms_norm(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"rms_norm .*second derivative needs the derivative of the kept value 'r'"):
        grad.sum().backward()


def test_a_bare_statistic_refuses_forward_over_reverse_too():
    x = leaf(2, 4)
    assert gradcheck(rms_norm, x, check_forward_ad=True)
    with pytest.raises(RuntimeError, match="kept value 'r'"):
        torch.func.hessian(lambda x: rms_norm(x).sum())(x.detach())


def test_once_refuses_every_way_to_a_second_derivative():
    @pb.op
    def cube(x):
        return x**3

    @cube.vjp("x", once=True)
    def _(dy, x):
        return 3 * x * x * dy

    x = torch.tensor(2.0, requires_grad=True)
    (first,) = torch.autograd.grad(cube(x), x)
    assert first.item() == 12
    (grad,) = torch.autograd.grad(cube(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"cube.vjp\[x\].*once=True"):
        grad.backward()
    with pytest.raises(RuntimeError, match="once=True"):
        torch.func.grad(torch.func.grad(cube))(torch.tensor(2.0))
    with pytest.raises(RuntimeError, match="once=True"):
        torch.func.jvp(cube, (torch.tensor(2.0),), (torch.tensor(1.0),))
    assert torch.func.grad(cube)(torch.tensor(2.0)).item() == 12
    assert torch.vmap(torch.func.grad(cube))(torch.tensor([1.0, 2.0])).tolist() == [3, 12]


def test_in_place_changes_the_argument_and_bumps_its_version():
    x, s = torch.ones(3), torch.tensor(2.0, requires_grad=True)
    before = x._version
    y = exp_scale_(x, s)
    assert y is x
    assert x._version > before
    y.sum().backward()
    assert s.grad.item() == pytest.approx(3 * torch.e**2)
    with pytest.raises(RuntimeError, match="leaf"):
        exp_scale_(torch.ones(3, requires_grad=True), s)


def test_a_tensor_in_place_of_a_number_gets_its_gradient():
    x, beta = leaf(3), leaf(1)
    assert gradcheck(swish, (x, beta))
    assert gradcheck(lambda x: swish(x, beta=0.5), x)
    assert gradcheck(lambda x: swish(x), x)


def test_recompute_draws_the_same_numbers_and_leaves_the_generator_alone():
    entry = ZOO["noisy (random, no rules)"]
    x, s = leaf(5), leaf(5)
    torch.manual_seed(1)
    y = entry.op(x, s)
    after = torch.get_rng_state()
    grads = torch.autograd.grad(y.sum(), (x, s), create_graph=True)
    assert torch.equal(torch.get_rng_state(), after)
    torch.manual_seed(1)
    expected = torch.autograd.grad(entry.reference(x, s).sum(), (x, s))
    for got, want in zip(grads, expected, strict=True):
        torch.testing.assert_close(got, want)
    assert kept_bytes(lambda: entry.op(x, s))[0] == x.nbytes + s.nbytes


def test_remember_all_keeps_what_autograd_keeps():
    @pb.op(remember="all")
    def body(x):
        return torch.tanh(torch.tanh(x))

    x = torch.randn(10, requires_grad=True)
    assert kept_bytes(lambda: body(x))[0] == 2 * x.nbytes
    torch.testing.assert_close(torch.autograd.grad(body(x).sum(), x), torch.autograd.grad(torch.tanh(torch.tanh(x)).sum(), x))


def test_variadic_arguments_are_one_name():
    xs = tuple(leaf(3) for _ in range(3))
    assert gradcheck(weighted_sum, xs)
    size, _ = kept_bytes(lambda: weighted_sum(xs[0], xs[1].detach()))
    assert size == xs[0].nbytes + xs[1].nbytes


def test_a_kernel_for_another_device_takes_over():
    @pb.op
    def double(x):
        return 2 * x

    @double.kernel("meta")
    def _(x):
        return torch.empty(7, device="meta")

    @double.vjp("x")
    def _(dy):
        return 2 * dy

    @double.vjp("x").kernel("meta")
    def _(dy):
        return torch.empty(3, device="meta")

    assert double(torch.ones(2)).tolist() == [2, 2]
    y = double(torch.ones(3, device="meta", requires_grad=True))
    assert y.shape == (7,)
    x = torch.ones(2, requires_grad=True)
    double(x).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_a_given_jvp_is_used():
    calls = []

    @pb.op
    def square(x, n=2):
        return x**n

    @square.vjp("x")
    def _(dy, x):
        return 2 * x * dy

    @square.jvp
    def _(tangents, x, n):
        calls.append(n)
        return n * x * tangents.x

    _, tangent = torch.func.jvp(square, (torch.tensor(3.0),), (torch.tensor(1.0),))
    assert tangent.item() == 6
    assert calls == [2]


def test_a_given_vmap_is_used_for_the_forward():
    calls = []

    @pb.op
    def double(x):
        return x * 2

    @double.vjp("x")
    def _(dy):
        return dy * 2

    @double.vmap
    def _(info, in_dims, x):
        calls.append((info.batch_size, in_dims))
        return x * 2, in_dims[0]

    x = torch.randn(4, 3)
    assert torch.equal(torch.vmap(double, in_dims=1, out_dims=1)(x), 2 * x)
    assert calls == [(3, (1,))]
    assert torch.vmap(torch.func.grad(lambda x: double(x).sum()))(x).eq(2).all()


def test_guided_relu_is_declared_and_has_no_derived_jvp():
    @pb.op
    def guided_relu(x):
        """Guided backpropagation."""
        return x.clamp(min=0)

    @guided_relu.vjp("x", exact=False, linear=False)
    def _(dy, x):
        return dy * (x > 0) * (dy > 0)

    assert guided_relu.__pullback__["exact"] is False
    assert guided_relu.__pullback__["linear"] is False
    assert guided_relu.__pullback__["reason"] == "Guided backpropagation."
    x = torch.tensor([1.0, 1.0, -1.0], requires_grad=True)
    guided_relu(x).backward(torch.tensor([1.0, -1.0, 1.0]))
    assert x.grad.tolist() == [1, 0, 0]
    with pytest.raises(RuntimeError, match="linear=False, so no jvp"):
        torch.func.jvp(guided_relu, (x.detach(),), (torch.ones(3),))


def test_a_detached_rule_gives_no_silent_zero_tangent():
    @pb.op
    def double(x):
        return x * 2

    @double.vjp("x")
    def _(dy):
        return torch.from_numpy(dy.detach().numpy() * 2) if not torch._C._are_functorch_transforms_active() else dy.detach() * 2

    with pytest.raises(RuntimeError, match="cut off from its cotangent"):
        torch.func.jvp(double, (torch.ones(2),), (torch.ones(2),))


def test_a_zero_rule_has_a_zero_tangent():
    @pb.op
    def rounded(x):
        return torch.round(x)

    @rounded.vjp("x")
    def _(dy):
        return torch.zeros_like(dy)

    _, tangent = torch.func.jvp(rounded, (torch.ones(2),), (torch.ones(2),))
    assert tangent.tolist() == [0, 0]


def test_everything_kept_goes_through_saved_tensor_hooks():
    x, w, b = leaf(2, 3), leaf(4, 3), leaf(4)
    expected = torch.autograd.grad(linear_gelu(x, w, b).sum(), (x, w, b))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.to(torch.float32), lambda t: t.to(torch.float64)):
        y = linear_gelu(x, w, b)
    got = torch.autograd.grad(y.sum(), (x, w, b))
    assert not all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    for a, e in zip(got, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(
    "name", ["linear_gelu (of=)", "noisy (random, no rules)", "affine (container)", "split (several outputs)", "numpy_sin (opaque, numpy)"]
)
def test_checkpoint_gives_the_same_gradients(name, reentrant):
    from torch.utils.checkpoint import checkpoint

    entry = ZOO[name]
    torch.manual_seed(2)
    xs = tuple(x.requires_grad_() for x in entry.inputs())

    def run(function, wrapped):
        torch.manual_seed(4)
        body = lambda *v: entry.call(function, *v)  # noqa: E731
        out = checkpoint(body, *xs, use_reentrant=reentrant) if wrapped else body(*xs)
        total = out.sum() if isinstance(out, torch.Tensor) else sum(o.sum() for o in out)
        return torch.autograd.grad(total, xs) if not (wrapped and reentrant) else _backward(total, xs)

    for got, want in zip(run(entry.op, True), run(entry.reference, False), strict=True):
        torch.testing.assert_close(got, want)


def _backward(total, xs):
    for x in xs:
        x.grad = None
    total.backward()
    return tuple(x.grad for x in xs)


def test_retain_graph_gives_the_same_twice():
    x, w = leaf(2, 3), leaf(4, 3)
    y = linear_gelu(x, w).sum()
    first = torch.autograd.grad(y, (x, w), retain_graph=True)
    second = torch.autograd.grad(y, (x, w))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, (x, w))


@pytest.mark.parametrize("name", [name for name in ZOO if "complex" not in name and "random" not in name])
def test_forward_mode_with_one_tangent_at_a_time_and_in_any_layout(name):
    from torch.autograd import forward_ad

    entry = ZOO[name]
    torch.manual_seed(0)
    inputs = entry.inputs()
    for i in range(len(inputs)):
        with forward_ad.dual_level():

            def run(function, i=i):
                xs = [x.mT.contiguous().mT if x.dim() > 1 else x for x in inputs]
                xs[i] = forward_ad.make_dual(xs[i], inputs[i].cos())
                out = entry.call(function, *xs)
                outs = (out,) if isinstance(out, torch.Tensor) else tuple(out)
                return [forward_ad.unpack_dual(o).tangent for o in outs if o.is_floating_point()]

            for got, expected in zip(run(entry.op), run(entry.reference), strict=True):
                torch.testing.assert_close(
                    torch.zeros(()) if got is None else got, torch.zeros(()) if expected is None else expected, check_dtype=False
                )


def test_affine_gradients_agree_with_the_composite():
    x, a, b = leaf(3), leaf(3), leaf(3)
    assert gradcheck(lambda x, a, b: affine(x, {"scale": a, "shift": b}), (x, a, b))


def test_a_residual_that_keeps_does_not_divide_is_kept_for_every_target():
    @pb.op
    def product(a, b, scale: float = 2.0):
        return scale * a * b

    @product.vjp("a", "b", keeps={"a": ("b",), "b": ("a",)})
    def _(dy, a, b, scale, wanted):
        return (scale * dy * b if wanted[0] else None, scale * dy * a if wanted[1] else None)

    a, b = leaf(3), leaf(3)
    assert torch.equal(torch.autograd.grad(product(a, b.detach()).sum(), a)[0], 2 * b.detach())
    assert torch.equal(torch.autograd.grad(product(a.detach(), b).sum(), b)[0], 2 * a.detach())
