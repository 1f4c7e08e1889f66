"""The C library's allocator."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


def tune_allocator() -> bool:
    """Let the process keep the memory that it frees, and return whether that was possible.

    On the CPU fresh memory costs more than most elementwise ops: glibc takes each block of 32 MB or more from the kernel, which clears it page by
    page (5 GB/s where memory could take 40), and gives it back at once. This call sets glibc's thresholds (``mallopt``) so that freed memory is used
    again.

    The price: the process stays as large as it once was, though ``malloc_trim`` of the C library gives memory back on request. So pullback never
    calls this by itself. It holds for the whole process and all its threads, and cannot be undone.

    Returns:
        False where the C library has no ``mallopt`` (musl, macOS) or refuses: nothing has changed then.

    Example:
        >>> import pullback as pb
        >>> callable(pb.ops.tune_allocator)
        True
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _LARGEST))
