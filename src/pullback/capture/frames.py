"""Whose code a file is: torch's, pullback's, Python's, an installed package's, or the reader's own. Nothing here imports torch."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
from types import FrameType

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = f"{os.sep}site-packages{os.sep}"


@functools.cache
def _torch_folder() -> str:
    """The folder of torch, whether it was imported or not; one that holds no file where there is none."""
    loaded = sys.modules.get("torch")
    spec = None if loaded is not None else importlib.util.find_spec("torch")
    origin = getattr(loaded, "__file__", None) or (spec.origin if spec is not None else None)
    return os.path.dirname(os.path.abspath(origin)) + os.sep if origin else "<no torch>"


@functools.lru_cache(maxsize=4096)
def is_readers(path: str) -> bool:
    """Whether a file is neither torch's, nor pullback's, nor the standard library's."""
    if path.startswith("<") and not path.startswith(("<stdin>", "<ipython", "<string>")):
        return False
    return not path.startswith((_torch_folder(), _OWN)) and not is_standard(path)


def is_of_project(path: str) -> bool:
    """Whether it is a file of the reader's that no package installer put there: where a message may point to as the place to mend."""
    return is_readers(path) and not path.startswith("<") and _INSTALLED not in path


def is_standard(path: str) -> bool:
    """Whether a file is one of Python's standard library."""
    return path.startswith(_STANDARD) and _INSTALLED not in path


def is_own(path: str) -> bool:
    """Whether a file is one of pullback's."""
    return path.startswith(_OWN)


def is_checkers(path: str) -> bool:
    """Whether a file is one of those of pullback that evaluate the checked code; ops of pullback can be checked themselves."""
    return path.startswith((_OWN + "battery" + os.sep, _OWN + "capture" + os.sep))


def is_torchs(path: str) -> bool:
    """Whether a file is one of torch's."""
    return path.startswith(_torch_folder())


def calling_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the reader's code, beginning at `frame`; None where there is none."""
    while frame is not None and not is_readers(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
