"""pullback.ops: differentiable ops, each with its derivation, its reference in plain torch, and what it keeps for backward.

Importing it is cheap: no op, and no torch, is imported until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .classics.swish import swish as swish

# A module named like its op lies in a family's folder, so importing it never takes the op's place in this one.
_HOMES = {
    "swish": "classics.swish",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pullback.ops' has no attribute {name!r}")
    try:
        home = importlib.import_module(f".{_HOMES[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise ImportError(f"pullback.ops.{name} needs PyTorch, which is not installed: pip install 'pullback[torch]'") from error
        raise
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
