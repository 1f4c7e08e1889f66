"""Compiles the C kernels once for each CPU and source, and keeps the library in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).with_name("c")
COMMON = ("-O3", "-std=c11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fvisibility=default")
_THREADED = ("-fopenmp",)
_SERIAL = ("-Wno-unknown-pragmas",)
_SECONDS = 120


class KernelError(RuntimeError):
    """Raised when the C kernels cannot be built or loaded; the message says why, and what to do."""


def build(folder: Path | None = None) -> Path:
    """Return the shared library with the C kernels, compiled now if it is not in the cache.

    Args:
        folder: The cache folder; by default ``$PULLBACK_CACHE``, else ``pullback`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Raises:
        KernelError: without a compiler, for a compiler that fails, and for a cache folder that others may write to.
    """
    compiler = _compiler()
    folder = _safe(folder or cache_folder())
    library = folder / f"kernels-{_key(compiler)}.so"
    if not library.exists():
        _compile(compiler, library)
    if library.stat().st_uid != os.getuid():
        raise KernelError(f"The compiled kernels {library} belong to another user, and will not be loaded. Delete them, or set PULLBACK_CACHE.")
    return library


def cache_folder() -> Path:
    """Where compiled kernels are kept."""
    own = os.environ.get("PULLBACK_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pullback"


def _compiler() -> str:
    wanted = os.environ.get("CC")
    for name in (wanted,) if wanted else ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return found
    looked = f"CC={wanted}" if wanted else "cc, gcc and clang"
    raise KernelError(f"No C compiler was found (looked for {looked}). Install one, or set CC; without it the ops run as torch operations.")


def _safe(folder: Path) -> Path:
    """The folder, made if need be. What lies in it gets loaded into the process, so nobody else may be able to write there.

    Raises:
        KernelError: where somebody else may, or where it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
    except OSError as error:
        raise KernelError(f"The cache folder {folder} cannot be used: {error.strerror}. Set PULLBACK_CACHE to a folder of yours.") from error
    if state.st_uid != os.getuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise KernelError(
            f"Others may write to the cache folder {folder}, so no library is loaded from it. Run chmod 700 on it, or set PULLBACK_CACHE."
        )
    return folder


def sources() -> list[Path]:
    """The C files, one for each op."""
    return sorted(SOURCES.glob("*.c"))


def _key(compiler: str) -> str:
    """What the machine code depends on: the sources, the compiler, how it is called, and the CPU."""
    parts = [path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.suffix in (".c", ".h")]
    version = _run([compiler, "--version"]).stdout.encode()
    text = "\0".join([*COMMON, *_tuning(), *_THREADED, platform.machine(), _cpu()]).encode()
    return hashlib.sha256(b"\0".join([*parts, version, text])).hexdigest()[:20]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(wanted)))


def _tuning() -> tuple[str, ...]:
    """For this CPU; on x86 with the widest vectors it has, which compilers avoid for the sake of older ones."""
    return ("-march=native", "-mprefer-vector-width=512") if platform.machine() in ("x86_64", "AMD64") else ("-mcpu=native",)


def _compile(compiler: str, library: Path) -> None:
    """Write the library under another name first: who finds it under its own finds it complete."""
    handle, name = tempfile.mkstemp(dir=library.parent, prefix=f".{library.stem}-", suffix=".so")
    os.close(handle)
    try:
        failures = []
        for threads in (_THREADED, _SERIAL):
            run = _run([compiler, *COMMON, *_tuning(), *threads, "-o", name, *map(str, sources()), "-lm"])
            if run.returncode == 0:
                os.chmod(name, 0o700)
                os.replace(name, library)
                return
            failures.append(run.stderr.strip())
        raise KernelError(f"{compiler} could not compile pullback's kernels. It says:\n{failures[-1][:4000]}")
    finally:
        Path(name).unlink(missing_ok=True)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelError(f"{command[0]} could not be run: {error}") from error
