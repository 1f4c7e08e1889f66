"""The power of the value test: small and hidden errors are found for every seed, and right ops pass for every seed."""

import pytest
import torch

import pullback as pb
from pullback.battery.evaluate import Evaluator
from pullback.battery.probe import Probe
from pullback.battery.settings import Settings
from pullback.battery.value import ValueTest
from pullback.capture.calls import resolve_target
from pullback.capture.case import case

SIZE = 1000
SEEDS = range(40)


def swish(spoil=lambda gradient, dy: gradient, forward=lambda x: x * torch.sigmoid(x)):
    """Return swish with a backward whose result goes through `spoil`."""

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return spoil(dy * (s + x * s * (1 - s)), dy)

    return Swish


def one_entry(factor):
    def spoil(gradient, dy):
        gradient[len(gradient) // 3] *= factor
        return gradient

    return spoil


def alternating(gradient, dy):
    signs = torch.ones_like(gradient)
    signs[::2] = -1
    return gradient * (1 + 0.01 * signs)


def input_for(seed, dtype=torch.float64):
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype).requires_grad_()


def verdict(function, seed, x=None):
    x = input_for(seed) if x is None else x
    return ValueTest(Evaluator.of_case(resolve_target(function), case(function, x)), seed=seed).run().inputs["x"].ok


def nonlinear(function, seed):
    return Probe(case(function, input_for(seed)), Settings(seed=seed)).nonlinearity is not None


MUTANTS = {
    "one entry off by 1e-4": one_entry(1 + 1e-4),
    "one entry off by 1 %": one_entry(1.01),
    "one entry doubled": one_entry(2.0),
    "every entry off by 1e-5": lambda g, dy: g * (1 + 1e-5),
    "alternately off by 1 %": alternating,
    "rolled by one": lambda g, dy: g.roll(1),
    "leaks to the neighbour": lambda g, dy: g + 1e-6 * g.roll(1),
}
NONLINEAR = {
    "g * abs(g)": lambda g, dy: g * dy.abs(),
    "sign(g)": lambda g, dy: g / dy.abs().clamp(min=1e-300),
    "clipped": lambda g, dy: g.clamp(-1, 1),
    "abs": lambda g, dy: g * dy.sign(),
}
RIGHT = {
    "exp": (torch.exp, lambda x, y: y),
    "relu": (torch.relu, lambda x, y: (x > 0).to(x.dtype)),
    "abs": (torch.abs, lambda x, y: x.sign()),
    "round": (torch.round, lambda x, y: torch.zeros_like(x)),
    "hardtanh": (lambda x: x.clamp(-1, 1), lambda x, y: ((x >= -1) & (x <= 1)).to(x.dtype)),
    "rsqrt": (lambda x: (x * x + 1e-6).rsqrt(), lambda x, y: -x * y**3),
}


def right(operator, slope):
    class Right(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = operator(x)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, dy):
            return dy * slope(*ctx.saved_tensors)

    return Right


class Sorted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, order = x.sort()
        ctx.save_for_backward(order)
        return values

    @staticmethod
    def backward(ctx, dy):
        (order,) = ctx.saved_tensors
        return torch.empty_like(dy).scatter_(0, order, dy)


class Cumulated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(0)

    @staticmethod
    def backward(ctx, dy):
        return dy.flip(0).cumsum(0).flip(0)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found_for_every_seed(name):
    function = swish(MUTANTS[name])
    assert [seed for seed in SEEDS if verdict(function, seed) is not False] == []


@pytest.mark.parametrize("name", NONLINEAR)
def test_nonlinear_backwards_are_found_for_every_seed(name):
    function = swish(NONLINEAR[name])
    assert [seed for seed in SEEDS if not nonlinear(function, seed)] == []


@pytest.mark.parametrize("name", RIGHT)
def test_right_ops_pass_for_every_seed(name):
    function = right(*RIGHT[name])
    assert [seed for seed in SEEDS if verdict(function, seed) is not True] == []
    assert [seed for seed in list(SEEDS)[:5] if nonlinear(function, seed)] == []


@pytest.mark.parametrize("function", [Sorted, Cumulated], ids=lambda f: f.__name__)
def test_long_reductions_pass_for_every_seed(function):
    assert [seed for seed in SEEDS if verdict(function, seed) is not True] == []


def test_the_right_op_is_cleared_by_the_first_pass():
    function = swish()
    for seed in SEEDS:
        assert ValueTest(Evaluator.of_case(resolve_target(function), case(function, input_for(seed))), seed=seed).run().first_pass


def narrow(dtype):
    """Return swish that takes nothing but `dtype` and works in float32 inside, as kernels do."""

    def make(spoil):
        class Kernel(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                if x.dtype != dtype:
                    raise TypeError(f"expected {dtype}")
                ctx.save_for_backward(x)
                wide = x.float()
                return (wide * torch.sigmoid(wide)).to(dtype)

            @staticmethod
            def backward(ctx, dy):
                (x,) = ctx.saved_tensors
                wide = x.float()
                s = torch.sigmoid(wide)
                return spoil(dy.float() * (s + wide * s * (1 - s))).to(dtype)

        return Kernel

    return make


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_ops_of_one_narrow_dtype(dtype):
    make = narrow(dtype)
    good, off, off_half = make(lambda g: g), make(lambda g: 1.01 * g), make(lambda g: g * torch.where(torch.arange(len(g)) % 2 == 0, 1.02, 1.0))
    for seed in range(20):
        assert verdict(good, seed, input_for(seed, dtype)) is True, seed
        assert verdict(off, seed, input_for(seed, dtype)) is False, seed
        assert verdict(off_half, seed, input_for(seed, dtype)) is False, seed


def only_in(dtype, operator):
    """Return an operator as a Function that takes nothing but `dtype`; its backward is autograd's."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if x.dtype != dtype:
                raise TypeError(f"expected {dtype}")
            ctx.save_for_backward(x)
            return operator(x)

        @staticmethod
        def backward(ctx, dy):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                return torch.autograd.grad(operator(x), x, dy)[0]

    return Kernel


NARROW = {
    "relu": torch.relu,
    "abs": torch.abs,
    "exp": torch.exp,
    "softmax": lambda x: torch.softmax(x, -1),
    "norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "sum": torch.sum,
    "hardtanh": torch.nn.functional.hardtanh,
    "relu of a product": lambda x: torch.relu(x.reshape(-1, 2) @ x.reshape(2, -1)),
    "round": torch.round,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NARROW)
def test_right_ops_of_one_narrow_dtype_pass(name, dtype):
    function = only_in(dtype, NARROW[name])
    for seed in range(6):
        for size in (6, 200):
            assert verdict(function, seed, input_for(seed, dtype)[:size].detach().requires_grad_()) is not False, (seed, size)


def test_the_verdict_says_what_could_have_gone_unseen():
    report = pb.check(narrow(torch.bfloat16)(lambda g: g), input_for(0, torch.bfloat16), select=["PB501"])
    assert report.ok
    assert "would go unseen" in report.checks[0].reason
    assert not pb.check(swish(), input_for(0), select=["PB501"]).checks[0].reason
