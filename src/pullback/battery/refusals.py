"""Tell a refusal that the checked code makes on purpose from a crash."""

from __future__ import annotations

import linecache
import re
import traceback

from .evaluate import UserCodeError

_MEMORY = re.compile(
    r"not enough memory|out of memory|can't allocate|cannot allocate|invalid buffer size|Storage size calculation overflowed", re.IGNORECASE
)
_TORCH = re.compile(r"Function \w+Backward\d+ returned an invalid gradient")
_DELIBERATE = re.compile(r"\s*(raise|assert)\b")


def refuses(error: UserCodeError) -> bool:
    """Return whether the checked code's own `raise` or `assert` made the error, or memory was short: neither is a crash."""
    if isinstance(error.error, MemoryError) or _MEMORY.search(str(error.error)):
        return True
    frames = [
        f
        for f in traceback.extract_tb(error.error.__traceback__)
        if "/pullback/battery/" not in f.filename and "/pullback/capture/" not in f.filename
    ]
    if not frames or "/torch/" in frames[-1].filename:
        return False
    return bool(_DELIBERATE.match(linecache.getline(frames[-1].filename, frames[-1].lineno or 0)))


def blames_torch(error: UserCodeError) -> bool:
    """Return whether the engine rejected what one of torch's own operators returned, inside the checked backward."""
    return bool(_TORCH.match(str(error.error)))
