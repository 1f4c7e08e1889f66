"""An op of `*args` alone: after its first calls it takes a short way, which must do what the long one does."""

import pytest
import torch

import pullback as pb
from pullback.authoring.probation import CALLS

Tensor = torch.Tensor


def made(outputs=tuple, returns=tuple):
    @pb.op
    def sines(*xs):
        return outputs([torch.sin(x) for x in xs])

    @sines.vjp("xs")
    def _(dys, xs):
        return returns([dy * torch.cos(x) for dy, x in zip(dys, xs, strict=True)])

    for _ in range(CALLS + 1):
        for size in (2, 3):
            sines(*[torch.ones(2, requires_grad=True) for _ in range(size)])
    return sines


def draw(*wanted):
    torch.manual_seed(0)
    return [torch.randn(3, dtype=torch.float64).requires_grad_(flag) for flag in wanted]


@pytest.mark.parametrize("make", [made, lambda returns: made(list, returns), lambda returns: with_dict(returns)], ids=["tuple", "list", "dict"])
@pytest.mark.parametrize("returns", [tuple, list])
@pytest.mark.parametrize("wanted", [(True, True, True), (True, False, True), (False, True)])
def test_gradients_of_any_arguments_in_any_structure(make, returns, wanted):
    sines, xs = make(returns=returns), draw(*wanted)
    result = sines(*xs)
    ys = [result["first"], *result["rest"]] if isinstance(result, dict) else result
    sum((i + 1) * y.sum() for i, y in enumerate(ys)).backward()
    for i, x in enumerate(xs):
        assert (x.grad is None) is not x.requires_grad
        if x.requires_grad:
            torch.testing.assert_close(x.grad, (i + 1) * torch.cos(x.detach()))


def with_dict(returns):
    @pb.op
    def sines(*xs):
        ys = [torch.sin(x) for x in xs]
        return {"first": ys[0], "rest": ys[1:]}

    @sines.vjp("xs")
    def _(dys, xs):
        return returns([dy * torch.cos(x) for dy, x in zip([dys["first"], *dys["rest"]], xs, strict=True)])

    for _ in range(CALLS + 1):
        for size in (2, 3):
            sines(*draw(*[True] * size))
    return sines


def test_one_output():
    @pb.op
    def total(*xs):
        return sum(xs)

    @total.vjp("xs")
    def _(dy, xs):
        return (dy,) * len(xs)

    for _ in range(CALLS + 2):
        xs = draw(True, True)
        total(*xs).backward(torch.ones(3, dtype=torch.float64))
        assert all(x.grad.equal(torch.ones(3, dtype=torch.float64)) for x in xs)
        x = draw(True)[0]
        total(x).backward(torch.full((3,), 2.0, dtype=torch.float64))
        assert x.grad.eq(2).all()


def test_second_derivatives_and_unused_outputs():
    sines, (x, z) = made(), draw(True, True)
    assert torch.autograd.gradgradcheck(lambda *xs: sines(*xs), (x, z))
    y, _ = sines(x, z)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), (x, z)), (x.cos(), torch.zeros_like(z)))


def test_nothing_wanted_makes_no_node():
    sines, (x, z) = made(), draw(False, False)
    assert sines(x, z)[0].grad_fn is None
    with torch.no_grad():
        assert sines(x.requires_grad_(), z)[0].grad_fn is None


def test_containers_and_subclasses_among_the_arguments():
    @pb.op
    def weighted(*xs):
        return xs[0] * xs[1]["w"] if isinstance(xs[1], dict) else xs[0] * xs[1]

    @weighted.vjp("xs")
    def _(dy, xs):
        return (dy * xs[1]["w"], {"w": dy * xs[0]}) if isinstance(xs[1], dict) else (dy * xs[1], dy * xs[0])

    for _ in range(CALLS + 2):
        x, w = draw(True, True)
        weighted(x, w).sum().backward()
        x, w = draw(True, True)
        weighted(x, {"w": w}).sum().backward()
        torch.testing.assert_close(w.grad, x.detach())
        w = torch.nn.Parameter(w.detach())
        weighted(x, w).sum().backward()
        torch.testing.assert_close(w.grad, x.detach())


def test_transforms_autocast_and_compilers_after_the_first_calls():
    sines, (x, z) = made(), draw(True, True)
    grads = torch.func.grad(lambda *xs: sum(y.sum() for y in sines(*xs)), argnums=(0, 1))(x, z)
    torch.testing.assert_close(grads, (x.cos(), z.cos()))
    torch.testing.assert_close(torch.func.vmap(lambda a, b: sines(a, b)[1])(x, z), z.sin())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(torch.autograd.grad(sines(x, z)[0].sum(), x)[0], x.cos())
    compiled = torch.compile(lambda a, b: sines(a, b)[0].sum(), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x, z), x)[0], x.cos())


def test_a_wrong_number_of_gradients_is_told():
    @pb.op
    def sines(*xs):
        return tuple([torch.sin(x) for x in xs])

    @sines.vjp("xs")
    def _(dys):
        return dys[:1]

    for _ in range(CALLS + 2):
        with pytest.raises(Exception, match=r"sines\.vjp\[xs\] .*must return the gradient of 'xs' in its structure"):
            sines(*draw(True, True))[0].sum().backward()


def test_it_is_recorded_and_checked():
    sines = made()
    with pb.recording() as run:
        sum(y.sum() for y in sines(*draw(True, True))).backward()
    (record,) = run.recording.functions
    assert record.calls == 1
    report = pb.check(sines, tuple(draw(True, True)), ignore=["PB709"])  # it is local
    assert report.ok
    assert {"PB504", "PB511"} <= {run.code for run in report.checks if run.status == "pass"}  # the body serves as reference


def test_its_function_takes_any_number_of_arguments():
    sines = made()
    for size in (2, 3):
        xs = draw(*[True] * size)
        sum(y.sum() for y in sines.function.apply(*xs)).backward()
        torch.testing.assert_close([x.grad for x in xs], [x.detach().cos() for x in xs])
    x, z = draw(True, False)
    torch.testing.assert_close(torch.func.grad(lambda x: sines.function.apply(x, z)[0].sum())(x), x.cos())
    torch.testing.assert_close(torch.func.jvp(sines.function.apply, (x, z), (z, x))[1], (z * x.cos(), x * z.cos()))
