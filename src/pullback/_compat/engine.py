"""Backward while it runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def undefined_gradient() -> Any:
    """A new identity op of one tensor whose backward hands on an undefined gradient, as a consumer does that returns None.

    Fallback: none; torch's own battery uses it. Retire when torch exports it under a public name.
    """
    import torch

    return torch._C._functions.UndefinedGrad()  # type: ignore[attr-defined]


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


def after_backward() -> Callable[[Callable[[], None]], None]:
    """What calls a function when the backward that is running now has ended; callable from a hook on a tensor.

    Fallback: none; DDP and FSDP are built on it. Retire when the engine's queue_callback gets a public name.
    """
    from torch.autograd import Variable

    return Variable._execution_engine.queue_callback  # type: ignore[attr-defined]


@contextmanager
def saved_hooks_allowed() -> Iterator[None]:
    """A context in which hooks on saved tensors can be set, whatever forbids them around it.

    Fallback: none are allowed where they were forbidden. Retire when torch can say and take back that they are.
    """
    import torch

    state: Any = getattr(torch._C, "_autograd", None)
    message = getattr(state, "_saved_tensors_hooks_get_disabled_error_message", lambda: None)()
    if message is None:
        yield
        return
    state._saved_tensors_hooks_enable()
    try:
        yield
    finally:
        state._saved_tensors_hooks_disable(message)


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
