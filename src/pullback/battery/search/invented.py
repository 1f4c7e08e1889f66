"""Stand-ins for callables, modules and objects: their contract is unknown, so whatever is found with them is at most a warning."""

from __future__ import annotations

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


def expression_value(source: str, seed: int) -> Any:
    """Return the value of one of the expressions above; modules get the same weights for the same seed."""
    if source not in (*CALLABLES, *MEMBERS, *MODULES):
        raise ValueError(f"{source!r} is not among the invented callables and modules")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return eval(source, {"torch": torch})


def namespace(members: dict[str, Any]) -> SimpleNamespace:
    """Return an object that has these attributes and no others."""
    return SimpleNamespace(**members)
