"""What a check gives back to the process as it was: random states, modes, defaults."""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import torch

from .. import _compat

_CPU = torch.device("cpu")
_FUNCTION_MODES = _compat.function_modes()


@contextmanager
def preserved_state() -> Iterator[None]:
    """Restore what the checked code may change for the whole process.

    Random states, grad mode, default dtype and device, determinism, anomaly mode, the precision of matrix products, number of threads, warning
    filters, working directory.
    """
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
    """Restores after one call what would spoil the battery's own arithmetic: grad mode, default dtype, default device."""

    __slots__ = ("_device", "_dtype", "_grad_mode")

    def __enter__(self) -> None:
        self._grad_mode, self._dtype = torch.is_grad_enabled(), torch.get_default_dtype()
        self._device = _default_device()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        torch.set_grad_enabled(self._grad_mode)
        if torch.get_default_dtype() is not self._dtype:
            torch.set_default_dtype(self._dtype)
        _restore_default_device(self._device)


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
