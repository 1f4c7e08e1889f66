"""What the search restores after running unknown code, and the process group of one that collectives need."""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from ... import _compat
from .syntax import FunctionSource, mentions


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Run a block and then restore random states, default dtype, grad mode, warnings, deterministic mode; torch.compile is off inside."""
    numpy: Any = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    python_state, dtype = random.getstate(), torch.get_default_dtype()
    deterministic, warn_only = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), torch.enable_grad(), _eager():
            warnings.simplefilter("ignore")
            torch.autograd.set_detect_anomaly(False)
            yield
    finally:
        random.setstate(python_state)
        if numpy is not None and numpy_state is not None:
            numpy.random.set_state(numpy_state)
        torch.set_default_dtype(dtype)
        _compat.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


def _eager() -> contextlib.AbstractContextManager[Any]:
    """Importing the compiler costs a second, so it is only told to stand aside where the checked code has imported it."""
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")


def uses_collectives(source: FunctionSource) -> bool:
    """Return whether the code may talk to other processes."""
    if mentions(source, "dist", "distributed", "all_reduce", "all_gather", "get_world_size", "reduce_scatter", "process_group"):
        return True
    return any(isinstance(v, ModuleType) and v.__name__.startswith("torch.distributed") for v in list(source.namespace.values()))


def ensure_group() -> bool:
    """Set up a process group of this process alone if there is none; return whether one was set up.

    It stays: the samples found may hold it, and it ends with the worker process.
    """
    if not torch.distributed.is_available() or torch.distributed.is_initialized():
        return False
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    return True
