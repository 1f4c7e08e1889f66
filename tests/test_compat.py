"""Every private torch name that pullback uses does what its docstring says."""

import torch

from pullback import _compat


def test_negative_view_has_the_bit_and_the_values():
    x = torch.randn(3)
    view = _compat.negative_view(x)
    assert view.is_neg()
    assert view.data_ptr() == x.data_ptr()
    assert torch.equal(view.resolve_neg(), -x)


def test_undefined_gradient_reaches_backward_as_none():
    seen = []

    class Op(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1

        @staticmethod
        def backward(ctx, dy):
            seen.append(dy)

    x = torch.randn(3, requires_grad=True)
    torch.autograd.grad(_compat.undefined_gradient()(Op.apply(x)).sum(), x, allow_unused=True)
    assert seen == [None]


def test_the_compiler_is_imported_once_for_all():
    import sys

    _compat.import_compiler()
    assert "torch._dynamo" in sys.modules
