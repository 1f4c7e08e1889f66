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


def as_op(function: type[Function], args: tuple[Tensor, ...]) -> tuple[torch.library.Library, Any]:
    """Return a torch.library op with the Function's forward and backward, and the library that keeps it alive."""
    name = function.__name__.lower()
    names = [f"x{i}" for i in range(len(args))]
    library = torch.library.Library("pullback_claims", "FRAGMENT")
    library.define(f"{name}({', '.join(f'Tensor {n}' for n in names)}) -> Tensor")

    def kernel(*inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return function.apply(*inputs)

    def backward(ctx, grad_output):
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_(n) for x, n in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=True)]
            wanted = [x for x in inputs if x.requires_grad]
            found = iter(torch.autograd.grad(function.apply(*inputs), wanted, grad_output, allow_unused=True))
        return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)

    library.impl(name, kernel, "CPU")
    torch.library.register_fake(f"pullback_claims::{name}", lambda x, *rest: torch.empty_like(x), lib=library)
    setup = lambda ctx, inputs, output: ctx.save_for_backward(*inputs)  # noqa: E731
    torch.library.register_autograd(f"pullback_claims::{name}", backward, setup_context=setup, lib=library)
    return library, getattr(torch.ops.pullback_claims, name).default


@pytest.mark.parametrize("row", ALL)
@pytest.mark.filterwarnings("ignore:Error detected in GeneratedBackward")
def test_opcheck_answers_as_the_readme_says(row):
    _library, op = as_op(row.target, row.args)
    answers = torch.library.opcheck(op, row.args, raise_exception=False)
    passed = set(answers.values()) == {"SUCCESS"}
    assert cells(row)[3].startswith("no" if passed else "stops")


@pytest.mark.parametrize("row", ALL)
def test_readme_says_what_gradcheck_answers(row):
    assert cells(row)[1] == row.code
    assert cells(row)[2].endswith("yes" if row in FOUND_BY_GRADCHECK else "no")


def cells(row: Row) -> list[str]:
    """Return the cells of the README's row about a fault."""
    (line,) = re.findall(rf"^\| ({re.escape(row.fault)}.*) \|$", README, re.MULTILINE)
    return line.split(" | ")
