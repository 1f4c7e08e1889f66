"""Autocast: what forward ran under, so that backward runs under the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

AutocastState = tuple[str, torch.dtype, bool, bool]


def device_of(args: Any) -> str:
    """The device type of the first tensor among `args`."""
    for arg in args:
        if isinstance(arg, torch.Tensor):
            return arg.device.type
    return "cpu"


def autocast_state(args: Any) -> AutocastState | None:
    """The autocast state for the device of `args`; None where the device has none."""
    device = device_of(args)
    if device not in ("cpu", "cuda", "xpu", "mps", "hpu", "xla", "mtia"):
        return None
    return device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device), torch.is_autocast_cache_enabled()


def under(state: AutocastState | None) -> Any:
    """A context manager that brings `state` back."""
    if state is None:
        return contextlib.nullcontext()
    return torch.autocast(state[0], dtype=state[1], enabled=state[2], cache_enabled=state[3])


def caster(choice: torch.dtype | str) -> Callable[[Any], Any]:
    """A function that casts a tuple of arguments as `choice` says: a dtype, or ``"inputs"`` for the widest floating dtype among them."""

    def cast(args: Any) -> Any:
        floating = [arg.dtype for arg in args if isinstance(arg, torch.Tensor) and arg.is_floating_point()]
        if not floating or not torch.is_autocast_enabled(device_of(args)):
            return args
        dtype = choice if isinstance(choice, torch.dtype) else widest(floating)
        return tuple([arg.to(dtype) if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg for arg in args])

    return cast


def widest(dtypes: list[torch.dtype]) -> torch.dtype:
    """The dtype that holds every value of `dtypes`."""
    wide = dtypes[0]
    for dtype in dtypes[1:]:
        wide = torch.promote_types(wide, dtype)
    return wide


def without_autocast(body: Callable[..., Any]) -> Callable[..., Any]:
    """`body`, run with autocast off: its arguments have been cast already."""

    def plain(*args: Any) -> Any:
        with torch.autocast(device_of(args), enabled=False):
            return body(*args)

    return plain
