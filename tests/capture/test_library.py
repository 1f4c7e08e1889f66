"""What stands behind ops of torch.library."""

import pytest
import torch
from torch import Tensor

from pullback.capture.calls import functions_in
from pullback.capture.library import library_op, op_behind


def forward(x: Tensor, w: Tensor, alpha: float = 2.0) -> Tensor:
    return x + alpha * w


def setup_context(ctx, inputs, output):
    ctx.alpha = inputs[2]


def backward(ctx, dy):
    return dy, ctx.alpha * dy, None


def fake(x, w, alpha=2.0):
    return torch.empty_like(x)


ADD = torch.library.custom_op("pullback_capture_library::add", forward, mutates_args=())
ADD.register_fake(fake)
ADD.register_autograd(backward, setup_context=setup_context)


def total(xs: list[Tensor], scale: float) -> Tensor:
    return scale * torch.stack(xs).sum()


TOTAL = torch.library.custom_op("pullback_capture_library::total", total, mutates_args=())
TOTAL.register_autograd(
    lambda ctx, dy: ([ctx.scale * dy.expand(s) for s in ctx.shapes], None),
    setup_context=lambda ctx, inputs, output: (setattr(ctx, "shapes", [x.shape for x in inputs[0]]), setattr(ctx, "scale", inputs[1])),
)


@pytest.fixture(scope="module")
def lower():
    """An op without a Python implementation of its own that custom_op would know."""
    library = torch.library.Library("pullback_capture_lower", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: 2 * x, "CPU")
    torch.library.register_autograd("pullback_capture_lower::double", lambda ctx, dy: 2 * dy, lib=library)
    yield torch.ops.pullback_capture_lower.double
    library._destroy()


@pytest.mark.parametrize("value", [ADD, torch.ops.pullback_capture_library.add, torch.ops.pullback_capture_library.add.default])
def test_the_op_is_known_in_every_form(value):
    op = library_op(value)
    assert op is not None
    assert (op.name, op.short, op.arguments) == ("pullback_capture_library::add", "add", ("x", "w", "alpha"))
    assert (op.forward, op.setup_context, op.backward) == (forward, setup_context, backward)


def test_other_things_are_no_ops():
    assert library_op(forward) is None
    assert library_op(torch.add) is None
    assert op_behind(torch.autograd.Function) is None


def test_the_generated_class_leads_back_to_the_op():
    x = torch.ones(3, requires_grad=True)
    (function,) = functions_in([ADD(x, x)])
    op = op_behind(function)
    assert op is not None
    assert op.backward is backward
    (function,) = functions_in([TOTAL([x, x], 2.0)])
    op = op_behind(function)
    assert op is not None
    assert (op.short, op.forward) == ("total", total)


def test_rules_registered_by_name_are_found(lower):
    x = torch.ones(3, requires_grad=True)
    (function,) = functions_in([lower(x)])
    op = op_behind(function)
    assert op is not None
    assert (op.name, op.forward) == ("pullback_capture_lower::double", None)
    assert op.backward is not None
    assert op.backward(None, torch.ones(1)).item() == 2
