"""Public names that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any


def resolve(package: str, homes: Mapping[str, str], name: str) -> Any:
    """Import a public name of a package and keep it there.

    Args:
        package: The package's `__name__`.
        homes: For every public name, the module below the package that holds it.
        name: What is asked for.

    Raises:
        AttributeError: if the package has no such name.
        ImportError: if its module needs torch, and torch is not installed.
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        home = importlib.import_module(f".{homes[name]}", package)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise ImportError(f"{package}.{name} needs PyTorch, which is not installed: pip install 'pullback[torch]'") from error
        raise
    value = getattr(home, name)
    setattr(sys.modules[package], name, value)
    return value
