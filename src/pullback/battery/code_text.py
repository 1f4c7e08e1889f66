"""The text of a Function's own code: forward, backward, and what they call of their class and module."""

from __future__ import annotations

from ..capture.calls import Function, backward_of
from ..capture.source import called_by, text_of

LEVELS = 2
"""How far calls are followed: a helper, and what it calls."""


def own_text(function: type[Function] | None) -> str:
    """Return the text of forward, and of backward, with that of the helpers of the same class and module that they call, as far as it can be read."""
    if function is None:
        return ""
    return text_of(*called_by(function, function.forward, backward_of(function), levels=LEVELS))
