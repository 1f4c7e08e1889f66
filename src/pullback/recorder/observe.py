"""The hot path: note one call of forward or backward under its signature."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from .. import _compat
from ..capture.calls import positional_names
from ..capture.recorded import FunctionRecord, Layout, Signature
from .naming import arguments_of
from .storing import Budget, is_plain, layout_of, store_call

SIGNATURES = 200
"""Distinct signatures kept for one derivative; later ones are counted together."""

CALLS = 24
"""Calls kept for one derivative."""

TOTAL_BUDGET = 512 << 20
_VALUES = (int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.Size, bytes)


class Entry:
    """One derivative under observation.

    Args:
        function: The Function class.
        record: What is known about it; several generated classes of one op share it.
        names: Names of the arguments.
    """

    __slots__ = ("function", "kept", "names", "pending", "record", "signatures")

    def __init__(self, function: type[torch.autograd.Function], record: FunctionRecord, names: tuple[str, ...]) -> None:
        self.function = function
        self.record = record
        self.names = names
        self.signatures: dict[Any, Signature] = {}
        self.pending: dict[int, list[Signature]] = {}
        self.kept = 0

    def count_elsewhere(self, where: str) -> None:
        self.record.elsewhere[where] = self.record.elsewhere.get(where, 0) + 1


class Observer:
    """Notes calls. It reads tensors' metadata, copies the arguments of a signature's first call, and never raises into the program.

    Backward finds its signature by the identity of `ctx`, since on CUDA it runs in another thread.

    Args:
        values: Whether the values of tensors are kept.
    """

    def __init__(self, *, values: bool = True) -> None:
        self.active = True
        self.values = values
        self.budget = Budget(TOTAL_BUDGET)
        self.lock = threading.Lock()
        self._of_ctx: dict[int, tuple[Entry, Signature]] = {}
        self._transforms = _compat.transforms_active()
        self._modes = _compat.dispatch_modes_active()
        self._autocast = _compat.any_autocast()
        self._checkpoint = _compat.saved_tensor_hook()
        self._in_backward = _compat.inside_backward()

    def clear(self) -> None:
        """Forget contexts and take a new lock: what a forked child does."""
        self.lock = threading.Lock()
        self._of_ctx.clear()

    # forward

    def before_forward(self, entry: Entry, ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature | None:
        """Return the signature of a call that is about to run, with its arguments kept if it is the first; None where it is only counted."""
        if self._transforms():
            return self._only_count(entry, ctx, "inside torch.func")
        if self._modes():
            return self._only_count(entry, ctx, "under a dispatch mode")
        try:
            return self._signature(entry, ctx, args, kwargs)
        except Exception as error:
            return self._only_count(entry, ctx, f"not understood ({type(error).__name__})")

    def _only_count(self, entry: Entry, ctx: Any, where: str) -> None:
        self._of_ctx.pop(id(ctx), None)
        with self.lock:
            entry.count_elsewhere(where)

    def _signature(self, entry: Entry, ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Signature:
        grad = ctx is None or bool(ctx.next_functions)
        where = self._place()
        autocast = _autocast_states() if self._autocast() else ()
        args, kwargs = arguments_of(entry.record.kind, args, kwargs)
        with torch._C.DisableTorchFunction():
            key = (tuple([_part(arg) for arg in args]), tuple(kwargs.items()) and _part(kwargs), grad, where, autocast)
            signature = entry.signatures.get(key)
            if signature is None:
                signature = self._new(entry, key, args, kwargs, grad, where, autocast)
        return signature

    def _place(self) -> tuple[str, ...]:
        hook = self._checkpoint()
        inside = self._in_backward()
        if hook is None and not inside:
            return ()
        checkpoint = hook is not None and "checkpoint" in str(getattr(hook, "__module__", ""))
        return (*(("checkpoint",) if checkpoint else ()), *(("recomputed",) if inside else ()))

    def _new(
        self, entry: Entry, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grad: bool, where: tuple[str, ...], autocast: tuple[str, ...]
    ) -> Signature:
        with self.lock:
            if len(entry.signatures) >= SIGNATURES:
                signature = entry.signatures.get(None)
                if signature is None:
                    signature = entry.signatures[None] = Signature(("other shapes and values",), no_call=f"more than {SIGNATURES} signatures")
                    entry.record.signatures.append(signature)
                return signature
        names = [*positional_names(entry.names, len(args)), *kwargs]
        texts = tuple(f"{name}{_show(value)}" for name, value in zip(names, (*args, *kwargs.values()), strict=True))
        signature = Signature(texts, ", ".join(autocast), grad, where)
        self._keep(entry, signature, args, kwargs)
        with self.lock:
            known = next((s for s in entry.record.signatures if s.key == signature.key), None)
            signature = entry.signatures.setdefault(key, known or signature)
            if known is None and signature not in entry.record.signatures:
                entry.record.signatures.append(signature)
        return signature

    def _keep(self, entry: Entry, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if entry.kept >= CALLS:
            signature.no_call = f"{CALLS} other calls are kept"
            return
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            signature.no_call = "inside a CUDA graph capture"
            return
        try:
            with torch.no_grad():
                signature.call = store_call(args, kwargs, values=self.values, budget=self.budget)
            entry.kept += 1
        except Exception as error:
            signature.no_call = f"its arguments are not stored: {str(error).partition(chr(10))[0][:200]}"

    def after_forward(self, entry: Entry, ctx: Any, signature: Signature | None, result: Any, seconds: float) -> None:
        """Count a call that returned; `ctx` is None where setup_context will bring it."""
        if signature is None:
            return
        with self.lock:
            signature.calls += 1
            signature.forward_seconds += seconds
        if ctx is None:
            waiting = entry.pending.setdefault(threading.get_ident(), [])
            del waiting[:-8]
            waiting.append(signature)
        else:
            self._of_ctx[id(ctx)] = (entry, signature)
            if signature.calls == 1:
                self._note_kept(signature, ctx)
        if signature.calls == 1:
            with contextlib.suppress(Exception), torch._C.DisableTorchFunction():
                signature.outputs = _layouts(result if isinstance(result, tuple) else (result,))

    def after_setup(self, entry: Entry, ctx: Any) -> None:
        """Tie the context of a setup_context-style call to the signature of its forward."""
        waiting = entry.pending.get(threading.get_ident())
        if not waiting:
            return
        signature = waiting.pop()
        self._of_ctx[id(ctx)] = (entry, signature)
        builds = bool(ctx.next_functions)
        signature.grad = builds if signature.calls == 1 else signature.grad or builds
        if signature.calls == 1:
            self._note_kept(signature, ctx)

    def _note_kept(self, signature: Signature, ctx: Any) -> None:
        with contextlib.suppress(Exception), torch._C.DisableTorchFunction():
            kept = [t for t in ctx.to_save or () if isinstance(t, Tensor)]
            kept += [value for value in vars(ctx).values() if isinstance(value, Tensor)]
            signature.kept_bytes = sum(t.numel() * t.element_size() for t in {id(t): t for t in kept}.values())

    def raised(self, signature: Signature | None) -> None:
        """Count a call that raised."""
        if signature is not None:
            with self.lock:
                signature.raised += 1

    # backward

    def before_backward(self, entry: Entry, ctx: Any, grads: tuple[Any, ...]) -> Signature | None:
        """Return the signature whose forward made `ctx`, with the layout of grad_outputs counted."""
        owner, signature = self._of_ctx.get(id(ctx), (None, None))
        if owner is not entry or signature is None or self._modes() or self._transforms():
            return None
        try:
            with torch._C.DisableTorchFunction():
                key = _layouts(grads)
            with self.lock:
                signature.gradients[key] = signature.gradients.get(key, 0) + 1
        except Exception:
            return signature
        return signature

    def after_backward(self, signature: Signature | None, seconds: float) -> None:
        """Count a backward that returned."""
        if signature is not None:
            with self.lock:
                signature.backward_calls += 1
                signature.backward_seconds += seconds


_KNOWN_LAYOUTS: dict[Any, Layout] = {}


def _layouts(values: tuple[Any, ...]) -> tuple[Layout | None, ...]:
    return tuple([_layout(value) for value in values])


def _layout(value: Any) -> Layout | None:
    if not is_plain(value):
        return None
    key = (value.shape, value.stride() if value.layout is torch.strided else None, value.dtype)
    found = _KNOWN_LAYOUTS.get(key)
    if found is None:
        if len(_KNOWN_LAYOUTS) > 10_000:
            _KNOWN_LAYOUTS.clear()
        found = _KNOWN_LAYOUTS[key] = layout_of(value)
    return found


def _part(value: Any) -> Any:
    """Return a hashable key of one argument."""
    kind = type(value)
    if kind is Tensor or kind is torch.nn.Parameter:
        strides = value.stride() if value.layout is torch.strided else value.layout
        return (value.shape, strides, value.dtype, value.device, value.requires_grad)
    if kind in _VALUES:
        return (kind, value)
    if kind is list or kind is tuple:
        return (kind, tuple([_part(item) for item in value]))
    if kind is dict:
        return (kind, tuple([(str(name), _part(item)) for name, item in value.items()]))
    return kind


def _show(value: Any) -> str:
    if is_plain(value):
        device = "" if value.device.type == "cpu" else f" on {value.device}"
        return f": {layout_of(value)}{device}{'' if value.requires_grad else ', no grad'}"
    if type(value) in _VALUES:
        return f"={value!r}"
    if type(value) in (list, tuple, dict):
        items = list(value.values()) if isinstance(value, dict) else list(value)
        return f": {type(value).__name__} of {len(items)}" + (f" ({', '.join(_show(i).lstrip(':= ') for i in items[:4])})" if items else "")
    return f": {type(value).__name__}"


def _autocast_states() -> tuple[str, ...]:
    return tuple(
        f"{device} {str(torch.get_autocast_dtype(device)).removeprefix('torch.')}" for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)
    )


Clock: Callable[[], float] = perf_counter
