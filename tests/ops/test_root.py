import pytest
import torch

import pullback as pb
from pullback.ops.implicit.root import balance

root, sample = pb.ops.root, pb.sample
WHOLE_GRAPH = ("compiled",)  # how many steps there are depends on the data


def test_against_reference(prove):
    edges = [
        sample(balance, torch.ones(1, 1).double(), torch.ones(1, 1).double(), torch.tensor(0.3).double()),
    ]
    prove(root, edges=edges, kept=0, dtypes=(torch.float32,), skip=WHOLE_GRAPH)


def test_no_equations():
    a = torch.empty(0, requires_grad=True)
    x = root(lambda x, a: x - a, torch.empty(0), a)
    assert x.shape == (0,)
    assert torch.autograd.grad(x.sum(), a)[0].shape == (0,)


def test_far_from_the_root_steps_are_damped():
    """Undamped, Newton's method for arctan diverges from here."""
    x = root(lambda x, a: torch.atan(x - a), torch.tensor([3.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    assert x.abs().item() < 1e-12


def test_a_root_at_zero():
    a = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    x = root(lambda x, a: x * (x + a), torch.tensor([0.5], dtype=torch.float64), a)
    assert x.abs().item() < 1e-12
    assert torch.autograd.grad(x, a)[0].abs().item() < 1e-12


def test_vmap_steps_many_equations_together():
    a = torch.linspace(1, 9, 5, dtype=torch.float64)
    cube = torch.vmap(lambda a: root(lambda x, a: x**3 - a, torch.ones((), dtype=torch.float64), a))
    torch.testing.assert_close(cube(a), a ** (1 / 3))
    torch.testing.assert_close(torch.func.grad(lambda a: cube(a).sum())(a), a ** (-2 / 3) / 3)


def test_what_has_no_root_raises():
    with pytest.raises(RuntimeError, match=r"Newton's method did not converge in 20 iterations"):
        root(lambda x: x * x + 1, torch.tensor([0.7]), max_iter=20)
    with pytest.raises(RuntimeError, match="Is the Jacobian singular at the root"):
        root(lambda x: 0 * x + 1, torch.tensor([0.7]), max_iter=3)


def test_a_hidden_parameter_raises():
    a = torch.ones(1, requires_grad=True)
    with pytest.raises(ValueError, match="root: f uses tensors that require grad"):
        root(lambda x: x - a, torch.ones(1))


def test_check(passes_check):
    passes_check(root, select=["PB5", "PB6"])


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(root, thorough=True)


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ((1, torch.ones(2)), {}, TypeError, "root: f must be a function, got int 1"),
        ((balance, torch.ones(2, dtype=torch.bfloat16)), {}, TypeError, "root: x0 must be float32 or float64, got torch.bfloat16"),
        ((lambda x: x[:1], torch.ones(2)), {}, ValueError, r"root: f must return a tensor of the shape \[2\]"),
        ((balance, torch.ones(2)), {"max_iter": 2.5}, TypeError, "root: max_iter must be an integer"),
    ],
)
def test_refuses(args, options, error, message):
    with pytest.raises(error, match=message):
        root(*args, **options)
