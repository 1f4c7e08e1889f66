"""Every private torch name that pullback uses does what its docstring says."""

import pytest
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


def test_a_dispatch_mode_sees_operator_calls():
    seen = []

    class Watch(_compat.dispatch_mode()):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    with Watch():
        torch.ones(2) + 1
    assert seen[-1] == "add"


def test_fake_tensors_have_a_device_and_no_pointer():
    with torch.no_grad(), _compat.fake_mode():
        x = torch.empty(2, device="meta") * 2
        assert x.device.type == "meta"
        with pytest.raises(RuntimeError, match="data pointer"):
            x.data_ptr()
        with pytest.raises(RuntimeError, match="device"):
            x + torch.ones(2)


def test_storage_ids_tell_shared_memory():
    x = torch.zeros(3)
    assert _compat.storage_id(x) == _compat.storage_id(x[1:])
    assert _compat.storage_id(x) != _compat.storage_id(torch.zeros(3))
    sparse = x.to_sparse()
    assert _compat.storage_id(sparse) == id(sparse)


def test_the_base_of_a_view():
    x = torch.zeros(3).clone()
    assert _compat.base_of(x[1:]) is x
    assert _compat.base_of(x) is None


def test_a_compiled_function_leads_to_its_source():
    def double(x):
        return 2 * x

    assert _compat.compiled_from(torch.compile(double, backend="eager")) is double
    assert _compat.compiled_from(double) is None
