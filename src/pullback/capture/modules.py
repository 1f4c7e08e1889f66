"""Modules as plain calls: parameters and buffers become arguments, so that they are differentiated and never changed."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .case import Case


class ModuleCall:
    """Calls a module with given parameters and buffers; the module itself is a private copy.

    Args:
        module: The module to call.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = copy.deepcopy(module)
        self.__name__ = type(module).__name__
        self.__qualname__ = type(module).__qualname__
        self.__module__ = type(module).__module__
        self.__wrapped__ = type(module).forward
        own, *rest = inspect.signature(type(module).forward).parameters.values()
        self.__signature__ = inspect.Signature([own.replace(name="parameters"), *rest])

    def __call__(self, parameters: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(self.module, dict(parameters), args, kwargs)


def with_module_state(case: Case) -> Case:
    """Return `case` with a module target replaced by a call that takes parameters and buffers as its first argument; other cases unchanged."""
    if not isinstance(case.target, torch.nn.Module):
        return case
    state: dict[str, Tensor] = {**dict(case.target.named_parameters()), **dict(case.target.named_buffers())}
    return replace(case, target=ModuleCall(case.target), args=(state, *case.args))
