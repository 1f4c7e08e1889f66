import pytest
import torch

import pullback as pb

fake_quantize, sample = pb.ops.fake_quantize, pb.sample


def test_against_reference(prove):
    step = torch.tensor([0.25], dtype=torch.float64)
    edges = [
        sample(torch.empty(0, 3).double(), step, -4, 3),
        sample(torch.empty(2, 0).double(), torch.tensor([0.5, 1.0]).double(), -4, 3, axis=0, gradient_scale="lsq"),
        sample(torch.tensor(0.6).double(), step, -4, 3),
        sample(torch.tensor([-1.0, 0.75, 0.875, 0.125]).double(), step, -4, 3),  # at bounds and at a half
        sample(torch.linspace(-2, 2, 12).double().reshape(3, 4), torch.tensor([0.3, 0.5, 0.7, 0.9]).double(), -4, 3, axis=-1),
    ]
    prove(fake_quantize, edges=edges, kept=0)


def test_values_of_torch():
    x = torch.linspace(-3, 3, 40)
    expected = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -20, 18)
    torch.testing.assert_close(fake_quantize(x, 0.1, -20, 18, zero_point=3), expected)


def test_gradients_of_lsq():
    """Equation 3 of the paper, and its factor of section 2.2."""
    x = torch.tensor([-2.0, 0.26, 0.31, 9.0], dtype=torch.float64, requires_grad=True)
    step = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    fake_quantize(x, step, -8, 7, gradient_scale="lsq").sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 0]
    assert step.grad.item() == pytest.approx((-8 + (3 - 2.6) + (3 - 3.1) + 7) / (4 * 7) ** 0.5)


def test_half_precision_is_quantised_in_float32():
    x = (torch.arange(-1270, 1270, 7) / 1000).bfloat16()
    levels = fake_quantize(x, torch.tensor(0.01)).float() / 0.01
    torch.testing.assert_close(levels, (x.float() / 0.01).round(), atol=0.5, rtol=0)
    assert fake_quantize(x, torch.tensor(0.01)).dtype is torch.bfloat16


def test_check(passes_check):
    passes_check(fake_quantize, select=["PB5", "PB6"])


@pytest.mark.slow
def test_check_thorough(passes_check):
    passes_check(fake_quantize, thorough=True)


X = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((torch.ones(2, dtype=torch.int64), 0.1), {}, TypeError, "fake_quantize: x must be a floating tensor"),
        ((X, "1"), {}, TypeError, "fake_quantize: scale must be a number or a floating tensor, got str '1'"),
        ((X, torch.ones(1, dtype=torch.int64)), {}, TypeError, "fake_quantize: scale must be a floating tensor, got dtype torch.int64"),
        ((X, 0.0), {}, ValueError, "fake_quantize: scale must be positive, got 0.0"),
        ((X, torch.ones(3)), {}, ValueError, r"scale must have one element, got the shape \[3\]. Say with axis="),
        ((X, torch.ones(3)), {"axis": 0}, ValueError, r"fake_quantize: scale must have the shape \[2\], got \[3\]"),
        ((X, 0.1), {"axis": 2}, IndexError, r"fake_quantize: axis must be a dimension of a tensor of shape \[2, 3\], got 2"),
        ((X, 0.1, 0.5), {}, TypeError, "fake_quantize: low must be an integer"),
        ((X, 0.1, 3, 3), {}, ValueError, "fake_quantize: high must be at least 4, got 3"),
        ((X, 0.1), {"zero_point": torch.ones(2)}, ValueError, "fake_quantize: zero_point must have one element"),
        ((X, 0.1), {"gradient_scale": "LSQ"}, ValueError, "fake_quantize: gradient_scale must be a number or 'lsq', got 'LSQ'"),
    ],
)
def test_refuses(args, kwargs, error, message):
    with pytest.raises(error, match=message):
        fake_quantize(*args, **kwargs)
