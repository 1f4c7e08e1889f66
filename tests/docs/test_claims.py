"""What the README says about torch's gradcheck and opcheck beside pullback, row by row, run."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.autograd import Function, gradcheck

import pullback as pb

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


class TwiceTooMuch(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * grad_output * x.cos()


class OneEntryOff(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        factor = torch.ones_like(x)
        factor[x.numel() // 3] = 1.01
        return grad_output * x.cos() * factor


class Magnitude(Function):
    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * grad_output.abs()


class Packed(Function):
    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * grad_output.as_strided(grad_output.shape, (grad_output.shape[1], 1))


class Overwrites(Function):
    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.mul_(3)


class Frozen(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x if weight.requires_grad else None, weight)
        return x * x * weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output * 2 * x * weight, grad_output * x * x


SCALE = torch.nn.Parameter(torch.tensor(1.5, dtype=torch.float64))


class Captured(Function):
    @staticmethod
    def forward(ctx, x):
        return x * SCALE

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * SCALE


class Hidden(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.x.cos()


class NoRows(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return torch.stack([2 * g * row for g, row in zip(grad_output, x, strict=True)])


class FirstBlock(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_x = torch.zeros_like(x)
        grad_x[..., :64] = (grad_output * x.cos())[..., :64]
        return grad_x


class KeepsForNothing(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 3 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 3 * grad_output


def fast(call: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    return gradcheck(call, args, fast_mode=True)


class Row(NamedTuple):
    fault: str
    code: str
    target: type[Function]
    args: tuple[Any, ...]
    gradcheck: Callable[..., bool] = gradcheck


FOUND_BY_GRADCHECK = [Row("a wrong formula", "PB501", TwiceTooMuch, (normal(3, 4),))]
MISSED_BY_GRADCHECK = [
    Row("one entry of 1,000 wrong by 1 %", "PB501", OneEntryOff, (normal(1000),), fast),
    Row("not linear in grad_output", "PB503", Magnitude, (normal(3, 4),)),
    Row("grad_output read as if packed", "PB604", Packed, (normal(3, 4),)),
    Row("an input is frozen", "PB606", Frozen, (normal(3, 4), normal(3, 4, seed=1))),
    Row("grad_output overwritten", "PB608", Overwrites, (normal(3, 4),)),
    Row("a parameter captured, not passed", "PB611", Captured, (normal(3, 4),)),
    Row("a tensor kept on ctx", "PB612", Hidden, (normal(3, 4),)),
    Row("no rows", "PB619", NoRows, (normal(3, 4),)),
    Row("more elements than a block", "PB625", FirstBlock, (normal(3, 4),)),
    Row("a tensor saved for nothing", "PB901", KeepsForNothing, (normal(3, 4),)),
]
ALL = [pytest.param(row, id=row.code + "-" + row.target.__name__) for row in FOUND_BY_GRADCHECK + MISSED_BY_GRADCHECK]


@pytest.mark.parametrize("row", ALL)
def test_pullback_names_the_fault(row):
    assert row.code in {finding.code for finding in pb.check(row.target, row.args).findings}


@pytest.mark.parametrize("row", MISSED_BY_GRADCHECK, ids=lambda row: row.target.__name__)
def test_gradcheck_passes_the_fault(row):
    assert row.gradcheck(row.target.apply, row.args)


@pytest.mark.parametrize("row", FOUND_BY_GRADCHECK, ids=lambda row: row.target.__name__)
def test_gradcheck_finds_the_fault(row):
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        row.gradcheck(row.target.apply, row.args)


def test_opcheck_does_not_look_at_the_value_of_a_gradient():
    library = torch.library.Library("pullback_claims", "DEF")
    library.define("sine(Tensor x) -> Tensor")
    library.impl("sine", torch.sin, "CPU")
    torch.library.register_fake("pullback_claims::sine", torch.empty_like, lib=library)
    torch.library.register_autograd(
        "pullback_claims::sine",
        lambda ctx, grad: 2 * grad * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        lib=library,
    )
    answers = torch.library.opcheck(torch.ops.pullback_claims.sine.default, (normal(3, 4),))
    assert set(answers.values()) == {"SUCCESS"}


@pytest.mark.parametrize("row", ALL)
def test_readme_has_the_row(row):
    assert re.search(rf"^\| {re.escape(row.fault)}.* \| {row.code} \|", README, re.MULTILINE)
