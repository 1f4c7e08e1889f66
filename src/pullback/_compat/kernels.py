"""Kernels without a public name, and what they allocate and wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
