"""Whose code a file is: torch's, pullback's, Python's, or the reader's own."""

from __future__ import annotations

import functools
import os
import sysconfig
from types import FrameType

import torch

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = sysconfig.get_path("stdlib") + os.sep


@functools.lru_cache(maxsize=4096)
def is_readers(path: str) -> bool:
    """Whether a file is neither torch's, nor pullback's, nor the standard library's."""
    if path.startswith("<") and not path.startswith(("<stdin>", "<ipython", "<string>")):
        return False
    return not path.startswith((_TORCH, _OWN)) and (not path.startswith(_STANDARD) or "site-packages" in path)


def is_own(path: str) -> bool:
    """Whether a file is one of pullback's."""
    return path.startswith(_OWN)


def is_checkers(path: str) -> bool:
    """Whether a file is one of those of pullback that evaluate the checked code; ops of pullback can be checked themselves."""
    return path.startswith((_OWN + "battery" + os.sep, _OWN + "capture" + os.sep))


def is_torchs(path: str) -> bool:
    """Whether a file is one of torch's."""
    return path.startswith(_TORCH)


def calling_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the reader's code, beginning at `frame`; None where there is none."""
    while frame is not None and not is_readers(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
