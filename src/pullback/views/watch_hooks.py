"""Hooks on modules that stay with the module that is watched."""

from __future__ import annotations

import functools
from typing import Any


class Hook(functools.partial[Any]):
    """A function as a hook of a module; where the module is copied or pickled, a hook that does nothing stands in its place."""

    def __reduce__(self) -> tuple[type[Nothing], tuple[()]]:
        return Nothing, ()


class Nothing:
    """What stands for a hook in a copy of a module."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None
