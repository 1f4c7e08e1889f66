"""Stand-ins for callables, modules and objects: their contract is unknown, so whatever is found with them is at most a warning."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

CALLABLES = (
    "torch.tanh",
    "lambda *xs: sum(torch.tanh(x) for x in xs if isinstance(x, torch.Tensor))",
    "lambda x, *rest: (torch.tanh(x),)",
    "lambda x, y, *rest: ((x - y) ** 2).sum(-1)",
    "lambda *xs: 0.5",
)
MEMBERS = (
    "torch.tanh",
    "torch.sin",
    "lambda *xs: sum(torch.tanh(x) for x in xs if isinstance(x, torch.Tensor))",
    "lambda *xs: sum(torch.sin(x) for x in xs if isinstance(x, torch.Tensor))",
)
"""Members of lists of callables, two of each kind: those of one list differ, so that their order counts."""
MODULES = (
    "torch.nn.Tanh()",
    "torch.nn.Linear(4, 4).double()",
    "torch.nn.Linear(4, 5).double()",
    "torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).double()",
    "torch.nn.ModuleList([torch.nn.Tanh(), torch.nn.Linear(4, 4).double()])",
)


MOST_CLASSES = 4


def expression_value(source: str, seed: int) -> Any:
    """Return the value of one of the expressions above; modules get the same weights for the same seed."""
    if source not in (*CALLABLES, *MEMBERS, *MODULES):
        raise ValueError(f"{source!r} is not among the invented callables and modules")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return eval(source, {"torch": torch})


def instance_of(cls: type, seed: int) -> Any:
    """Return an instance made without arguments; a module gets the same float64 weights for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = cls()
    return made.double() if isinstance(made, torch.nn.Module) else made


def fitting_classes(bases: Sequence[type], attributes: Sequence[str], namespace: Mapping[str, Any], module: str) -> list[type]:
    """Return the classes of the checked code of which an instance may be meant, and can be made without arguments.

    Args:
        bases: Classes that the code asks for; their subclasses will do, and come first where they are more than an empty frame.
        attributes: What the code reads from the argument, for where it asks for no class.
        namespace: The globals of the checked code.
        module: Name of its module: classes that only offer the attributes must be defined there.
    """
    known = [c for c in namespace.values() if isinstance(c, type)]
    if bases:
        wanted = [c for c in [*known, *bases] if issubclass(c, tuple(bases))]
    else:
        wanted = [c for c in known if c.__module__ == module] if attributes else []
    return [c for c in dict.fromkeys(wanted) if _makes(c, tuple(attributes))][:MOST_CLASSES]


@functools.cache
def _makes(cls: type, attributes: tuple[str, ...]) -> bool:
    if cls.__module__.split(".")[0] in ("torch", "builtins", "typing", "enum") or issubclass(cls, (torch.autograd.Function, BaseException)):
        return False
    if inspect.isabstract(cls):
        return False
    if issubclass(cls, torch.nn.Module) and cls.forward is torch.nn.Module.forward:
        return False
    try:
        made = instance_of(cls, 0)
        return all(hasattr(made, name) for name in attributes)
    except Exception:  # whatever the constructor of somebody else's class raises, it is not one to be made without arguments
        return False


def namespace(members: dict[str, Any]) -> SimpleNamespace:
    """Return an object that has these attributes and no others."""
    return SimpleNamespace(**members)
