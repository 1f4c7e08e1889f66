"""Every private torch name that pullback uses does what its docstring says."""

import ast
import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

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


class _Double(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


def test_transforms_are_seen_while_they_run():
    active, seen = _compat.transforms_active(), []
    torch.func.grad(lambda x: (seen.append((active(), _compat.jvp_levels())), x)[1])(torch.tensor(1.0))
    torch.func.jvp(lambda x: (seen.append((active(), _compat.jvp_levels())), x)[1], (torch.tensor(1.0),), (torch.tensor(1.0),))
    assert seen == [(True, 0), (True, 1)]
    assert not active()
    with _compat.outside_transforms():
        assert not active()


def test_forward_levels_and_autocast_are_seen():
    from torch.autograd import forward_ad

    level, autocast = _compat.forward_level(), _compat.any_autocast()
    assert level._current_level < 0
    with forward_ad.dual_level():
        assert level._current_level >= 0
    assert not autocast()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert autocast()


def test_the_c_entry_and_the_entry_under_transforms():
    x = torch.ones(2, requires_grad=True)
    assert _compat.c_apply(_Double)(x).grad_fn.name() == "_DoubleBackward"
    assert torch.func.grad(lambda x: _compat.call_under_transforms(_Double, x).sum())(torch.ones(2)).tolist() == [2, 2]


def test_dead_wrappers_are_unwrapped():
    leaked = []
    torch.func.grad(lambda x: (leaked.append(x), x.sum())[1])(torch.ones(2))
    (plain,) = _compat.unwrap_dead((leaked[0],))
    assert type(plain) is torch.Tensor
    assert plain is not leaked[0]
    assert plain.tolist() == [1, 1]


def test_a_constant_result_is_not_traced():
    seen = []
    known = _compat.constant_result(lambda: seen.append(torch.compiler.is_dynamo_compiling()) or 3)
    assert torch.compile(lambda x: x * known(), backend="eager", fullgraph=True)(torch.ones(1)).item() == 3
    assert seen[0] is False


def test_forward_mode_below_keeps_outer_tangents_and_drops_those_of_the_level():
    def inner(x):
        _, (dropped,) = _compat.forward_mode_below((x,))
        return dropped * 1

    value, tangent = torch.func.jvp(inner, (torch.tensor(3.0),), (torch.tensor(1.0),))
    assert (value.item(), tangent.item()) == (3, 0)
    outer = torch.func.jvp(lambda x: torch.func.jvp(lambda y: inner(y * 1) * 0 + inner(x), (x,), (x,))[0], (torch.tensor(3.0),), (torch.tensor(1.0),))
    assert outer[0].item() == 3


def test_process_groups_are_forgotten():
    dist = torch.distributed
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    distributed_c10d = dist.distributed_c10d
    world, group = _compat.forget_process_groups()
    try:
        assert not dist.is_initialized()
    finally:
        distributed_c10d._world, dist.GroupMember.WORLD = world, group
        dist.destroy_process_group()
    assert not dist.is_initialized()


def test_dtensor_is_imported():
    _compat.import_dtensor()
    assert hasattr(torch.distributed, "tensor")


def test_without_torch_function_the_class_of_a_tensor_takes_no_part():
    class Same(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "asked"

    tensor = torch.zeros(2).as_subclass(Same)
    assert torch.add(tensor, 1) == "asked"
    with _compat.without_torch_function():
        assert torch.equal(torch.add(tensor, 1), torch.ones(2))


def test_new_functions_are_seen_until_the_end():
    seen = []
    end = _compat.on_new_function(seen.append)
    try:
        inside = type("Inside", (torch.autograd.Function,), {})
    finally:
        end()
    type("Outside", (torch.autograd.Function,), {})
    assert seen == [inside]


def test_the_context_of_a_call_is_of_its_function():
    seen = []

    class Seen(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(type(ctx))
            return x * 1

    Seen.apply(torch.ones(1))
    assert seen == [_compat.context_type(Seen)]


def test_modes_checkpoints_and_running_backwards_are_seen():
    from torch.overrides import TorchFunctionMode
    from torch.utils.checkpoint import checkpoint

    hooks, tasks = [], []

    def body(x):
        hooks.append(_compat.saved_tensor_hooks()(False))
        tasks.append(_compat.graph_task()())
        return x.sin()

    assert _compat.saved_tensor_hooks()(False) is None
    checkpoint(body, torch.ones(1, requires_grad=True), use_reentrant=False).sum().backward()
    assert ["checkpoint" in pack.__module__ for pack, _ in hooks] == [True, True]
    assert (tasks[0], tasks[1] >= 0) == (-1, True)
    assert (_compat.dispatch_modes()(), _compat.function_modes()()) == (0, 0)
    with TorchFunctionMode(), _compat.dispatch_mode()():
        assert (_compat.dispatch_modes()(), _compat.function_modes()()) == (1, 1)


def test_dynamo_traces_the_original_and_tells_what_it_compiles():
    wrapper = _compat.traced_as(lambda x: torch.compiler.is_compiling() or 7, lambda x: x + 1)
    import torch._dynamo

    seen = []
    end = _compat.on_traced_function(seen.append)
    before = _compat.compiled_graphs()
    try:
        compiled = torch.compile(lambda x: wrapper(_Double.apply(x)), backend="eager", fullgraph=True)
        assert compiled(torch.ones(1, requires_grad=True)).item() == 3
    finally:
        end()
    assert _compat.compiled_graphs() == before + 1
    assert seen == [_Double]


def test_unseen_work_reaches_neither_modes_nor_classes():
    from torch.overrides import TorchFunctionMode

    class Refuse(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise AssertionError

    with Refuse(), _compat.unseen():
        assert torch.ones(2).shape == (2,)


def test_library_ops_have_names_and_arguments():
    op = torch.ops.aten.add.Tensor
    assert _compat.library_op(op) == "aten::add.Tensor"
    assert _compat.library_op(torch.add) == ""
    assert _compat.library_arguments(op) == ("self", "other", "alpha")
    assert _compat.library_parameters(op)[2] == ("alpha", True, True, 1, Any)
    assert _compat.library_parameters(op)[0] == ("self", False, False, None, torch.Tensor)
    assert _compat.is_registered("aten::add")
    assert not _compat.is_registered("aten::no_such_op")


def test_results_of_a_node_have_shape_and_dtype():
    (result,) = _compat.results_of((torch.ones(2, 3, requires_grad=True) * 2).grad_fn)
    assert (tuple(result.shape), result.dtype) == ((2, 3), torch.float32)


def test_later_nodes_are_made_later():
    first = torch.ones(2, requires_grad=True) * 2
    second = first.exp()
    assert _compat.made_at(first.grad_fn) < _compat.made_at(second.grad_fn)


def test_saved_tensors_are_found_packed():
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: ("packed", tensor), lambda packed: packed[1]):
        y = torch.ones(2, requires_grad=True).exp()
    assert _compat.saved_names(type(y.grad_fn)) == ["result"]
    (slot,) = _compat.saved_slots(y.grad_fn, "result")
    assert _compat.packed(slot)[0] == "packed"


def test_freed_tensors_are_none():
    y = torch.ones(2, requires_grad=True).exp()
    y.sum().backward()
    assert [_compat.packed(slot) for slot in _compat.saved_slots(y.grad_fn, "result")] in ([], [None])


def test_after_backward_comes_after_every_gradient():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    seen = []
    y.register_hook(lambda gradient: _compat.after_backward()(lambda: seen.append(x.grad)))
    y.sum().backward()
    assert seen[0] is x.grad


def test_flattened_and_norms_are_those_of_the_tensors():
    tensors = [torch.arange(6.0).view(2, 3).t(), torch.tensor(3.0)]
    assert _compat.flattened()(tensors).tolist() == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0, 3.0]
    assert torch.stack(_compat.norms(tensors)).allclose(torch.tensor([55.0, 9.0]).sqrt())


def test_nodes_know_their_line_under_anomaly_mode():
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        y = torch.ones(3, requires_grad=True).exp()
    assert "test_nodes_know_their_line_under_anomaly_mode" in _compat.made_by(y.grad_fn)[-1]
    assert _compat.made_by(torch.ones(3, requires_grad=True).exp().grad_fn) == []


def test_version_counts_writes():
    x = torch.ones(3)
    x.add_(1)
    assert _compat.version_of(x) == 1
    assert _compat.versions_of([x, torch.ones(2)]) == [1, 0]
    with torch.inference_mode():
        assert _compat.version_of(torch.ones(2)) == 0
        assert _compat.versions_of([x, torch.ones(2)]) == [1, 0]


def test_allocations_are_seen_inside_of_operators(capfd):
    x, dy = torch.ones(1000, requires_grad=True), torch.ones(1000)
    changes = _compat.allocations(lambda: torch.autograd.grad(x * torch.sigmoid(x), x, dy))
    assert sum(changes) == 0
    assert [change for change in changes if change > 0] == [4000] * 5
    assert capfd.readouterr() == ("", "")


def test_determinism_is_set_without_the_compiler():
    code = """
import sys, torch
from pullback import _compat
_compat.use_deterministic_algorithms(True, warn_only=True)
assert torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()
_compat.use_deterministic_algorithms(False, warn_only=False)
assert not torch.are_deterministic_algorithms_enabled()
assert "torch._inductor" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_gradients_are_heard_like_by_a_hook():
    seen = []
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda gradient: seen.append(("hook", gradient.tolist())))
    z = y * 3
    for tensor in (x, y, z):
        _compat.on_gradient(tensor, lambda gradient, tensor=tensor: seen.append((tensor is x, gradient.tolist())))
    z.register_hook(lambda gradient: gradient * 2)
    z.sum().backward()
    assert seen == [(False, [1.0] * 3), ("hook", [6.0] * 3), (False, [6.0] * 3), (True, [12.0] * 3)]


def test_everywhere():
    import torch

    from pullback import _compat

    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    seen = []

    def watch(row):
        seen.append((_compat.everywhere(row > 0), _compat.everywhere(row > 2)))
        return row.sum()

    torch.vmap(torch.func.grad(watch))(x)
    assert seen == [(True, False)]
    assert _compat.everywhere(x > 0)
    assert not _compat.everywhere(x > 1)


def test_primal():
    import torch

    from pullback import _compat

    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.ones(2), torch.ones(2))
        with forward_ad._set_fwd_grad_enabled(False):
            y = _compat.primal(x)
        assert forward_ad.unpack_dual(y).tangent is None
        assert y.tolist() == [1.0, 1.0]
        assert _compat.primal(3) == 3


def test_onednn_multiplies_as_torch_does():
    linear = _compat.onednn_linear()
    if linear is None:
        pytest.skip("this torch has no oneDNN")
    x, weight, bias = torch.linspace(-1.0, 2.0, 12).reshape(3, 4), torch.linspace(1.0, -1.0, 20).reshape(5, 4), torch.arange(5.0)
    torch.testing.assert_close(linear(x, weight, bias), torch.nn.functional.linear(x, weight, bias))
    torch.testing.assert_close(linear(x.t(), torch.ones(6, 3), None), x.t() @ torch.ones(3, 6))


def test_functional_collective():
    import torch
    import torch.distributed as dist

    from pullback import _compat

    if not (dist.is_available() and dist.is_gloo_available()):
        pytest.skip("torch without torch.distributed and gloo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        x = torch.arange(4.0)
        for name, *more in (("all_reduce", "sum"), ("all_gather_tensor", 0), ("reduce_scatter_tensor", "sum", 0)):
            out = _compat.functional_collective(name, x, *more, group=dist.group.WORLD)
            assert type(out) is torch.Tensor
            assert torch.equal(out, x)
            assert out.data_ptr() != x.data_ptr()
    finally:
        dist.destroy_process_group()


def test_parts_of_sparse_tensors_only():
    assert [part.shape for part in _compat.parts_of(torch.eye(3).to_sparse())] == [(2, 3), (3,)]
    assert _compat.parts_of(torch.eye(3)) == []


def test_checkpointed_are_inputs_and_random_state():
    x = torch.ones(3, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(torch.exp, x * 2, use_reentrant=False)
    (slot,) = _compat.saved_slots(y.grad_fn, "result")
    found = _compat.checkpointed(slot.unpack_hook)
    assert {name: tensor.numel() for name, tensor in found.items()} == {
        "input 0 of its checkpoint": 3,
        "random state of its checkpoint": torch.get_rng_state().numel(),
    }
    assert _compat.checkpointed(lambda packed: packed) == {}


def test_every_function_is_tested_here():
    sources = [ast.parse(path.read_text(encoding="utf-8")) for path in Path(_compat.__file__).parent.glob("*.py")]
    here = Path(__file__).read_text(encoding="utf-8")
    made = (node for source in sources for node in source.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    public = [node.name for node in made if not node.name.startswith("_")]
    assert len(public) > 50
    assert [name for name in public if f"_compat.{name}" not in here] == []
    assert [name for name in public if not hasattr(_compat, name)] == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_delay_keeps_the_stream_busy_and_not_the_cpu():
    delay = _compat.gpu_delay()
    done = torch.cuda.Event()
    delay()
    done.record()
    assert not done.query()
    done.synchronize()


def test_storage_anchor_keeps_an_identity_and_no_memory():
    tensor = torch.ones(3)
    storage, key = tensor.untyped_storage(), tensor.untyped_storage()._cdata
    anchor = _compat.storage_anchor(storage)
    watched = weakref.ref(storage)
    del tensor, storage
    gc.collect()
    assert watched() is None
    assert anchor.expired()
    assert all(torch.ones(3).untyped_storage()._cdata != key for _ in range(100))


def test_is_once_differentiable():
    def plain(ctx, dy):
        return dy

    assert _compat.is_once_differentiable(torch.autograd.function.once_differentiable(plain))
    assert not _compat.is_once_differentiable(plain)
    assert not _compat.is_once_differentiable(None)


def test_writing_methods_write():
    names = _compat.writing_methods()
    assert {"mul_", "copy_", "zero_", "__setitem__", "__iadd__", "index_put_"} <= set(names)
    assert not {"requires_grad_", "retain_grad_", "mul"} & set(names)
    for name in ("exp_", "zero_", "neg_"):
        x = torch.ones(3)
        version = x._version
        getattr(x, name)()
        assert x._version > version
    assert all(callable(getattr(torch.Tensor, name)) for name in names)


def test_writing_functions_write():
    found = _compat.writing_functions()
    assert (torch, "relu_") in found
    assert all(name.endswith("_") and callable(getattr(owner, name)) for owner, name in found)
    for owner, name in [(owner, name) for owner, name in found if name == "relu_"]:
        x = -torch.ones(3)
        getattr(owner, name)(x)
        assert x.tolist() == [0.0] * 3


def test_on_backward_sees_what_ends_well_until_it_is_ended():
    seen = []
    end = _compat.on_backward(lambda roots, keep, create, frame: seen.append((roots, keep, create)))
    try:
        x = torch.ones(3, requires_grad=True)
        y = (x * x).sum()
        y.backward(retain_graph=True)
        (grad,) = torch.autograd.grad(y, x, create_graph=True)
        z = torch.exp(x).sum()
        z.backward()
        with pytest.raises(RuntimeError, match="second time"):
            z.backward()
    finally:
        end()
    (grad * 1).sum().backward()
    assert [(roots[0] is tensor, keep, create) for (roots, keep, create), tensor in zip(seen, (y, y, z), strict=True)] == [
        (True, True, False),
        (True, True, True),
        (True, False, False),
    ]


def test_is_stale_where_a_saved_tensor_was_written():
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    assert not _compat.is_stale(y.grad_fn, "result")
    with torch.no_grad():
        y.mul_(2)
    assert _compat.is_stale(y.grad_fn, "result")
    square = Square.apply(z := x * 1)
    assert not _compat.is_stale(square.grad_fn, "tensors")
    with torch.no_grad():
        z.mul_(2)
    assert _compat.is_stale(square.grad_fn, "tensors")


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 2 * x * dy


def test_library_functions_and_the_code_behind_them():
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    torch.library.custom_op("pullback_compat::twice", twice, mutates_args=())
    assert "pullback_compat::twice" in _compat.library_functions()
    assert _compat.library_function("pullback_compat::twice") is twice
    assert _compat.library_function("aten::mul") is None


def test_rules_and_overload_of_a_library_op():
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    def setup_context(ctx, inputs, output):
        pass

    def backward(ctx, dy):
        return 2 * dy

    defined = torch.library.custom_op("pullback_compat::double", twice, mutates_args=())
    assert _compat.library_rules("pullback_compat::double") == (None, None, None)
    defined.register_autograd(backward, setup_context=setup_context)
    assert _compat.library_rules("pullback_compat::double") == (setup_context, backward, None)
    assert _compat.library_rules("aten::mul") == (None, None, None)
    overload = _compat.library_overload(defined)
    assert overload is torch.ops.pullback_compat.double.default
    assert _compat.library_overload(torch.ops.pullback_compat.double) is overload
    assert _compat.library_overload(overload) is overload
    assert _compat.library_overload(twice) is None


def test_saved_hooks_are_allowed_within_a_ban_which_holds_again_afterwards():
    def allowed():
        with torch.autograd.graph.save_on_cpu():
            return True

    with torch.autograd.graph.disable_saved_tensors_hooks("banned"):
        with _compat.saved_hooks_allowed():
            assert allowed()
        with pytest.raises(RuntimeError, match="banned"):
            allowed()
    with _compat.saved_hooks_allowed():
        assert allowed()
    assert allowed()
