"""Modes that change or see what operators do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def any_autocast() -> Callable[[], bool]:
    """Whether autocast is on for any device.

    Fallback: the CUDA and CPU states, for a torch without the private name. Retire when torch has a public test.
    """
    import torch

    return getattr(torch._C, "_is_any_autocast_enabled", None) or (lambda: torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"))


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


def without_torch_function() -> Any:
    """Return a context in which tensor classes of the user's own do not take part in operations on them.

    Private: `torch._C.DisableTorchFunctionSubclass`. Fallback: `torch._C.DisableTorchFunction`, which switches off modes as well. Not to retire.
    """
    import torch

    context = getattr(torch._C, "DisableTorchFunctionSubclass", None) or torch._C.DisableTorchFunction
    return context()


def unseen() -> Any:
    """A context in which neither tensor classes of the user's own nor TorchFunctionModes take part in what is done with tensors.

    Fallback: none; the class has been there since torch 2.0. Retire when torch exports it under a public name.
    """
    import torch

    return torch._C.DisableTorchFunction()
