"""The same call in a process that is set otherwise: deterministic algorithms, another number of threads, environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch

from .. import _compat
from .code_text import own_text
from .probe import Probe
from .variants import Variant

THREADS = (4, 5)
"""Numbers of threads that divide few sizes, one of them odd."""
_DETERMINISTIC = "torch.are_deterministic_algorithms_enabled"
_THREADS = "torch.get_num_threads"
_VARIABLE = re.compile(r"\b(?:environ\.get|getenv)\(\s*[\"'](\w+)[\"']|\benviron\[\s*[\"'](\w+)[\"']")
VARIABLES = 2


def process_flags(probe: Probe) -> Iterator[Variant]:
    """Yield the call in processes that are set otherwise, as far as the code of the Function asks how this one is set."""
    text = own_text(probe.target.described)
    if _DETERMINISTIC in text:
        on = torch.are_deterministic_algorithms_enabled()
        yield _variant(probe, f"torch.use_deterministic_algorithms({not on})", partial(_deterministic, not on))
    if _THREADS in text:
        for count in THREADS:
            yield _variant(probe, f"torch.set_num_threads({count})", partial(_threads, count))
    variables = list(dict.fromkeys(a or b for a, b in _VARIABLE.findall(text)))
    for variable in variables[:VARIABLES]:
        for value in ("1", "0"):
            if os.environ.get(variable) != value:
                yield _variant(probe, f"{variable}={value} in the environment", partial(_environment, variable, value))


def _variant(probe: Probe, name: str, within: Callable[[], AbstractContextManager[None]]) -> Variant:
    return Variant(name, name, probe.exact.variant(), within=within)


@contextmanager
def _deterministic(on: bool) -> Iterator[None]:
    before, warn_only = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    _compat.use_deterministic_algorithms(on, warn_only=True)
    try:
        yield
    finally:
        _compat.use_deterministic_algorithms(before, warn_only=warn_only)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _environment(variable: str, value: str) -> Iterator[None]:
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
