"""Products with numbers, by tensors that hold them."""

import math

import pytest
import torch

import pullback as pb
from pullback.ops.kernels import elementwise


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("number", [2.1, -1 / 3, 3, True, 0.0, -0.0, 1e-40, 1e300, -math.inf, math.nan, 2**60])
def test_a_product_is_that_with_the_number(number, dtype):
    x = torch.tensor([-2.0, 0.0, 0.5, 3.0], dtype=dtype)
    for shaped in (x, x[2]):
        product, expected = shaped * elementwise.factor(number, shaped), shaped * number
        assert product.dtype == expected.dtype
        assert torch.equal(product.nan_to_num(7.0), expected.nan_to_num(7.0))
        assert torch.equal(product.signbit(), expected.signbit()) or math.isnan(number)


def test_only_where_nobody_watches():
    x = torch.ones(3)
    assert isinstance(elementwise.factor(2.0, x), torch.Tensor)
    assert elementwise.factor(2.0, x.requires_grad_()) == 2.0
    watched = []
    torch.func.vmap(lambda x: (watched.append(elementwise.factor(2.0, x)), x)[1])(torch.ones(2, 3))
    assert watched == [2.0]


def test_many_factors_in_turn():
    x = torch.ones(2)
    for i in range(600):
        assert pb.ops.scale(x, i / 2).tolist() == [i / 2, i / 2]
