"""`@op.inference`: another forward where no gradient is wanted."""

import pytest
import torch

import pullback as pb

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
CALLS: list[str] = []


@pb.op
def square(x, scale: float = 1.0):
    CALLS.append("training")
    return pb.keep(scale * x * x, slope=2 * scale * x)


@square.inference
def _(x, scale):
    CALLS.append("inference")
    return scale * x * x


@square.vjp("x")
def _(dy, slope):
    return dy * slope


@square.vjp("x", of="slope")
def _(dslope, scale):
    return 2 * scale * dslope


def ran(call):
    CALLS.clear()
    result = call()
    return result, list(CALLS)


def test_the_forward_depends_on_whether_a_gradient_is_wanted():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with torch.no_grad():
        y, calls = ran(lambda: square(x, 3.0))
    assert calls == ["inference"]
    assert y.tolist() == [3, 12]
    assert ran(lambda: square(x.detach()))[1] == ["inference"]
    y, calls = ran(lambda: square(x))
    assert calls == ["training"]
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [2, 4]


def test_transforms_and_compilers_still_differentiate():
    x = torch.tensor([1.0, 2.0])
    hessian, calls = ran(lambda: torch.func.hessian(lambda x: square(x).sum())(x))
    assert hessian.tolist() == [[2, 0], [0, 2]]
    assert set(calls) == {"training"}
    compiled = torch.compile(square, backend="aot_eager", fullgraph=True)
    leaf = x.clone().requires_grad_()
    assert torch.autograd.grad(compiled(leaf).sum(), leaf)[0].tolist() == [2, 4]
    assert compiled(x).tolist() == [1, 4]


def test_containers_reach_it_too():
    @pb.op
    def total(xs):
        return sum(x * x for x in xs)

    @total.inference
    def _(xs):
        CALLS.append("inference")
        return sum(x * x for x in xs)

    @total.vjp("xs")
    def _(dy, xs):
        return [2 * x * dy for x in xs]

    y, calls = ran(lambda: total([torch.tensor(2.0), torch.tensor(3.0)]))
    assert (y.item(), calls) == (13, ["inference"])


def test_one_forward_for_kernels():
    @pb.op(opaque=True)
    def kernel(x):
        return x.clone()

    with pytest.raises(RuntimeError, match=r"kernel\.inference .* has one forward for all calls"):

        @kernel.inference
        def _(x):
            return x.clone()
