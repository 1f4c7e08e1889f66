"""What a benchmark ran on."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from ..report.finding import JSON


def environment(device: torch.device) -> dict[str, JSON]:
    """Return versions, device and threads."""
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def device_name(device: torch.device) -> str:
    """Return what a reader calls a device: the model of the GPU or of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return _processor() if device.type == "cpu" else str(device)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
