import pytest
import torch

import pullback as pb
from pullback.ops.implicit.fixed_point import layer

fixed_point, sample = pb.ops.fixed_point, pb.sample
WHOLE_GRAPH = ("compiled",)  # how many iterations there are depends on the data


def test_against_reference(prove):
    weight = torch.eye(3).double() / 4
    edges = [
        sample(layer, torch.empty(0, 3).double(), weight, torch.empty(0, 3).double()),
        sample(layer, torch.zeros(1).double(), weight[:1, :1], torch.ones(1).double()),
    ]
    prove(fixed_point, edges=edges, kept=0, dtypes=(torch.float32,), skip=WHOLE_GRAPH)


def test_steps_are_saved_by_acceleration():
    calls = []

    def slow(z, x):
        calls.append(1)
        return 0.95 * torch.cos(z) + x

    x = torch.linspace(0, 0.3, 4, dtype=torch.float64)
    counts = []
    for memory in (0, 5):
        calls.clear()
        z = fixed_point(slow, torch.zeros(4, dtype=torch.float64), x, memory=memory)
        counts.append(len(calls))
        torch.testing.assert_close(z, slow(z, x), rtol=0, atol=1e-11)
    assert counts[1] < counts[0] / 3


def test_a_map_that_is_no_contraction_is_found_by_acceleration_and_differentiated():
    a = torch.tensor([1.5, 2.5], dtype=torch.float64, requires_grad=True)
    z = fixed_point(lambda z, a: a - 1.2 * z, torch.zeros(2, dtype=torch.float64), a)
    torch.testing.assert_close(torch.autograd.grad(z.sum(), a)[0], torch.full_like(a, 1 / 2.2))


def test_memory_is_constant_in_iterations():
    weight, x = (torch.eye(16) * 0.9).requires_grad_(), torch.linspace(-1, 1, 64 * 16).reshape(64, 16).requires_grad_()
    for tol in (1e-1, 1e-5):
        assert pb.saved(fixed_point(layer, torch.zeros(64, 16), weight, x, tol=tol)).extra == 0


def test_parameters_of_a_module():
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 3).double()
    with torch.no_grad():
        module.weight *= 0.5
    x = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)

    def cell(z, x, params):
        return torch.tanh(torch.func.functional_call(module, params, (z,)) + x)

    z = fixed_point(cell, torch.zeros(2, 3, dtype=torch.float64), x, dict(module.named_parameters()))
    got = torch.autograd.grad(z.sin().sum(), list(module.parameters()))
    unrolled = torch.zeros(2, 3, dtype=torch.float64)
    for _ in range(100):
        unrolled = torch.tanh(module(unrolled) + x)
    torch.testing.assert_close(got, torch.autograd.grad(unrolled.sin().sum(), list(module.parameters())))


def test_a_hidden_parameter_raises():
    module = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"fixed_point: f uses tensors that require grad .* torch.func.functional_call"):
        fixed_point(lambda z: module(z) / 4, torch.zeros(2))


def test_what_does_not_converge_raises():
    with pytest.raises(RuntimeError, match=r"the iteration did not converge in 50 iterations .* contraction"):
        fixed_point(lambda z: z + 1, torch.zeros(3), max_iter=50, memory=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_has_few_digits(dtype):
    weight, x = (torch.eye(3, dtype=dtype) / 4).requires_grad_(), torch.linspace(-0.5, 1, 3, dtype=dtype)
    z = fixed_point(layer, torch.zeros(3, dtype=dtype), weight, x)
    (grad,) = torch.autograd.grad(z.sum(), weight)
    assert z.dtype is dtype
    assert grad.dtype is dtype
    wide = weight.detach().double().requires_grad_()
    exact = fixed_point(layer, torch.zeros(3).double(), wide, x.double())
    torch.testing.assert_close(z.double(), exact, rtol=0, atol=0.05)
    torch.testing.assert_close(grad.double(), torch.autograd.grad(exact.sum(), wide)[0], rtol=0, atol=0.1)


def test_check(passes_check):
    passes_check(fixed_point, select=["PB5", "PB6"])


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(fixed_point, thorough=True)


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ((None, torch.ones(2)), {}, TypeError, "fixed_point: f must be a function, got NoneType None"),
        ((layer, torch.ones(2, dtype=torch.int64)), {}, TypeError, "fixed_point: z0 must be a floating tensor"),
        ((lambda z: z.sum(), torch.ones(2)), {}, ValueError, r"fixed_point: f must return a tensor of the shape \[2\], .* got \[\]"),
        ((layer, torch.ones(2)), {"memory": -1}, ValueError, "fixed_point: memory must be at least 0, got -1"),
    ],
)
def test_refuses(args, options, error, message):
    with pytest.raises(error, match=message):
        fixed_point(*args, **options)
