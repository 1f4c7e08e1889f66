"""What a check leaves aside of the process, and gives back as it was: random states, modes, defaults, standard output."""

from __future__ import annotations

import os
import random
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from types import TracebackType
from typing import Any

import torch

from .. import _compat

_CPU = torch.device("cpu")
_FUNCTION_MODES = _compat.function_modes()
_ALONE = threading.RLock()
_surrounding = _CPU


@contextmanager
def preserved_state() -> Iterator[None]:
    """Restore what the checked code may change for the whole process, and keep out what surrounds the check.

    Restored: random states, grad mode, default dtype and device, determinism, anomaly mode, the precision of matrix products, number of threads,
    warning filters, working directory. Kept out: inference mode, a ban on hooks of saved tensors, and a default device, which only the checked code
    sees. One thread is in here at a time.
    """
    with _ALONE, _set_aside(), _restored():
        yield


@contextmanager
def _set_aside() -> Iterator[None]:
    global _surrounding
    device, before = _default_device(), _surrounding
    with ExitStack() as stack:
        stack.enter_context(_compat.saved_hooks_allowed())
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if device != _CPU:
            stack.enter_context(_CPU)
            _surrounding = device
        try:
            yield
        finally:
            _surrounding = before


@contextmanager
def _restored() -> Iterator[None]:
    numpy = sys.modules.get("numpy")
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    before = (
        torch.get_rng_state(),
        random.getstate(),
        numpy.random.get_state() if numpy is not None else None,
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.is_anomaly_enabled(),
    )
    process = (_default_device(), torch.get_float32_matmul_precision(), torch.get_num_threads(), _working_directory())
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            yield
    finally:
        _restore_process(*process)
        torch.set_rng_state(before[0])
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        random.setstate(before[1])
        if numpy is not None and before[2] is not None:
            numpy.random.set_state(before[2])
        torch.set_default_dtype(before[3])
        torch.set_grad_enabled(before[4])
        _compat.use_deterministic_algorithms(before[5], warn_only=before[6])
        if torch.is_anomaly_enabled() != before[7]:
            torch.autograd.set_detect_anomaly(before[7])


class KeptDefaults:
    """Restores after one call what would spoil the battery's own arithmetic: grad mode, default dtype, default device.

    In the call, the default device is the one that surrounds the check.
    """

    __slots__ = ("_device", "_dtype", "_entered", "_grad_mode")

    def __enter__(self) -> None:
        self._entered = _surrounding
        if self._entered != _CPU:
            self._entered.__enter__()
        self._grad_mode, self._dtype = torch.is_grad_enabled(), torch.get_default_dtype()
        self._device = _default_device()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        torch.set_grad_enabled(self._grad_mode)
        if torch.get_default_dtype() is not self._dtype:
            torch.set_default_dtype(self._dtype)
        _restore_default_device(self._device)
        if self._entered != _CPU:
            self._entered.__exit__(kind, error, trace)


@contextmanager
def muted_output() -> Iterator[None]:
    """Leave out what this thread prints to standard output; what others print goes there as before."""
    with _ALONE, open(os.devnull, "w") as nowhere, redirect_stdout(_ByThread(nowhere, sys.stdout)):  # type: ignore[type-var]
        yield


class _ByThread:
    """A stream that is one file for the thread that made it, and another one for every other thread."""

    def __init__(self, ours: Any, others: Any) -> None:
        self._ours, self._others, self._thread = ours, others, threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ours if threading.get_ident() == self._thread else self._others, name)


def _default_device() -> torch.device:
    """Return the default device; one that is set stays behind as a mode, so that none is set where no mode runs, and asking torch takes long."""
    return torch.get_default_device() if _FUNCTION_MODES() else _CPU


def _restore_default_device(device: torch.device) -> None:
    """Make `device` the default again; the CPU by setting none, since one that is set stays behind as a mode around every call of torch."""
    if _default_device() != device:
        torch.set_default_device(None if device == _CPU else device)


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _restore_process(device: torch.device, precision: str, threads: int, folder: str | None) -> None:
    _restore_default_device(device)
    if torch.get_float32_matmul_precision() != precision:
        torch.set_float32_matmul_precision(precision)
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    if folder is not None and _working_directory() != folder:
        os.chdir(folder)
