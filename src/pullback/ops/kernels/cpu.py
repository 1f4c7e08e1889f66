"""The C kernels as functions of tensors, and when they may be used."""

from __future__ import annotations

import contextlib
import ctypes
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import _compat
from .build import KernelError, build

_POINTER, _FLOAT, _INT, _LONG = ctypes.c_void_p, ctypes.c_float, ctypes.c_int32, ctypes.c_int64
# The tensors that each kernel reads and writes, then its numbers; before them stand the count of elements and of threads.
KERNELS: dict[str, tuple[Any, ...]] = {
    "swish_forward": (_POINTER, _POINTER, _FLOAT),
    "swish_backward": (_POINTER, _POINTER, _POINTER, _FLOAT),
    "gelu_tanh_forward": (_POINTER, _POINTER),
    "gelu_tanh_backward": (_POINTER, _POINTER, _POINTER),
    "guided_relu_backward": (_POINTER, _POINTER, _POINTER),
    "exp_scaled_forward": (_POINTER, _POINTER, _FLOAT),
    "sign_ste_forward": (_POINTER, _POINTER),
    "sign_ste_backward": (_POINTER, _POINTER, _POINTER),
    "heaviside_forward": (_POINTER, _POINTER),
    "heaviside_arctan": (_POINTER, _POINTER, _POINTER, _FLOAT),
    "heaviside_fast_sigmoid": (_POINTER, _POINTER, _POINTER, _FLOAT),
    "heaviside_triangle": (_POINTER, _POINTER, _POINTER, _FLOAT),
    "add_noise": (_POINTER, _POINTER, _POINTER, _FLOAT),
    "dropout": (_POINTER, _POINTER, _POINTER, _INT, _FLOAT),
    "swiglu_forward": (_POINTER,) * 3,
    "swiglu_backward": (_POINTER,) * 5,
    "rms_norm_forward": (*(_POINTER,) * 4, _LONG, _FLOAT),
    "rms_norm_backward": (*(_POINTER,) * 6, _LONG, _LONG),
    "logsumexp_forward": (_POINTER, _POINTER, _LONG),
    "logsumexp_backward": (_POINTER, _POINTER, _POINTER, _LONG),
    "cross_entropy_forward": (*(_POINTER,) * 6, _LONG, _LONG, _INT, _FLOAT, _FLOAT),
    "cross_entropy_backward": (*(_POINTER,) * 5, _LONG, _LONG, _INT, _FLOAT, _FLOAT),
}

_transforms = _compat.transforms_active()
_level = _compat.forward_level()
_modes = _compat.dispatch_modes()
_PLAIN = (Tensor, torch.nn.Parameter)
_loaded: dict[str, Any] | None = None


def compile_kernels() -> Path:
    """Compile the C kernels, or find them in the cache, use them from now on, and return their library.

    Without this call, or the environment variable ``PULLBACK_KERNELS=1``, no compiler runs and the ops are made of torch operations, with the same
    numbers and the same random streams. The kernels serve contiguous float32 tensors on the CPU outside of compilers and transforms.

    Returns:
        The shared library: one for each CPU, compiler and version of the sources, in ``$PULLBACK_CACHE``, ``$XDG_CACHE_HOME/pullback`` or
        ``~/.cache/pullback``.

    Raises:
        KernelError: without a C compiler, for a compiler that fails, and for a cache folder that others may write to.

    Example:
        >>> import pullback as pb
        >>> pb.ops.compile_kernels()  # doctest: +SKIP
        PosixPath('/home/user/.cache/pullback/kernels-1f0c.so')
    """
    global _loaded
    path = build()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelError(f"The compiled kernels {path} cannot be loaded: {error}. Delete the file to have them compiled again.") from error
    found = {}
    for name, types in KERNELS.items():
        function = getattr(library, name)
        function.argtypes, function.restype = (ctypes.c_int64, ctypes.c_int, *types), None
        found[name] = function
    _loaded = found
    return path


def loaded() -> bool:
    """Whether the C kernels are in use."""
    return _loaded is not None


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Run as if the kernels were not compiled."""
    global _loaded
    before, _loaded = _loaded, None
    try:
        yield
    finally:
        _loaded = before


def plain(*tensors: Tensor) -> bool:
    """Whether nobody watches what is done with `tensors`: no compiler, transform, forward-mode level, dispatch mode, subclass or autograd graph."""
    if torch.compiler.is_compiling() or _transforms() or _level._current_level >= 0 or _modes():
        return False
    recording = torch.is_grad_enabled()
    for tensor in tensors:  # noqa: SIM110  a compiler traces the loop, not the generator
        if type(tensor) not in _PLAIN or (recording and tensor.requires_grad):
            return False
    return True


def usable(*tensors: Tensor) -> bool:
    """Whether a kernel may read `tensors` as flat arrays."""
    if torch.compiler.is_compiling() or _loaded is None or not plain(*tensors):
        return False
    for tensor in tensors:
        if tensor.dtype is not torch.float32 or tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.is_neg():
            return False
    return True


def flat(name: str, *tensors: Tensor, numbers: tuple[float, ...] = (), extra: tuple[Tensor, ...] = ()) -> Tensor | None:
    """Run an elementwise kernel on tensors of one shape; None where it is not there or may not be used.

    Args:
        name: The kernel.
        *tensors: What it reads, float32.
        numbers: Its further arguments.
        extra: Tensors that it reads after its output: a seed.
    """
    if torch.compiler.is_compiling() or _loaded is None or not usable(*tensors):
        return None
    first = tensors[0]
    out = torch.empty_like(first)
    pointers = [tensor.data_ptr() for tensor in (*tensors, out, *extra)]
    _loaded[name](first.numel(), torch.get_num_threads(), *pointers, *numbers)
    return out


def run(name: str, count: int, *arguments: Any) -> None:
    """Run a kernel on what `usable` has let through, and on tensors made to be written to.

    Args:
        name: The kernel.
        count: Its count of rows or elements.
        *arguments: Tensors, None for a null pointer, pointers of ctypes, and numbers, in its order.
    """
    assert _loaded is not None
    _loaded[name](count, torch.get_num_threads(), *[a.data_ptr() if isinstance(a, Tensor) else a for a in arguments])


def _asked_for() -> None:
    if os.environ.get("PULLBACK_KERNELS", "0") in ("", "0"):
        return
    try:
        compile_kernels()
    except KernelError as error:
        warnings.warn(f"PULLBACK_KERNELS is set, but the ops run as torch operations: {error}", RuntimeWarning, stacklevel=2)


_asked_for()
