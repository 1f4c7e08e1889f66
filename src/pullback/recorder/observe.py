"""The hot path: note one call of forward or backward under its signature."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
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


class Live:
    """A signature while calls of it are counted.

    Args:
        entry: The derivative.
        signature: What is known so far; its `gradients` are written by `Observer.settle`.
    """

    __slots__ = ("entry", "gradients", "signature")

    def __init__(self, entry: Entry, signature: Signature) -> None:
        self.entry = entry
        self.signature = signature
        self.gradients: dict[Any, int] = {}


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
        self.signatures: dict[Any, Live] = {}
        self.pending: dict[int, list[Live]] = {}
        self.kept = 0

    def count_elsewhere(self, where: str) -> None:
        """Count a call of which only the place is known."""
        self.record.elsewhere[where] = self.record.elsewhere.get(where, 0) + 1

    def forget(self) -> None:
        """Forget every signature."""
        self.signatures.clear()
        self.pending.clear()
        self.kept = 0


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
        self._of_ctx: dict[int, Live] = {}
        self._transforms = _compat.transforms_active()
        self._modes = _compat.dispatch_modes()
        self._function_modes = _compat.function_modes()
        self._autocast = _compat.any_autocast()
        self._hooks = _compat.saved_tensor_hooks()
        self._task = _compat.graph_task()

    def clear(self) -> None:
        """Forget contexts and take a new lock: what a forked child does."""
        self.lock = threading.Lock()
        self._of_ctx.clear()

    # forward

    def before_forward(self, entry: Entry, ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Live | None:
        """Return the signature of a call that is about to run, with its arguments kept if it is the first; None where it is only counted."""
        if self._transforms():
            return self._only_count(entry, ctx, "inside torch.func")
        if self._modes():
            return self._only_count(entry, ctx, "under a dispatch mode")
        try:
            if self._function_modes():
                with _compat.unseen():
                    return self._live(entry, ctx, args, kwargs)
            return self._live(entry, ctx, args, kwargs)
        except Exception as error:
            return self._only_count(entry, ctx, f"not understood ({type(error).__name__})")

    def _only_count(self, entry: Entry, ctx: Any, where: str) -> None:
        self._of_ctx.pop(id(ctx), None)
        with self.lock:
            entry.count_elsewhere(where)

    def _live(self, entry: Entry, ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Live:
        hooks = self._hooks(False)
        where = _NOWHERE if hooks is None and self._task() == -1 else self._place(hooks)
        autocast = _autocast_states() if self._autocast() else _NOWHERE
        if entry.record.kind == "library":
            args, kwargs = arguments_of(args)
        key = (tuple([_part(arg) for arg in args]), _part(kwargs) if kwargs else None, where, autocast)
        live = entry.signatures.get(key) or self._new(entry, key, args, kwargs)
        # To ask costs time in a large graph, so it is asked until the answer is yes.
        if ctx is not None and not live.signature.grad:
            live.signature.grad = bool(ctx.next_functions)
        return live

    def _place(self, hooks: Any) -> tuple[str, ...]:
        checkpoint = hooks is not None and "checkpoint" in str(getattr(hooks[0], "__module__", ""))
        return (*(("checkpoint",) if checkpoint else ()), *(("recomputed",) if self._task() != -1 else ()))

    def _new(self, entry: Entry, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Live:
        with self.lock:
            if len(entry.signatures) >= SIGNATURES:
                return entry.signatures.get(None) or self._overflow(entry)
        names = [*positional_names(entry.names, len(args)), *kwargs]
        texts = tuple(f"{name}{_show(value)}" for name, value in zip(names, (*args, *kwargs.values()), strict=True))
        _, _, where, autocast = key
        signature = Signature(texts, ", ".join(autocast), where=where)
        with self.lock:
            known = next((s for s in entry.record.signatures if s.key == signature.key), None)
        if known is None:
            self._keep(entry, signature, args, kwargs)
        with self.lock:
            live = entry.signatures.setdefault(key, Live(entry, known or signature))
            if live.signature is signature:
                entry.record.signatures.append(signature)
            return live

    def _overflow(self, entry: Entry) -> Live:
        signature = Signature(("other shapes and values",), no_call=f"more than {SIGNATURES} signatures")
        entry.record.signatures.append(signature)
        live = entry.signatures[None] = Live(entry, signature)
        return live

    def _keep(self, entry: Entry, signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if entry.kept >= CALLS:
            signature.no_call = f"{CALLS} other calls are kept"
            return
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            signature.no_call = "inside a CUDA graph capture"
            return
        try:
            with torch.no_grad(), _compat.unseen():
                signature.call = store_call(args, kwargs, values=self.values, budget=self.budget)
            entry.kept += 1
        except Exception as error:
            signature.no_call = f"its arguments are not stored: {str(error).partition(chr(10))[0][:200]}"

    def after_forward(self, entry: Entry, ctx: Any, live: Live | None, result: Any, seconds: float) -> None:
        """Count a call that returned; `ctx` is None where setup_context will bring it."""
        if live is None:
            return
        signature = live.signature
        with self.lock:
            signature.calls += 1
            signature.forward_seconds += seconds
        if ctx is None:
            waiting = entry.pending.setdefault(threading.get_ident(), [])
            del waiting[:-8]
            waiting.append(live)
        else:
            self._of_ctx[id(ctx)] = live
        if signature.calls == 1:
            with contextlib.suppress(Exception), _compat.unseen():
                signature.outputs = tuple(_layout(value) for value in (result if isinstance(result, tuple) else (result,)))
                if ctx is not None:
                    signature.kept_bytes = _kept_bytes(ctx)

    def after_setup(self, entry: Entry, ctx: Any) -> None:
        """Tie the context of a setup_context-style call to the signature of its forward."""
        waiting = entry.pending.get(threading.get_ident())
        if not waiting:
            return
        live = waiting.pop()
        self._of_ctx[id(ctx)] = live
        signature = live.signature
        if not signature.grad:
            signature.grad = bool(ctx.next_functions)
        if signature.calls == 1:
            with contextlib.suppress(Exception), _compat.unseen():
                signature.kept_bytes = _kept_bytes(ctx)

    def raised(self, live: Live | None) -> None:
        """Count a call that raised."""
        if live is not None:
            with self.lock:
                live.signature.raised += 1

    # backward

    def before_backward(self, entry: Entry, ctx: Any, grads: tuple[Any, ...]) -> Live | None:
        """Return the signature whose forward made `ctx`, with the layout of grad_outputs counted."""
        live = self._of_ctx.get(id(ctx))
        if live is None or live.entry is not entry or self._modes() or self._transforms():
            return None
        try:
            if self._function_modes():
                with _compat.unseen():
                    key = tuple([_gradient(grad) for grad in grads])
            else:
                key = tuple([_gradient(grad) for grad in grads])
            with self.lock:
                live.gradients[key] = live.gradients.get(key, 0) + 1
        except Exception:
            return live
        return live

    def after_backward(self, live: Live | None, seconds: float) -> None:
        """Count a backward that returned."""
        if live is not None:
            with self.lock:
                live.signature.backward_calls += 1
                live.signature.backward_seconds += seconds

    def settle(self, entries: Collection[Entry]) -> None:
        """Write the layouts of grad_outputs into the signatures; several classes of one op may share these."""
        with self.lock:
            lives = [live for entry in entries for live in entry.signatures.values()]
            for live in lives:
                live.signature.gradients = {}
            for live in lives:
                for key, count in live.gradients.items():
                    layouts = tuple([None if grad is None else Layout(_name(grad[2]), tuple(grad[0]), tuple(grad[1])) for grad in key])
                    live.signature.gradients[layouts] = live.signature.gradients.get(layouts, 0) + count


_NOWHERE: tuple[str, ...] = ()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _gradient(grad: Any) -> Any:
    if type(grad) is not Tensor:
        return None
    return (grad.shape, grad.stride() if grad.layout is torch.strided else (), grad.dtype)


def _layout(value: Any) -> Layout | None:
    return layout_of(value) if is_plain(value) else None


def _kept_bytes(ctx: Any) -> int:
    """Return the bytes of saved tensors and of tensors that are attributes of `ctx`."""
    kept = [t for t in ctx.to_save or () if isinstance(t, Tensor)]
    kept += [value for value in vars(ctx).values() if isinstance(value, Tensor)]
    return sum(t.numel() * t.element_size() for t in {id(t): t for t in kept}.values())


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


clock: Callable[[], float] = perf_counter
