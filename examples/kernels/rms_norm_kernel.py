"""Compile rms_norm.c at first use and load it with ctypes. The library is kept in the user's cache under a hash of its source."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("rms_norm.c")
POINTER, INT, DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


@functools.cache
def library() -> ctypes.CDLL:
    """Return the library with rms_norm and rms_norm_backward; pointers are to packed CPU memory, float32 but for dw."""
    loaded = ctypes.CDLL(str(compiled(SOURCE)))
    loaded.rms_norm.argtypes = [POINTER, POINTER, DOUBLE, INT, INT, POINTER, POINTER]
    loaded.rms_norm_backward.argtypes = [POINTER] * 4 + [INT] * 2 + [POINTER] * 2
    loaded.rms_norm.restype = loaded.rms_norm_backward.restype = None
    return loaded


def compiled(source: Path) -> Path:
    """Return the shared library made from a C file.

    Raises:
        RuntimeError: if there is no C compiler, or if it refuses the file.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pullback-examples"
    target = cache / f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    if target.exists():
        return target
    name = os.environ.get("CC", "cc")
    compiler = shutil.which(name)
    if compiler is None:
        raise RuntimeError(f"{source.name} needs a C compiler, and there is no {name!r} on the PATH: install one, or set CC to its name")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        built = Path(folder) / target.name
        run = subprocess.run([compiler, "-O2", "-shared", "-fPIC", source, "-o", built, "-lm"], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError(f"{compiler} cannot compile {source}:\n{run.stderr}")
        built.replace(target)  # in one step, so that another process never loads half a file
    return target
