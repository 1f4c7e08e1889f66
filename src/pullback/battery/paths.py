"""Which lines of the checked code run during a call, and what its functions return."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from torch import Tensor

from ..capture.frames import is_of_project

LONGEST = 20_000


@dataclass(slots=True)
class Path:
    """What ran during a call.

    Args:
        lines: Code objects and lines of the checked code.
        returned: Tensors that its functions returned, with their code objects.
        complete: Whether it was followed to its end: very long ones are not.
    """

    lines: set[tuple[CodeType, int]] = field(default_factory=set)
    returned: list[tuple[CodeType, Tensor]] = field(default_factory=list)
    steps: int = 0
    complete: bool = True


def follow(function: Callable[[], Any]) -> tuple[Any, Path]:
    """Return what a function of no arguments returns, and its path through the checked code in this thread.

    A debugger or a coverage tool does not see the call.
    """
    path = Path()
    known: dict[str, bool] = {}

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        if not path.complete:
            return None
        name = frame.f_code.co_filename
        if name not in known:
            known[name] = is_of_project(name)
        return step if known[name] else None

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        if not path.complete:
            return None
        if event == "line":
            path.steps += 1
            path.lines.add((frame.f_code, frame.f_lineno))
            if path.steps > LONGEST:
                path.complete = False
                sys.settrace(None)
        elif event == "return" and isinstance(argument, Tensor):
            path.returned.append((frame.f_code, argument))
        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        return function(), path
    finally:
        sys.settrace(before)
