"""Every private torch name and version test that pullback uses, each with its fallback and the version that retires it."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


def transforms_active() -> Callable[[], bool]:
    """The C test for a running torch.func transform (grad, vmap, jvp).

    Fallback: none needed; `Function.apply` of every torch since 2.1 asks the same. Retire when torch has a public test.
    """
    import torch

    return torch._C._are_functorch_transforms_active


def forward_level() -> Any:
    """The module whose `_current_level` is at least 0 while a forward-mode level is open.

    Fallback: none; the name has been there since torch 1.11. Retire when torch.autograd.forward_ad can be asked.
    """
    import torch.autograd.forward_ad as forward_ad

    return forward_ad


def any_autocast() -> Callable[[], bool]:
    """Whether autocast is on for any device.

    Fallback: the CUDA and CPU states, for a torch without the private name. Retire when torch has a public test.
    """
    import torch

    return getattr(torch._C, "_is_any_autocast_enabled", None) or (lambda: torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"))


def c_apply(function: Any) -> Any:
    """The C entry of `Function.apply`, bound to `function`; it skips the Python prologue that binds arguments at every call.

    Fallback: none; `Function.apply` itself ends in this call. Retire when `Function.apply` no longer calls inspect.signature (pytorch#90224).
    """
    import torch

    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def call_under_transforms(function: Any, *args: Any) -> Any:
    """What `Function.apply` does while a torch.func transform runs, without binding arguments.

    Fallback: `function.apply`. Retire together with `c_apply`.
    """
    from torch._functorch.autograd_function import custom_function_call

    call: Any = custom_function_call
    return call(function, *args)


def unwrap_dead(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """`values` without the wrappers of torch.func transforms that have ended, as torch's own operators unwrap them.

    Fallback: none; `Function.apply` calls the same. Retire when saved tensors come unwrapped.
    """
    from torch._functorch.utils import unwrap_dead_wrappers

    return unwrap_dead_wrappers(values)


def jvp_levels() -> int:
    """How many torch.func.jvp transforms are running.

    Fallback: none; torch's own jvp calls it. Retire when a Function's setup_context can tell what it is run for.
    """
    from torch._C._functorch import TransformType, get_interpreter_stack

    return sum(interpreter.key() == TransformType.Jvp for interpreter in get_interpreter_stack() or ())


def outside_transforms() -> Any:
    """A context manager in which no torch.func transform is running, for work on tensors of one's own.

    Fallback: none; torch uses it where a backend compiles inside a transform. Retire when torch has a public one.
    """
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def dispatch_mode() -> type:
    """The base class of modes that see every operator call with its tensors.

    Such a mode is never traced here, so it need not be hidden from dynamo, whose import that costs (1 to 3 s in a fresh process).
    Fallback: none; the class has been there since torch 2.0, and a torch that does not ask imports dynamo. Retire when torch exports it under a
    public name.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

    return Mode


def fake_mode() -> Any:
    """A new mode in which tensors have shape, dtype and device but no memory, on devices that need not exist.

    Asking for a data pointer raises instead of giving null, which a kernel would follow.
    Fallback: none; torch.export itself is built on it. Retire when torch exports FakeTensorMode under a public name.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    class WithoutPointers(FakeTensorMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = super().__torch_dispatch__(func, types, args, kwargs)
            for tensor in result if isinstance(result, (list, tuple)) else (result,):
                if isinstance(tensor, torch.Tensor):
                    torch._C._set_throw_on_mutable_data_ptr(tensor)
            return result

    return WithoutPointers(allow_non_fake_inputs=False)


def storage_id(tensor: Any) -> int:
    """A number that two live tensors share exactly if they share their memory; also for storages without bytes.

    Fallback: the tensor's own id where it has no storage (sparse, wrappers). Retire when `UntypedStorage` can be compared and hashed.
    """
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def parts_of(tensor: Any) -> list[Any]:
    """The strided tensors that a sparse tensor is made of; empty for one that is not sparse.

    Fallback: none; the names of uncoalesced parts are underscored. Retire when `indices` and `values` take uncoalesced tensors.
    """
    import torch

    names = {
        torch.sparse_coo: ("_indices", "_values"),
        torch.sparse_csr: ("crow_indices", "col_indices", "values"),
        torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
        torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
        torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
    }
    return [getattr(tensor, name)() for name in names.get(tensor.layout, ())]


def checkpointed(unpack: Any) -> dict[str, Any]:
    """The tensors that torch.utils.checkpoint keeps to run its function once more, by name, from a saved tensor's unpack hook; empty for other hooks.

    Fallback: nothing is found where the closures have other names. Retire when a checkpoint can be asked.
    """
    import torch

    if getattr(unpack, "__module__", "") != "torch.utils.checkpoint":
        return {}
    frame = _closed_over(unpack, "frame")
    older = getattr(getattr(getattr(frame, "input_saver", None), "grad_fn", None), "saved_tensors", ())
    inputs = [packed(value) if type(value).__name__ == "SavedTensor" else value for value in getattr(frame, "saved_args", older)]
    found = {f"input {i} of its checkpoint": value for i, value in enumerate(inputs)}
    found["random state of its checkpoint"] = _closed_over(getattr(frame, "recompute_fn", None), "fwd_cpu_state")
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def _closed_over(function: Any, name: str) -> Any:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    try:
        return function.__closure__[names.index(name)].cell_contents if name in names else None
    except ValueError:  # the cell is empty
        return None


def base_of(tensor: Any) -> Any:
    """The tensor that autograd takes `tensor` to be a view of, or None.

    Fallback: none; documented but underscored. Retire when `Tensor._base` gets a public name.
    """
    return tensor._base


def negative_view(tensor: Any) -> Any:
    """The negative of `tensor` as a view of its memory with the negative bit set, as the imaginary part of a lazy conjugate has it.

    Fallback: none; documented but underscored. Retire when torch exports it under a public name.
    """
    import torch

    return torch._neg_view(tensor)


def undefined_gradient() -> Any:
    """A new identity op of one tensor whose backward hands on an undefined gradient, as a consumer does that returns None.

    Fallback: none; torch's own battery uses it. Retire when torch exports it under a public name.
    """
    import torch

    return torch._C._functions.UndefinedGrad()  # type: ignore[attr-defined]


def constant_result(function: Any) -> Any:
    """`function`, which dynamo calls while it traces instead of looking into it: torch.compiler.assume_constant_result without importing dynamo (1.1
    s).

    Fallback: torch.compiler.assume_constant_result itself. Retire when that no longer imports dynamo.
    """
    function._dynamo_marked_constant = True
    return function


def import_compiler() -> None:
    """Import the compiler's front end, which torch imports at the first dispatch mode or `autograd.grad` anyway, so that forked processes share it.

    Fallback: nothing is imported, and each process does it when it needs it. Retire when torch offers a server for forked workers.
    """
    import contextlib
    import importlib

    with contextlib.suppress(ImportError):
        importlib.import_module("torch._dynamo")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool) -> None:
    """torch.use_deterministic_algorithms without importing the compiler (1.1 s), whose own setting it changes too.

    Fallback: the public function. Retire when that no longer imports inductor.
    """
    import sys

    import torch

    setter = getattr(torch._C, "_set_deterministic_algorithms", None)
    if setter is None or "torch._inductor.config" in sys.modules:
        torch.use_deterministic_algorithms(mode, warn_only=warn_only)
    elif (mode, warn_only) != (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()):
        setter(mode, warn_only=warn_only)


def compiled_from(function: Any) -> Any:
    """The function that torch.compile wrapped, None for any other.

    Fallback: None, so that the source of a compiled helper is not read. Retire when torch.compile sets `__wrapped__` on all that it returns.
    """
    return getattr(function, "_torchdynamo_orig_callable", None)


def forward_mode_below(values: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A context manager in which tangents of outer jvp levels are propagated, and `values` without their tangents at the level that is running.

    torch runs a Function's jvp with forward mode switched off for every level, so that jvp(jvp(f)) of a Function is silently 0; switched on, what
    jvp reads must not bring its tangent of the present level along. Fallback: none. Retire when torch does the same.
    """
    import torch
    import torch._C._functorch as _functorch
    from torch.autograd.forward_ad import _set_fwd_grad_enabled

    stack = _functorch.get_interpreter_stack() or ()
    level = max((i.level() for i in stack if i.key() == _functorch.TransformType.Jvp), default=-1)

    def primal(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if _functorch.is_batchedtensor(value):
            own: Any = _functorch.maybe_get_level(value)
            batched: Any = _functorch._unwrap_batched(value, own)
            inner, dim = batched
            return _functorch._add_batch_dim(primal(inner), dim, own)
        if _functorch.is_gradtrackingtensor(value) and _functorch.maybe_get_level(value) == level:
            return _functorch._wrap_for_grad(_functorch._unwrap_for_grad(value, level), level)
        return value

    return _set_fwd_grad_enabled(True), tuple([primal(value) for value in values])


def dispatch_modes() -> Callable[[], int]:
    """The C function that counts running dispatch modes (fake tensors, tracing, selective checkpoint), which see every operator call.

    Fallback: none is seen. Retire when torch has a public test.
    """
    import torch

    return getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def function_modes() -> Callable[[], int]:
    """The C function that counts running TorchFunctionModes, which see every use of a tensor from Python.

    Fallback: one is taken to run, which costs time only. Retire when torch has a public test.
    """
    import torch

    return getattr(torch._C, "_len_torch_function_stack", lambda: 1)


def context_type(function: Any) -> type | None:
    """The class of the `ctx` that torch makes for a call of this very Function, rather than of a subclass or under a transform.

    Fallback: none; torch's own engine reads the name. Retire when a ctx names its Function.
    """
    return getattr(function, "_backward_cls", None)


def saved_tensor_hooks() -> Callable[[bool], Any]:
    """The C function that returns the pair which packs and unpacks tensors that are saved now, or None; called with False.

    Non-reentrant checkpoint is such a pair. Fallback: none is seen. Retire when torch can be asked whether a checkpoint is running.
    """
    import torch

    autograd: Any = getattr(torch._C, "_autograd", None)
    return getattr(autograd, "_top_saved_tensors_default_hooks", lambda ignored: None)


def graph_task() -> Callable[[], int]:
    """The C function that numbers the backward which the engine is running in this thread, -1 for none; a checkpoint recomputes inside one.

    Fallback: it is never seen. Retire when torch has a public test.
    """
    import torch

    return getattr(torch._C, "_current_graph_task_id", lambda: -1)


def traced_as(wrapper: Any, original: Any) -> Any:
    """`wrapper`, in whose place dynamo traces `original`.

    Fallback: dynamo traces the wrapper. Retire when torch.compiler can say this.
    """
    wrapper._torchdynamo_inline = original
    return wrapper


def on_new_function(seen: Callable[[Any], None]) -> Callable[[], None]:
    """Call `seen` with every autograd.Function subclass that is made from now on; returns what ends this.

    Fallback: `Function.__init_subclass__`, which a class may forget to call. Retire when torch has a registry of Functions.
    """
    from torch.autograd.function import FunctionMeta

    original = FunctionMeta.__init__

    def init(cls: Any, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        original(cls, name, bases, attrs)
        seen(cls)

    FunctionMeta.__init__ = init

    def end() -> None:
        if FunctionMeta.__init__ is init:
            FunctionMeta.__init__ = original

    return end


def compiled_graphs() -> int:
    """How many graphs torch.compile has made in this process; dynamo is not imported for this.

    Fallback: 0. Retire when torch.compiler counts them.
    """
    import sys

    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters.get("stats", {}).get("unique_graphs", 0))


def on_traced_function(seen: Callable[[Any], None]) -> Callable[[], None] | None:
    """Call `seen` with every Function class whose apply dynamo traces from now on; returns what ends this, None where dynamo is not imported.

    Fallback: None. Retire when dynamo reports what it inlines.
    """
    import sys

    kind = getattr(sys.modules.get("torch._dynamo.variables.misc"), "AutogradFunctionVariable", None)
    original = getattr(kind, "call_apply", None)
    if kind is None or original is None:
        return None

    def call_apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen(self.fn_cls)
        return original(self, *args, **kwargs)

    kind.call_apply = call_apply
    return lambda: setattr(kind, "call_apply", original)


def forget_process_groups() -> Any:
    """Let a forked process start with no process group; returns the inherited ones, whose threads are gone: keep them, as ending them hangs.

    Fallback: none; torch.distributed has no other way to leave a group without ending it. Retire when it has one.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    inherited = (distributed_c10d._world, dist.GroupMember.WORLD)
    distributed_c10d._world = type(distributed_c10d._world)()
    dist.GroupMember.WORLD = None  # type: ignore[assignment]
    return inherited


def gpu_delay() -> Callable[[], None]:
    """Keeps the current CUDA stream busy for some hundredths of a second without keeping the CPU.

    Fallback: a chain of matrix products. Retire when torch.cuda has a public sleep.
    """
    import torch

    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is not None:
        return lambda: sleep(100_000_000)
    block = torch.eye(4096, device="cuda")

    def multiply() -> None:
        product = block
        for _ in range(40):
            product = product @ block

    return multiply


def import_dtensor() -> None:
    """Import DTensor and the compiler's front end, which it imports at its first operation, so that forked processes share both.

    Fallback: as for `import_compiler`. Retire together with it.
    """
    import torch.distributed.tensor  # noqa: F401

    import_compiler()


def without_torch_function() -> Any:
    """Return a context in which tensor classes of the user's own do not take part in operations on them.

    Private: `torch._C.DisableTorchFunctionSubclass`. Fallback: `torch._C.DisableTorchFunction`, which switches off modes as well. Not to retire.
    """
    import torch

    context = getattr(torch._C, "DisableTorchFunctionSubclass", None) or torch._C.DisableTorchFunction
    return context()


def results_of(node: Any) -> tuple[Any, ...]:
    """What autograd knows of the tensors that a node's forward gave: objects with `shape` and `dtype`.

    Private: `Node._input_metadata`. Fallback: none is known. Retires: none known.
    """
    return getattr(node, "_input_metadata", ())


def made_at(node: Any) -> int:
    """A number that grows with every node that a thread makes; leaves have the largest.

    Private: `Node._sequence_nr`. Fallback: 0, so that nodes stay in the order of the walk. Retires: none known.
    """
    number = getattr(node, "_sequence_nr", None)
    return number() if number is not None else 0


def saved_names(kind: type) -> list[str]:
    """The names of what nodes of a kind save: ``self``, ``other``, ``result``; ``tensors`` for custom Functions.

    Private: `Node._raw_saved_*`. Fallback: nothing is saved. Retires: none known.
    """
    return [name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_")]


def saved_slots(node: Any, name: str) -> tuple[Any, ...]:
    """The saved tensors under one of `saved_names`, still packed; empty once backward has freed them.

    Private: `Node._raw_saved_*`. Fallback: none. Retires: none known.
    """
    try:
        slots = getattr(node, f"_raw_saved_{name}", None)
    except RuntimeError:
        return ()
    return tuple(slots) if isinstance(slots, (tuple, list)) else (slots,) if slots is not None else ()


def packed(slot: Any) -> Any:
    """What a saved tensor really keeps: the tensor, or what a saved-tensor hook made of it; None once it is freed. No hook runs.

    Private: `SavedTensor.data`. Fallback: the unpacked tensor, which runs the hook. Retires: none known.
    """
    try:
        return slot.data if hasattr(slot, "data") else slot.unpack()
    except RuntimeError:
        return None


def unseen() -> Any:
    """A context in which neither tensor classes of the user's own nor TorchFunctionModes take part in what is done with tensors.

    Fallback: none; the class has been there since torch 2.0. Retire when torch exports it under a public name.
    """
    import torch

    return torch._C.DisableTorchFunction()


def library_op(value: Any) -> str:
    """The name ``"ns::op.overload"`` of a torch.library op's overload; an empty text for anything else.

    Fallback: none; torch.library hands these objects out. Retire when their class and names are public.
    """
    import torch

    return f"{value.namespace}::{value._opname}.{value._overloadname}" if isinstance(value, torch._ops.OpOverload) else ""


def library_arguments(op: Any) -> tuple[str, ...]:
    """The names of a torch.library op's arguments.

    Fallback: none. Retire when an op's schema is public.
    """
    return tuple(argument.name for argument in op._schema.arguments)


def is_registered(name: str) -> bool:
    """Whether a torch.library op ``"ns::op"`` is registered, without looking it up, which could load one.

    Fallback: none. Retire when torch.library can be asked.
    """
    import torch

    return any(known == name or known.startswith(f"{name}.") for known in torch._C._dispatch_get_all_op_names())


def onednn_linear() -> Any:
    """``(x, weight, bias) -> x weightᵀ + bias`` by oneDNN for float32 on CPU, without a derivative; None where torch was built without it.

    Fallback: torch's own product. Retire when torch chooses the faster of its two libraries for float32, or lets callers choose.
    """
    import torch

    kernel = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
    if kernel is None:
        return None
    return lambda x, weight, bias: kernel(x, weight, bias, "none", [], "")


def allocations(call: Any) -> list[int]:
    """Bytes that torch's allocators hand out (positive) and get back (negative) while `call()` runs, in order.

    Private: `kineto_results` of a profile; its public events leave out what happens inside of operators. torch 2.13 prints a line at start and stop
    unless this variable is set when the profiler runs first. Fallback: none. Retire when a profile's memory events are public.
    """
    import os

    import torch

    before = os.environ.get("KINETO_LOG_LEVEL")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        profile: Any = torch.autograd.profiler.profile(profile_memory=True)
        with profile:
            call()
    finally:
        if before is None:
            os.environ.pop("KINETO_LOG_LEVEL", None)
    events = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]


def after_backward() -> Callable[[Callable[[], None]], None]:
    """What calls a function when the backward that is running now has ended; callable from a hook on a tensor.

    Fallback: none; DDP and FSDP are built on it. Retire when the engine's queue_callback gets a public name.
    """
    from torch.autograd import Variable

    return Variable._execution_engine.queue_callback  # type: ignore[attr-defined]


def flattened() -> Callable[[list[Any]], Any]:
    """What makes one vector of the elements of dense tensors of one dtype.

    Fallback: torch.cat of flattened tensors, which takes several times as long. Retire when torch exports the C function.
    """
    import torch

    flatten = getattr(getattr(torch._C, "_nn", None), "flatten_dense_tensors", None)
    return flatten or (lambda tensors: torch.cat([tensor.flatten() for tensor in tensors]))


def norms(tensors: list[Any]) -> list[Any]:
    """The 2-norms of tensors of one dtype, in one call.

    Fallback: one call a tensor. Retire when torch._foreach_norm gets a public name.
    """
    import torch

    foreach = getattr(torch, "_foreach_norm", None)
    return list(foreach(tensors)) if foreach is not None else [torch.linalg.vector_norm(tensor) for tensor in tensors]


def made_by(node: Any) -> list[str]:
    """The stack at which a node was made, outermost first, as `traceback.format_stack` writes it; noted only while anomaly mode is on.

    Fallback: none is known. Retire when torch gives `Node.metadata["traceback_"]` a public name.
    """
    return list(node.metadata.get("traceback_", ()))


_VERSION = operator.attrgetter("_version")


def version_of(tensor: Any) -> int:
    """How often a tensor's memory has been written in place; 0 for an inference tensor, which does not count.

    Fallback: none; documented but underscored. Retire when `Tensor._version` gets a public name.
    """
    try:
        return tensor._version
    except RuntimeError:
        return 0


def versions_of(tensors: list[Any]) -> list[int]:
    """`version_of` every tensor, in one call.

    Fallback: none; documented but underscored. Retire when `Tensor._version` gets a public name.
    """
    try:
        return list(map(_VERSION, tensors))
    except RuntimeError:
        return list(map(version_of, tensors))


def on_gradient(tensor: Any, hook: Callable[[Any], None]) -> None:
    """Call `hook` with the gradient of `tensor` when backward has it, for good.

    That is `Tensor.register_hook` without the handle that can take the hook off again, which is most of its cost. Fallback: `register_hook`
    itself, also for leaves. Retire when it is as cheap.
    """
    node = tensor.grad_fn
    if node is None or not hasattr(node, "_register_hook_dict"):
        tensor.register_hook(hook)
        return
    if tensor._backward_hooks is None:
        tensor._backward_hooks = OrderedDict()
        node._register_hook_dict(tensor)
    tensor._backward_hooks[hook] = hook


def storage_anchor(storage: Any) -> Any:
    """What keeps the identity of a storage from being given to another one, without keeping its memory.

    Fallback: none; torch.multiprocessing is built on it. Retire when `UntypedStorage` can be referenced weakly.
    """
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(storage)


def is_once_differentiable(backward: Any) -> bool:
    """Whether a backward carries the decorator `once_differentiable`.

    Fallback: none is seen. Retire when torch marks what it wraps.
    """
    code = getattr(backward, "__code__", None)
    return hasattr(backward, "__wrapped__") and code is not None and "once_differentiable" in getattr(code, "co_qualname", "")


def writing_methods() -> list[str]:
    """The names of the Tensor methods that write in place, item assignment and ``+=`` among them.

    Fallback: none; the names are those of torch. Retire when torch lists them.
    """
    import torch

    others = {"requires_grad_", "share_memory_", "rename_", "retain_grad_", "detach_"}
    base = torch._C.TensorBase
    found = [n for n in dir(base) if n.endswith("_") and not n.startswith("_") and n not in others]
    operators = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"]
    return [*found, "__setitem__", *(f"__i{operator}__" for operator in operators if hasattr(torch.Tensor, f"__i{operator}__"))]


def writing_functions() -> list[tuple[Any, str]]:
    """The functions that write in place, with the modules that hold them: ``torch.relu_``.

    Fallback: none is known. Retire when torch lists them.
    """
    import torch

    owners = (torch, getattr(torch._C, "_nn", None), getattr(torch, "_VF", None))
    names = {name for owner in owners if owner is not None for name in dir(owner)} | set(dir(getattr(torch._C, "_VariableFunctions", None)))
    wanted = sorted(name for name in names if name.endswith("_") and not name.startswith("_"))
    return [(owner, name) for owner in owners if owner is not None for name in wanted if callable(getattr(owner, name, None))]


def on_backward(seen: Callable[[Any, bool, bool, Any], None]) -> Callable[[], None]:
    """Call `seen` with roots, retain_graph, create_graph and the calling frame of every backward that ends well; returns what ends this.

    Fallback: none is seen. Retire when torch has a hook on its engine.
    """
    import sys

    import torch.autograd

    original = getattr(torch.autograd, "_engine_run_backward", None)
    if original is None:
        return lambda: None

    def run(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(t_outputs, *args, **kwargs)
        seen(t_outputs, bool(args[1:2] and args[1]), bool(args[2:3] and args[2]), sys._getframe(1))
        return result

    torch.autograd._engine_run_backward = run
    return lambda: setattr(torch.autograd, "_engine_run_backward", original)


def is_stale(node: Any, name: str) -> bool:
    """Whether a node's saved tensor under one of `saved_names` was written in place since it was saved.

    Fallback: none is seen. Retire when a `SavedTensor` can be asked.
    """
    try:
        getattr(node, "saved_tensors" if name == "tensors" else f"_saved_{name}")
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return False


def everywhere(condition: Any) -> bool:
    """Whether a bool tensor is true in all its elements, for all examples of every vmap that is running.

    Fallback: torch's own answer, which vmap refuses. Retire when vmap offers control flow that depends on all examples.
    """
    import torch
    import torch._C._functorch as functorch

    if torch.compiler.is_compiling():
        return bool(condition.all())
    while functorch.is_functorch_wrapped_tensor(condition):
        condition = functorch.get_unwrapped(condition)
    return bool(condition.all())


def library_functions() -> list[str]:
    """The names ``"ns::op"`` of the ops that torch.library.custom_op made.

    Fallback: none is known. Retire when torch.library lists its ops.
    """
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:
        return []
    return list(OPDEFS)


def library_function(name: str) -> Any:
    """The Python function behind an op that torch.library.custom_op made; None for any other.

    Fallback: None. Retire when such an op names its function.
    """
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:
        return None
    return getattr(OPDEFS.get(name), "_init_fn", None)


def library_overload(value: Any) -> Any:
    """The overload that is called through what torch.library.custom_op or triton_op returned, or through ``torch.ops.ns.op``; None for anything else.

    Fallback: None. Retire when the classes of these objects are public.
    """
    import torch

    if isinstance(value, torch._ops.OpOverload):
        return value
    if isinstance(value, torch._ops.OpOverloadPacket):
        return getattr(value, "default", None)
    return getattr(value, "_opoverload", None) if type(value).__name__ == "CustomOpDef" else None


def library_rules(name: str) -> tuple[Any, Any]:
    """The setup_context and the backward that were registered for an op that torch.library.custom_op made; None where there is none.

    Fallback: (None, None). Retire when such an op names them.
    """
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:
        return None, None
    definition = OPDEFS.get(name)
    return getattr(definition, "_setup_context_fn", None), getattr(definition, "_backward_fn", None)


def primal(value: Any) -> Any:
    """`value` without its tangent of a dual level outside of torch.func.

    torch switches forward mode off while a Function's jvp runs, and torch.func on again inside of it: an op that its own rule calls would never end.
    Fallback: the value as it is. Retire when what `saved_tensors` gives to jvp has no tangents.
    """
    import torch
    from torch.autograd import forward_ad

    if forward_ad._current_level < 0 or not isinstance(value, torch.Tensor):
        return value
    with forward_ad._set_fwd_grad_enabled(True):
        return forward_ad.unpack_dual(value).primal


def functional_collective(name: str, *args: Any, **kwargs: Any) -> Any:
    """The result of a collective that writes into no tensor, waited for: compilers follow it, also within torch.func, where they lose such writes.

    Fallback: none; all_reduce, all_gather_tensor and reduce_scatter_tensor. Retire when torch.distributed offers them under public names.
    """
    import torch.distributed._functional_collectives as collectives

    function = getattr(collectives, name.replace("_tensor", "_single"), None) or getattr(collectives, name)  # torch 2.13 renamed two
    out = function(*args, **kwargs)
    return out.wait() if isinstance(out, collectives.AsyncCollectiveTensor) else out
