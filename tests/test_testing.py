"""`pullback.testing`: torch's signatures and manners, pullback's judgement."""

import inspect

import pytest
import torch
from torch.autograd.function import once_differentiable

from pullback.testing import GradcheckError, gradcheck, gradgradcheck


class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, split_size, dim):
        ctx.dim = dim
        rest = input.shape[dim] - split_size
        return input.narrow(dim, 0, split_size).clone(), input.narrow(dim, split_size, rest).clone()

    @staticmethod
    def backward(ctx, grad_head, grad_tail):
        return torch.cat((grad_head, grad_tail), ctx.dim), None, None


class SwappedSplit(Split):
    @staticmethod
    def backward(ctx, grad_head, grad_tail):
        return torch.cat((grad_tail, grad_head), ctx.dim), None, None


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return Swish.spoil(dy) * (s + x * s * (1 - s))

    @staticmethod
    def spoil(dy):
        return dy


def spoiled(change):
    class Spoiled(Swish):
        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return change(dy * (s + x * s * (1 - s)))

    return Spoiled


def x(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize(("ours", "theirs"), [(gradcheck, torch.autograd.gradcheck), (gradgradcheck, torch.autograd.gradgradcheck)])
def test_signatures_are_torchs(ours, theirs):
    def shape(function):
        return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]

    assert shape(ours) == shape(theirs)


@pytest.mark.parametrize("seed", range(20))
def test_the_tutorials_float32_call_passes(seed):
    torch.manual_seed(seed)
    assert gradcheck(Split.apply, (x(6, 5, dtype=torch.float32), 2, 0), eps=1e-6, atol=1e-4) is True


@pytest.mark.filterwarnings("ignore:Input #0 requires gradient")
def test_torchs_own_check_fails_that_call():
    torch.manual_seed(0)
    with pytest.raises(RuntimeError):
        torch.autograd.gradcheck(Split.apply, (x(6, 5, dtype=torch.float32), 2, 0), eps=1e-6, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_wrong_gradient_raises_in_every_dtype(dtype):
    with pytest.raises(GradcheckError, match=r"SwappedSplit\.backward returns a wrong gradient for input"):
        gradcheck(SwappedSplit.apply, (x(6, 5, dtype=dtype), 3, 0), eps=1e-6, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_a_right_gradient_passes(dtype):
    assert gradcheck(torch.tanh, x(4, dtype=dtype))
    assert gradcheck(Swish.apply, x(4, dtype=torch.float32))


@pytest.mark.parametrize(
    "change",
    [torch.abs, torch.sign, lambda g: g.clamp(-0.1, 0.1), lambda g: 1.01 * g, lambda g: 2 * g, lambda g: g.flip(0), torch.zeros_like, lambda g: None],
    ids=["abs", "sign", "clipped", "one percent", "doubled", "flipped", "zero", "none"],
)
def test_wrong_gradients_raise(change):
    torch.manual_seed(0)
    with pytest.raises(GradcheckError):
        gradcheck(spoiled(change).apply, x(7))
    assert gradcheck(spoiled(change).apply, x(7), raise_exception=False) is False


def test_the_message_is_the_finding():
    with pytest.raises(GradcheckError, match=r"PB501 wrong-gradient") as caught:
        gradcheck(spoiled(lambda g: 2 * g).apply, x(7))
    text = str(caught.value)
    assert "evidence" in text
    assert "grad_x" in text


def test_a_looser_tolerance_is_kept():
    nearly = spoiled(lambda g: 1.001 * g).apply
    with pytest.raises(GradcheckError):
        gradcheck(nearly, x(7))
    assert gradcheck(nearly, x(7), rtol=1e-2)
    assert gradcheck(nearly, x(7), atol=1e-1)
    with pytest.raises(GradcheckError):
        gradcheck(spoiled(lambda g: 2 * g).apply, x(7), rtol=1e-2)


def test_errors_are_torchs():
    with pytest.raises(ValueError, match="requires_grad=True"):
        gradcheck(torch.sin, torch.ones(2))
    with pytest.raises(AssertionError, match="check_forward_ad"):
        gradcheck(torch.sin, x(2), check_backward_ad=False)
    with pytest.raises(RuntimeError, match="stride 0"):
        gradcheck(torch.sin, torch.ones(1, dtype=torch.float64).expand(3).requires_grad_())


def test_what_the_checked_code_raises_comes_through():
    def broken(t):
        raise KeyError("missing")

    with pytest.raises(KeyError, match="missing"):
        gradcheck(broken, x(2))
    with pytest.raises(KeyError, match="missing"):
        gradcheck(broken, x(2), raise_exception=False)


def test_a_severed_gradient_raises():
    with pytest.raises(GradcheckError, match="PB509"):
        gradcheck(lambda t: t.detach().exp(), x(3))


def test_outputs_that_do_not_depend_pass():
    assert gradcheck(lambda t: t.sum() * 0 + t, x(3))
    assert gradcheck(lambda t: t.argmax(), x(3))


def test_an_op_that_never_repeats_raises():
    count = iter(range(10_000))

    def unsteady(t):
        return t * (1 + next(count))

    with pytest.raises(GradcheckError, match="repeat"):
        gradcheck(unsteady, x(3))
    assert gradcheck(unsteady, x(3), nondet_tol=10.0)


def test_a_random_op_passes():
    assert gradcheck(lambda t: torch.nn.functional.dropout(t, 0.5), x(20))


def test_forward_mode():
    assert gradcheck(torch.tanh, x(3), check_forward_ad=True, check_batched_forward_grad=True, check_batched_grad=True)
    assert gradcheck(torch.tanh, x(3), check_forward_ad=True, check_backward_ad=False)

    class WrongJvp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return 2 * t

        @staticmethod
        def backward(ctx, dy):
            return 2 * dy

        @staticmethod
        def jvp(ctx, dt):
            return 3 * dt

    assert gradcheck(WrongJvp.apply, x(3))
    with pytest.raises(GradcheckError, match="forward mode"):
        gradcheck(WrongJvp.apply, x(3), check_forward_ad=True)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_inputs_go_to_torch():
    dense = torch.eye(3, dtype=torch.float64)
    assert gradcheck(lambda s: s.to_dense(masked_grad=False).sum(0), dense.to_sparse().requires_grad_(), check_batched_grad=False, masked=False)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t**3

    @staticmethod
    def backward(ctx, dy):
        (t,) = ctx.saved_tensors
        return 3 * t * t * dy


class OnceCube(Cube):
    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (t,) = ctx.saved_tensors
        return 3 * t * t * dy


class ConstantCube(Cube):
    @staticmethod
    def backward(ctx, dy):
        (t,) = ctx.saved_tensors
        return 3 * t.detach() ** 2 * dy


def test_gradgradcheck():
    assert gradgradcheck(Cube.apply, x(4))
    assert gradgradcheck(Cube.apply, x(4, dtype=torch.float32))
    assert gradgradcheck(torch.tanh, x(2, 3), gen_non_contig_grad_outputs=True)
    assert gradgradcheck(torch.tanh, x(3), x(3))
    with pytest.raises(GradcheckError):
        gradgradcheck(ConstantCube.apply, x(4))
    assert gradgradcheck(ConstantCube.apply, x(4), raise_exception=False) is False
    with pytest.raises(RuntimeError, match="gradient of OnceCube"):
        gradgradcheck(OnceCube.apply, x(4))


def test_inputs_stay_as_they_are():
    given = x(4)
    before = given.detach().clone()
    state = torch.get_rng_state()
    gradcheck(Swish.apply, given)
    gradgradcheck(Cube.apply, given)
    assert torch.equal(given, before)
    assert given.grad is None
    assert torch.equal(state, torch.get_rng_state())
